"""`tern card`: its JSON for scripts, and its text and pictures for people."""

import json
import math
import os
import resource
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from tern import card as cards
from tern.card import T
from ternhost import errors
from ternhost.cli import main
from ternhost.privacy import shuffling
from ternhost.privacy.cards import picture
from ternhost.privacy.mechanisms import design, parse_epsilon

KEYS = {
    "mechanism", "epsilon", "epsilon_certified", "worst_case_variance", "variance_at_zero", "bias", "levels",
    "bits_per_value", "card_bytes", "card_hash", "scale",
}  # fmt: skip


ACCOUNT = ["account", "--reports", "100", "--delta", "1e-6"]


def run_json(capsys, *argv):
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_design_prints_the_promised_keys_and_writes_the_card(capsys, tmp_path):
    path = tmp_path / "three.card"
    code, result = run_json(capsys, "card", "design", "three-outputs", "--epsilon", "2", "-o", str(path))
    assert code == errors.OK
    assert result.keys() >= KEYS
    assert result["bias"] == 0
    assert result["epsilon_certified"] <= result["epsilon"] == 2
    data = path.read_bytes()
    assert len(data) == result["card_bytes"]
    assert cards.card_hash(data).hex() == result["card_hash"]
    numerator, denominator = result["scale"].split("/")
    assert int(numerator) / int(denominator) == pytest.approx(1.46955, abs=1e-5)


def test_lhp_has_at_zero_the_variance_of_the_range_above(capsys):
    """With an even number of ranges, 0 is a bound, and devices count it to the range above."""
    code, result = run_json(capsys, "card", "design", "lhp", "--epsilon", "1", "--budgets", "2,1")
    card = cards.decode(design("lhp", 1, budgets=(2, 1)).card)
    assert (code, card.hierarchy.level(0)) == (errors.OK, 0)
    value = T / (T - 2 * card.hierarchy.value_cards[0].thresholds[1])
    other = T / (T - 2 * card.hierarchy.value_cards[1].thresholds[1])
    p = card.hierarchy.level_cards[0].threshold / T
    assert result["variance_at_zero"] == pytest.approx(p * value**2 + (1 - p) * other**2)


def test_certify_accepts_the_epsilon_of_a_card_and_no_smaller_one(capsys, tmp_path):
    path = str(tmp_path / "c")
    assert main(["card", "design", "duchi", "--epsilon", "1.5", "-o", path]) == errors.OK
    capsys.readouterr()
    code, yes = run_json(capsys, "card", "certify", path, "--epsilon", "1.5")
    assert (code, yes["certified"], yes["epsilon_certified"]) == (errors.OK, True, 1.5)
    code, no = run_json(capsys, "card", "certify", path, "--epsilon", "1.499999")
    assert (code, no["certified"], no["epsilon_certified"]) == (errors.FAILED, False, 1.5)
    assert "1.5" in no["reason"]


def test_certify_refuses_a_card_that_claims_too_little(capsys, tmp_path):
    path = tmp_path / "c"
    main(["card", "design", "duchi", "--epsilon", "1.5", "-o", str(path)])
    data = bytearray(path.read_bytes())
    data[1] ^= 32  # a smaller epsilon
    path.write_bytes(data)
    capsys.readouterr()
    code, result = run_json(capsys, "card", "certify", str(path), "--epsilon", "3")
    assert code == errors.FAILED
    assert "refuses" in result["reason"]


