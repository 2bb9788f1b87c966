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
from ternhost import errors
from ternhost.extensions import intermediaries
from ternhost.plots import canvas
from ternhost.privacy import shuffling
from ternhost.privacy.cards import picture
from ternhost.privacy.mechanisms import design, parse_epsilon

KEYS = {
    "mechanism",
    "epsilon",
    "epsilon_certified",
    "worst_case_variance",
    "variance_at_zero",
    "bias",
    "levels",
    "bits_per_value",
    "card_bytes",
    "card_hash",
    "scale",
}

BEHIND = f"behind the {['shuffler', *intermediaries()][-1]}"  # the heading of a column


def test_design_prints_the_promised_keys_and_writes_the_card(tern, tmp_path):
    path = tmp_path / "three.card"
    result = tern(
        "card", "design", "three-outputs", "--epsilon", "2", "-o", str(path), "--json"
    ).json
    assert result.keys() >= KEYS
    assert result["bias"] == 0
    assert result["epsilon_certified"] <= result["epsilon"] == 2
    data = path.read_bytes()
    assert len(data) == result["card_bytes"]
    assert cards.card_hash(data).hex() == result["card_hash"]
    numerator, denominator = result["scale"].split("/")
    assert int(numerator) / int(denominator) == pytest.approx(1.46955, abs=1e-5)


def test_certify_accepts_the_epsilon_of_a_card_and_no_smaller_one(tern, tmp_path):
    path = str(tmp_path / "c")
    tern("card", "design", "duchi", "--epsilon", "1.5", "-o", path)
    yes = tern("card", "certify", path, "--epsilon", "1.5", "--json").json
    assert (yes["certified"], yes["epsilon_certified"]) == (True, 1.5)
    no = tern("card", "certify", path, "--epsilon", "1.499999", "--json", code=errors.FAILED).json
    assert (no["certified"], no["epsilon_certified"]) == (False, 1.5)
    assert "1.5" in no["reason"]


def test_certify_refuses_a_card_that_claims_too_little(tern, tmp_path):
    path = tmp_path / "c"
    tern("card", "design", "duchi", "--epsilon", "1.5", "-o", str(path))
    data = bytearray(path.read_bytes())
    data[1] ^= 32  # a smaller epsilon
    path.write_bytes(data)
    refused = tern("card", "certify", str(path), "--epsilon", "3", "--json", code=errors.FAILED)
    assert "refuses" in refused.json["reason"]


@pytest.mark.parametrize("data", [b"", b"\x11", b"not a card at all", bytes(2048), bytes(5000)])
def test_certify_refuses_a_file_that_is_no_card(tern, tmp_path, data):
    path = tmp_path / "c"
    path.write_bytes(data)
    code = errors.USAGE if len(data) > 2048 else errors.FAILED
    refused = tern("card", "certify", str(path), "--epsilon", "1", "--json", code=code)
    if code == errors.USAGE:
        assert "longer than 2048" in refused.err
    else:
        assert (refused.json["certified"], refused.json["epsilon_certified"]) == (False, None)


def test_show_draws_a_picture(tern, tmp_path, coarse):
    plot = tmp_path / "p.png"
    text = tern("card", "show", "three-outputs", "--epsilon", "1", "--plot", str(plot)).out
    assert "█" in text
    assert plot.read_bytes().startswith(b"\x89PNG")
    path = tmp_path / "c"
    tern("card", "design", "pm-sub", "--epsilon", "1", "-o", str(path))
    assert "255" in tern("card", "show", str(path)).out


def test_show_draws_in_ascii_on_a_terminal_without_unicode():
    assert picture(design("rr3", 1).decode(), "ascii").isascii()
    ended = _tern("card", "show", "pm-sub", "--epsilon", "1", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (errors.OK, "")
    assert ended.stdout.isascii()
    assert "##" in ended.stdout


@pytest.mark.slow
def test_a_full_disk_leaves_no_part_of_a_file_and_keeps_the_file_before(tmp_path):
    """Files are limited to a size that the card and the picture exceed, so that the write ends in
    the middle.
    """
    path = tmp_path / "p.png"
    path.write_bytes(b"before")
    for argv in (
        ["show", "pm-sub", "--epsilon", "1", "--plot", str(path)],
        ["design", "3r", "--epsilon", "1", "-o", str(tmp_path / "c")],
    ):
        ended = _tern("card", *argv, limit=128)
        assert ended.returncode != errors.OK
        assert "fault" not in ended.stderr
        assert not ended.stdout
        assert list(tmp_path.iterdir()) == [path]
        assert path.read_bytes() == b"before"


def test_a_device_file_is_written_to_and_not_replaced(tern):
    refused = tern(
        "card", "show", "duchi", "--epsilon", "1", "--plot", "/dev/full", code=errors.STORAGE
    )
    assert "No space left" in refused.err
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def _tern(*argv, limit=None, **environment):
    """Run tern in another process, in which no file can grow beyond `limit` bytes."""

    def restrict():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-B", "-m", "ternhost", *argv]
    env = {**os.environ, **environment}
    before = restrict if limit else None
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", env=env, preexec_fn=before
    )