@pytest.mark.parametrize("data", [b"", b"\x11", b"not a card at all", bytes(2048), bytes(5000)])
def test_certify_refuses_a_file_that_is_no_card(capsys, tmp_path, data):
    path = tmp_path / "c"
    path.write_bytes(data)
    code = main(["card", "certify", str(path), "--epsilon", "1", "--json"])
    captured = capsys.readouterr()
    if len(data) > 2048:
        assert code == errors.USAGE
        assert "longer than 2048" in captured.err
    else:
        result = json.loads(captured.out)
        assert (code, result["certified"], result["epsilon_certified"]) == (errors.FAILED, False, None)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["design", "nonsense", "--epsilon", "1"], "one of: duchi, "),
        (["design", "duchi", "--epsilon", "0"], "epsilon 0"),
        (["design", "duchi", "--epsilon", "nan"], "epsilon nan"),
        (["design", "duchi", "--epsilon", "-1"], "epsilon -1"),
        (["design", "duchi", "--epsilon", "21"], "epsilon 21"),
        (["design", "duchi", "--epsilon", "1", "--levels", "3"], "has 2"),
        (["design", "pm-sub", "--epsilon", "1", "--levels", "257"], "2 to 256"),
        (["design", "duchi", "--epsilon", "1", "--window", "best"], "no option --window"),
        (["design", "pm", "--epsilon", "1", "--window", "odd"], "one of paper, best, not 'odd'"),
        (["design", "pm", "--epsilon", "1", "--knots", "9"], "it is for optimal"),
        (["design", "laplace", "--epsilon", "1", "--grid", "a"], "--grid must be a whole number, not 'a'"),
        (["design", "lhp", "--epsilon", "1", "--budgets", "1,x"], "--budgets must be B,B,..., not '1,x'"),
        (["show", "duchi"], "--epsilon"),
        (["show", "c", "--levels", "3", "--window", "best"], "--window and --levels would change nothing"),
        (["design", "duchi"], "--epsilon"),
        (["certify", "no-such-file", "--epsilon", "1"], "No such file"),
        (["show", "no-such-file"], "No such file"),
        (ACCOUNT, "the local epsilon is missing"),
        ([*ACCOUNT, "--epsilon", "1", "--levels", "4"], "--levels is an option of a mechanism"),
        ([*ACCOUNT, "three-outputs"], "three-outputs is a mechanism"),
        ([*ACCOUNT, "--epsilon", "1", "--delta", "2"], "--delta must be between 0 and 1, not 2"),
        ([*ACCOUNT, "--epsilon", "1", "--reports", "0"], "--reports must be from 1"),
        ([*ACCOUNT, "--epsilon", "1", "--delta", "1e-310"], "--delta must be 1e-300 or more"),
        ([*ACCOUNT, "--epsilon", "1", "--plot", "a.bmpp"], "there is no format .bmpp"),
        ([*ACCOUNT, "--epsilon", "1", "--values", "0"], "--values must be 1 or more, not 0"),
    ],
)
def test_bad_input_is_a_message_and_exit_2(tern, argv, says):
    captured = tern("card", *argv, code=errors.USAGE)
    assert says in captured.err
    assert not captured.out


def test_show_draws_a_picture(tern, tmp_path, coarse):
    plot = tmp_path / "p.png"
    text = tern("card", "show", "three-outputs", "--epsilon", "1", "--plot", str(plot)).out
    assert "█" in text
    assert plot.read_bytes().startswith(b"\x89PNG")
    path = tmp_path / "c"
    main(["card", "design", "pm", "--epsilon", "1", "-o", str(path)])
    assert "255" in tern("card", "show", str(path)).out


def test_show_draws_in_ascii_on_a_terminal_without_unicode():
    assert picture(design("rr3", 1).decode(), "ascii").isascii()
    ended = _tern("card", "show", "pm", "--epsilon", "1", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (errors.OK, "")
    assert ended.stdout.isascii()
    assert "##" in ended.stdout


@pytest.mark.slow
def test_a_full_disk_leaves_no_part_of_a_file_and_keeps_the_file_before(tmp_path):
    """Files are limited to a size that the card and the picture exceed, so that the write ends in the middle."""
    path = tmp_path / "p.png"
    path.write_bytes(b"before")
    for argv in (
        ["show", "pm", "--epsilon", "1", "--plot", str(path)],
        ["design", "3r", "--epsilon", "1", "-o", str(tmp_path / "c")],
    ):
        ended = _tern("card", *argv, limit=128)
        assert ended.returncode != errors.OK
        assert "fault" not in ended.stderr
        assert not ended.stdout
        assert list(tmp_path.iterdir()) == [path]
        assert path.read_bytes() == b"before"


def test_a_device_file_is_written_to_and_not_replaced(capsys):
    assert main(["card", "show", "duchi", "--epsilon", "1", "--plot", "/dev/full"]) == errors.STORAGE
    assert "No space left" in capsys.readouterr().err
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def _tern(*argv, limit=None, **environment):
    """Run tern in another process, in which no file can grow beyond `limit` bytes."""

    def restrict():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-B", "-m", "ternhost", *argv]
    env = {**os.environ, **environment}
    before = restrict if limit else None
    return subprocess.run(command, capture_output=True, encoding="utf-8", env=env, preexec_fn=before)


def test_epsilon_is_exact_in_decimal():
    # 0.1 + 0.2 is not 0.3 in binary; card designs are in millionths, rounded down.
    for text, micro in (("0.3", 300_000), ("2.0000019", 2_000_001), ("1e-1", 100_000), (" 1 ", 1_000_000)):
        assert parse_epsilon(text) == micro


def test_a_shipped_card_needs_no_scipy():
    """SciPy takes longer to import than all other modules."""
    script = (
        "import sys; from ternhost.cli import main; "
        "code = main(['card', 'design', 'optimal', '--epsilon', '2', '--levels', '4', '--json']); "
        "sys.exit(code or 'scipy' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert json.loads(ended.stdout)["notes"] == ["a shipped card"]


@pytest.mark.slow
def test_account_takes_a_card_by_name_or_file_and_says_that_it_needs_a_shuffler(capsys, tmp_path, coarse):
    path, plot = str(tmp_path / "c"), tmp_path / "shuffled.png"
    main(["card", "design", "three-outputs", "--epsilon", "4", "-o", path])
    capsys.readouterr()
    crowd = ("--reports", "2000", "--delta", "1e-6")
    _, by_name = run_json(capsys, "card", "account", "three-outputs", "--epsilon", "4", *crowd)
    _, by_file = run_json(capsys, "card", "account", path, *crowd)
    _, plain = run_json(capsys, "card", "account", "--epsilon", "4", *crowd)
    assert by_file | {"what": by_name["what"]} == by_name
    assert by_name["epsilon_central"] == by_name["epsilon_card"] < plain["epsilon_central"] < 4
    assert plain["epsilon_card"] is None
    assert plain["epsilon_closed"] is None  # too few reports for epsilon 4
    assert by_name["holds_for_terns_transport"] is False
    assert main(["card", "account", "--epsilon", "1", *crowd, "--plot", str(plot)]) == errors.OK
    assert plot.read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "not anonymous" in text
    assert "closed bound" in text


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(shuffling, "account", lambda *_: pytest.fail("it began"))
    plot = str(tmp_path / "no" / "a.png")
    assert main(["card", *ACCOUNT, "--epsilon", "1", "--plot", plot]) == errors.STORAGE
    assert "a.png cannot be written" in capsys.readouterr().err


def test_a_picture_ends_at_the_largest_number_of_reports(monkeypatch, tmp_path, tern, coarse):
    """That number is not accounted for twice."""
    real, numbers = shuffling.account, []

    def account(local, reports, *more):
        numbers.append(reports)
        assert reports <= shuffling.MOST_REPORTS
        return replace(real(local, 1000, *more), reports=reports)

    monkeypatch.setattr(shuffling, "account", account)
    argv = ["card", "account", "--epsilon", "1", "--reports", "500000000", "--delta", "1e-10"]
    assert tern(*argv, "--plot", str(tmp_path / "a.png"), "--json").json["reports"] == 500_000_000
    assert len(numbers) == len(set(numbers)) == 5


def certified(capsys, tmp_path, text, *more, name="t.csv"):
    """The exit code and the output, of standard output or of the error, of `tern card certify` for a table."""
    path = tmp_path / name
    path.write_text(text)
    code = main(["card", "certify", str(path), *more])
    captured = capsys.readouterr()
    return code, captured.out or captured.err


VALUED = "x, -2, 2\n-1, 0.75, 1/4\n1, 0.25, 3/4\n"


def test_certify_takes_a_table_of_probabilities(capsys, tmp_path):
    code, words = certified(capsys, tmp_path, VALUED)
    assert code == errors.OK
    assert "it keeps epsilon 1.098613, ln of 3, the ratio of output -2 at inputs -1 and 1" in words
    assert "variance   at most 3 (at input -1)" in words
    assert certified(capsys, tmp_path, VALUED, "--epsilon", "1.098613")[0] == errors.OK
    code, words = certified(capsys, tmp_path, VALUED, "--epsilon", "1.098612", "--json")
    result = json.loads(words)
    assert (code, result["certified"]) == (errors.FAILED, False)
    assert (result["ratio"], result["bias"]) == ("3/1", "0/1")
    whole = {"inputs": [-1, 1], "outputs": [-2, 2], "rows": [["0.75", 0.25], [0.25, "3/4"]]}
    for table in (whole, whole["rows"]):
        code, words = certified(capsys, tmp_path, json.dumps(table), "--json", name="t.json")
        assert (code, json.loads(words)["epsilon_certified"]) == (errors.OK, 1.098613)


def test_a_table_with_a_zero_keeps_no_epsilon_but_a_delta(capsys, tmp_path):
    table = ";a;b;c\nyes;0.5;0.25;1/4\nno;1/2;1/2;0"
    code, words = certified(capsys, tmp_path, table, "--epsilon", "1", "--delta")
    assert code == errors.FAILED
    assert "no epsilon: output c is possible at yes, and not at no" in words
    assert "delta      1/4 = 0.25 at epsilon 1.0" in words


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0.333,0.333,0.333\n1/3,1/3,1/3", "input 1 sum to 999/1000 (0.999), not to 1"),
        ("1.5,-0.5\n0.5,0.5", "input 1 has the probability -1/2"),
        ("0.5,0.5", "two rows or more"),
        ("0.5,0.5\n1", "two rows or more, all of one length"),
        ("0.5,half\n0.5,0.5", "'half' is not a probability"),
        ("0.5,1/0\n0.5,0.5", "'1/0' is not a probability"),
        ("0.5,1e999999999\n0.5,0.5", "'1e999999999' is not a probability"),
        (",a,a\nx,0.5,0.5\ny,0.5,0.5", "the table has 2 outputs, and their names are a, a"),
        (",a,b\nx,0.5,0.5\nx,0.5,0.5", "the table has 2 inputs, and their names are x, x"),
        ("", "two rows or more"),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_reason(capsys, tmp_path, text, says):
    code, words = certified(capsys, tmp_path, text)
    assert code == errors.USAGE
    assert says in words
    assert words.count("\n") == 2, "a remedy follows"


def test_a_table_of_more_than_epsilon_20_is_not_certified(capsys, tmp_path):
    code, words = certified(capsys, tmp_path, "0.9999999999,1e-10\n1e-10,0.9999999999")
    assert (code, "NOT certified: it keeps no epsilon up to 20" in words) == (errors.FAILED, True)


@pytest.mark.parametrize("place", ["no/a.card", "."])
@pytest.mark.usefixtures("here")
def test_a_card_that_cannot_be_written_is_a_storage_error_that_names_the_place(capsys, place):
    assert main(["card", "design", "duchi", "--epsilon", "1", "-o", place]) == errors.STORAGE
    assert capsys.readouterr().err.startswith(f"tern: cannot write {place}: ")


def test_a_text_that_is_no_card_is_called_so(capsys, tmp_path):
    code, words = certified(capsys, tmp_path, "hello world", name="notes.txt")
    assert code == errors.FAILED
    assert "it is not a card: it does not begin as one of version 1 does" in words
    assert main(["card", "certify", str(tmp_path / "notes.txt"), "--epsilon", "1", "--delta"]) == errors.USAGE
    assert "--delta needs a table" in capsys.readouterr().err


@pytest.mark.parametrize(("epsilon", "most"), [("0.5", "62.3 %"), ("2", "88.1 %"), ("8", "more than 99.9 %")])
def test_show_says_what_an_epsilon_means_for_one_device(capsys, tern, epsilon, most):
    assert f"{most} likely after its report" in tern("card", "show", "duchi", "--epsilon", epsilon).out
    odds = math.exp(float(epsilon))
    code, result = run_json(capsys, "card", "show", "duchi", "--epsilon", epsilon)
    assert code == errors.OK
    assert odds / (1 + odds) <= result["posterior_from_half"] < odds / (1 + odds) + 0.001