def test_epsilon_is_exact_in_decimal():
    # 0.1 + 0.2 is not 0.3 in binary; card designs are in millionths, rounded down.
    for text, micro in (
        ("0.3", 300_000),
        ("2.0000019", 2_000_001),
        ("1e-1", 100_000),
        (" 1 ", 1_000_000),
    ):
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
def test_account_takes_a_card_by_name_or_file_and_says_that_it_needs_a_shuffler(
    tern, tmp_path, coarse
):
    path, plot = str(tmp_path / "c"), tmp_path / "shuffled.png"
    tern("card", "design", "three-outputs", "--epsilon", "4", "-o", path)
    crowd = ("--reports", "2000", "--delta", "1e-6", "--json")
    by_name = tern("card", "account", "three-outputs", "--epsilon", "4", *crowd).json
    by_file = tern("card", "account", path, *crowd).json
    plain = tern("card", "account", "--epsilon", "4", *crowd).json
    assert by_file | {"what": by_name["what"]} == by_name
    assert by_name["epsilon_central"] == by_name["epsilon_card"] < plain["epsilon_central"] < 4
    assert plain["epsilon_card"] is None
    assert plain["epsilon_closed"] is None  # too few reports for epsilon 4
    assert not by_name["holds_toward_the_host"]["ports"]
    assert not by_name["holds_toward_the_host"]["broker"]
    text = tern("card", "account", "--epsilon", "1", *crowd[:-1], "--plot", str(plot)).out
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "over MQTT or serial ports, a device spends the local 1" in text
    assert "closed bound" in text


def _account(tern, words):
    return tern("card", "account", *words.split(), "--delta", "1e-6", "--json").json


BOUNDS = ("pure", "zcdp", "exact")


def test_account_composes_the_losses_of_many_reports(tern):
    words = (
        "card",
        "account",
        "three-outputs",
        "--epsilon",
        ".1",
        "--rounds",
        "1000",
        "--delta",
        "1e-6",
    )
    result = tern(*words, "--json").json
    assert result["epsilon_pure"] == pytest.approx(100)
    assert 19 < result["epsilon_exact"] == result["epsilon"] < 19.4 < result["epsilon_zcdp"] < 21.6
    assert (result["rho_each"], result["protects"]) == (
        0.004996,
        "a device with all of its records",
    )
    rows = result["rows"]
    assert [row["rounds"] for row in rows] == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    for bound in BOUNDS:
        of = [row[bound] for row in rows]
        assert of == sorted(set(of))
        assert of[-1] == result[f"epsilon_{bound}"]
    assert all(row["exact"] <= min(row["pure"], row["zcdp"]) for row in rows)
    text = tern(*words).out
    assert "    reports         pure         zCDP        exact\n" in text
    assert "      1,000          100         20.6         19.4\n" in text
    assert "After all of them the epsilon is 19.4." in text
    assert "rho 4.996 in total" in text


def test_values_of_a_report_are_more_draws_and_a_false_claim_is_not_what_is_paid(tern, tmp_path):
    pairs = _account(tern, "rr3 --epsilon .5 --rounds 20 --values 2")["rows"][-1]
    assert [pairs[bound] for bound in BOUNDS] == [
        _account(tern, "rr3 --epsilon .5 --rounds 40")["rows"][-1][bound] for bound in BOUNDS
    ]
    path = tmp_path / "c"
    tern("card", "design", "duchi", "--epsilon", "1.5", "-o", str(path))
    data = path.read_bytes()
    path.write_bytes(data[:1] + (1_000_000).to_bytes(4, "little") + data[5:])
    assert _account(tern, f"{path} --rounds 2")["epsilon_pure"] == 3


def test_account_composes_rounds_behind_an_intermediary(tern):
    crowd = "duchi --epsilon 1 --reports 900"
    once, many = _account(tern, crowd), _account(tern, f"{crowd} --rounds 4")
    behind = [row["behind"] for row in many["rows"]]
    assert behind == sorted(set(behind))
    assert behind[0] == once["epsilon_central"]
    assert many["epsilon_central"] == behind[-1] < 3 * behind[0] < many["epsilon_exact"] < 4
    text = tern("card", "account", *crowd.split(), "--rounds", "1", "--delta", "1e-6").out
    assert "     rounds   local pure  local exact  behind the " in text
    assert "a device spends the local epsilon" in text
    unknown = _account(tern, "--epsilon 1 --reports 900 --rounds 4 --values 2")
    assert many["epsilon_central"] < unknown["epsilon_central"] < unknown["epsilon_exact"] < 8
    noise = _account(tern, "laplace --epsilon 1 --reports 900 --rounds 2")
    assert noise["rows"] == _account(tern, "--epsilon 1 --reports 900 --rounds 2")["rows"]


def test_only_honest_reports_hide_each_other(tern):
    of = "duchi --epsilon 1 --reports"
    fewer = _account(tern, f"{of} 600 --rounds 2 --honest .57")  # in floats less than 342
    assert (fewer["reports"], fewer["honest"]) == (600, 342)
    assert fewer["rows"] == _account(tern, f"{of} 342 --rounds 2")["rows"]
    assert _account(tern, f"{of} 600 --honest .57")["epsilon_central"] == fewer["rows"][0]["behind"]
    alone = _account(tern, f"{of} 600 --honest 1e-9 --rounds 2")
    assert (alone["honest"], alone["epsilon"]) == (1, alone["epsilon_exact"])


def test_account_composes_several_cards_in_the_same_shares(tern, tmp_path):
    path = str(tmp_path / "c")
    tern("card", "design", "duchi", "--epsilon", "2", "-o", path)
    both = _account(tern, f"{path} duchi --epsilon 1 --rounds 4,20")
    assert [(one["what"], one["rounds"]) for one in both["cards"]] == [(path, 4), ("duchi", 20)]
    assert [row["rounds"] for row in both["rows"]] == [2, 3, 6, 12, 24]
    assert [row["pure"] for row in both["rows"]] == [3, 4, 7, 14, 28]
    apart = [
        _account(tern, words)["epsilon"]
        for words in (f"{path} --rounds 4", "duchi --epsilon 1 --rounds 20")
    ]
    assert max(apart) < both["epsilon"] < sum(apart)
    twice = _account(tern, f"{path} {path} --rounds 5")["rows"][-1]
    assert twice == _account(tern, f"{path} --rounds 10")["rows"][-1]
    once = _account(tern, f"{path} {path} --reports 100")
    assert (once["rounds"], once["rows"]) == (
        2,
        _account(tern, f"{path} --rounds 2 --reports 100")["rows"][1:],
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("duchi --epsilon 1 --rounds 0", "--rounds must be from 1 to 1,000,000, not 0"),
        (
            "duchi --epsilon 1 --rounds 1000001",
            "--rounds must be from 1 to 1,000,000, not 1,000,001",
        ),
        (
            "duchi --epsilon 1 --rounds many",
            "--rounds must be a whole number, or with several cards R,R,..., not",
        ),
        ("duchi --epsilon 1 --rounds 2,3", "--rounds has 2 numbers for 1 card\n"),
        ("duchi 3r duchi --epsilon 1 --rounds 2,3", "--rounds has 2 numbers for 3 cards\n"),
        ("--epsilon 1 --rounds 2,3", "--rounds has 2 numbers for 1 card\n"),
        ("duchi --epsilon 1 --values 129", "--values must be 1 to 128 over rounds, not 129"),
        ("duchi --epsilon 1 --honest .5", "--honest must be 1 without --reports, not 0.5"),
        (
            "duchi --epsilon 1 --reports 9 --honest nan",
            "--honest must be above 0 and at most 1, not nan",
        ),
        ("duchi --epsilon 1 --reports 0 --rounds 2", "--reports must be from 1"),
        ("duchi --epsilon 1 --rho 1", "--rho is about no card"),
        ("duchi pm", "duchi is a mechanism, which needs an epsilon"),
        ("a.card b.card --epsilon 1", "--epsilon would change nothing: every NAME is a card file"),
        (
            "projection --epsilon 1 --d 9 --values 2",
            "--values must be 1 with projection, which is about all values",
        ),
        ("duchi --epsilon 1 --delta 1e-310", "--delta must be 1e-300 or more, not 1e-310"),
        ("duchi --epsilon 1 --delta 1", "delta must be between 0 and 1, not 1"),
    ],
)
def test_an_account_over_rounds_that_makes_no_sense_is_refused(tern, words, says):
    assert says in tern("card", "account", "--delta", "1e-6", *words.split(), code=errors.USAGE).err


@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ("", {"exact": "exact", "zCDP": "zcdp", "pure": "pure"}),
        (
            "--reports 500",
            {BEHIND: "behind", "local exact": "exact", "local pure": "pure"},
        ),
    ],
)
def test_the_picture_of_rounds_shows_the_rows(tern, monkeypatch, words, drawn):
    shown = []
    monkeypatch.setattr(canvas, "save", lambda figure, path: shown.append(figure))
    result = _account(tern, f"duchi --epsilon 1 --rounds 15 {words} --plot a.png")
    ((axes,),) = (figure.axes for figure in shown)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {
        label: [[row["rounds"], row[key]] for row in result["rows"]] for label, key in drawn.items()
    }


@pytest.mark.usefixtures("here")
def test_a_picture_that_cannot_be_written_is_refused_before_the_work(tern, monkeypatch):
    monkeypatch.setattr(shuffling, "account", lambda *_: pytest.fail("it began"))
    words = "card account --reports 100 --delta 1e-6 --epsilon 1 --plot no/a.png"
    assert "a.png cannot be written" in tern(*words.split(), code=errors.STORAGE).err


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


@pytest.fixture
def certified(tern, tmp_path):
    """`certified(text, *more)`: the output, or the error, of `tern card certify` for a table."""

    def run(text, *more, name="t.csv", code=errors.OK):
        (tmp_path / name).write_text(text)
        printed = tern("card", "certify", str(tmp_path / name), *more, code=code)
        return printed.out or printed.err

    return run


VALUED = "x, -2, 2\n-1, 0.75, 1/4\n1, 0.25, 3/4\n"


def test_certify_takes_a_table_of_probabilities(certified):
    words = certified(VALUED)
    assert "it keeps epsilon 1.098613, ln of 3, the ratio of output -2 at inputs -1 and 1" in words
    assert "variance   at most 3 (at input -1)" in words
    certified(VALUED, "--epsilon", "1.098613")
    result = json.loads(certified(VALUED, "--epsilon", "1.098612", "--json", code=errors.FAILED))
    assert (result["certified"], result["ratio"], result["bias"]) == (False, "3/1", "0/1")
    whole = {"inputs": [-1, 1], "outputs": [-2, 2], "rows": [["0.75", 0.25], [0.25, "3/4"]]}
    for table in (whole, whole["rows"]):
        result = json.loads(certified(json.dumps(table), "--json", name="t.json"))
        assert result["epsilon_certified"] == 1.098613


def test_a_table_with_a_zero_keeps_no_epsilon_but_a_delta(certified):
    table = ";a;b;c\nyes;0.5;0.25;1/4\nno;1/2;1/2;0"
    words = certified(table, "--epsilon", "1", "--delta", code=errors.FAILED)
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
def test_a_table_that_is_none_is_refused_with_its_reason(certified, text, says):
    words = certified(text, code=errors.USAGE)
    assert says in words
    assert words.count("\n") == 2, "a remedy follows"


def test_a_table_of_more_than_epsilon_20_is_not_certified(certified):
    words = certified("0.9999999999,1e-10\n1e-10,0.9999999999", code=errors.FAILED)
    assert "NOT certified: it keeps no epsilon up to 20" in words


@pytest.mark.parametrize("place", ["no/a.card", "."])
@pytest.mark.usefixtures("here")
def test_a_card_that_cannot_be_written_is_a_storage_error_that_names_the_place(tern, place):
    refused = tern("card", "design", "duchi", "--epsilon", "1", "-o", place, code=errors.STORAGE)
    assert refused.err.startswith(f"tern: cannot write {place}: ")


def test_a_text_that_is_no_card_is_called_so(certified):
    words = certified("hello world", name="notes.txt", code=errors.FAILED)
    assert "it is not a card: it does not begin as one of version 1 does" in words
    refused = certified(
        "hello world", "--epsilon", "1", "--delta", name="notes.txt", code=errors.USAGE
    )
    assert "--delta needs a table" in refused


@pytest.mark.parametrize(
    ("epsilon", "most"), [("0.5", "62.3 %"), ("2", "88.1 %"), ("8", "more than 99.9 %")]
)
def test_show_says_what_an_epsilon_means_for_one_device(tern, epsilon, most):
    assert (
        f"{most} likely after its report" in tern("card", "show", "duchi", "--epsilon", epsilon).out
    )
    odds = math.exp(float(epsilon))
    result = tern("card", "show", "duchi", "--epsilon", epsilon, "--json").json
    assert odds / (1 + odds) <= result["posterior_from_half"] < odds / (1 + odds) + 0.001
