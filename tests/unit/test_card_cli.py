"""`tern card`: its JSON for scripts, its text and pictures for people, and its refusals."""

import json
import math
import resource
import subprocess
import sys

import pytest

from tern import card as cards
from ternhost import errors
from ternhost.cli import main
from ternhost.privacy.mechanisms import parse_epsilon

# Design and show


def test_design_prints_the_figures_of_the_card_that_it_writes(tern, tmp_path):
    """A card is the table from which devices draw their reports. The command prints the exact
    figures of the file that it has written.
    """
    path = tmp_path / "three.card"
    words = f"card design three-outputs --epsilon 2 --output {path} --json"
    result = tern(*words.split()).json
    data = path.read_bytes()
    assert result["bias"] == 0
    assert result["epsilon_certified"] <= result["epsilon"] == 2
    assert (result["card_bytes"], result["card_hash"]) == (len(data), cards.card_hash(data).hex())
    numerator, denominator = result["scale"].split("/")
    assert int(numerator) / int(denominator) == pytest.approx(1.46955, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "micro"),
    [("0.3", 300_000), ("2.0000019", 2_000_001), ("1e-1", 100_000), (" 1 ", 1_000_000)],
)
def test_epsilon_is_exact_in_decimal_and_rounded_down_to_millionths(text, micro):
    assert parse_epsilon(text) == micro


@pytest.mark.parametrize(
    ("epsilon", "believed"), [("0.5", "62.3 %"), ("2", "88.1 %"), ("8", "more than 99.9 %")]
)
def test_show_says_what_an_epsilon_means_for_one_device(tern, epsilon, believed):
    words = ("card", "show", f"duchi:{epsilon}")
    assert f"{believed} likely after its report" in tern(*words).out
    odds = math.exp(float(epsilon))
    posterior = tern(*words, "--json").json["posterior_from_half"]
    assert odds / (1 + odds) <= posterior < odds / (1 + odds) + 0.001  # rounded up


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("duchi", "duchi:2"),  # without an epsilon
        ("nonsense", "tern card list"),
        ("nonsense:2", "three-outputs"),
        ("duchi:x", "--epsilon 1.5"),
    ],
)
def test_a_card_that_is_neither_a_file_nor_a_mechanism_is_refused(tern, here, name, hint):
    for verb in ("show", "certify", "account"):
        assert hint in tern("card", verb, name, code=errors.USAGE).err


def test_a_file_comes_before_the_mechanism_of_the_same_name(tern, here):
    tern("card", "design", "duchi", "--epsilon", "1", "--output", "duchi:2")
    assert tern("card", "show", "duchi:2", "--json").json["epsilon_certified"] == 1


def test_the_page_of_a_mechanism_shows_its_options_alone(capsys):
    with pytest.raises(SystemExit):
        main(["card", "design", "laplace", "--help"])
    page = capsys.readouterr().out
    assert "--grid" in page
    assert "--window" not in page


def test_options_of_every_design_may_stand_before_the_mechanism(tern):
    assert tern("card", "design", "--epsilon", "1", "duchi", "--json").json["epsilon"] == 1


def test_a_design_without_an_epsilon_is_refused(tern):
    assert "--epsilon" in tern("card", "design", "duchi", code=errors.USAGE).err


# Files that cannot be written


@pytest.mark.slow
def test_a_full_disk_leaves_no_part_of_a_card_and_keeps_the_file_before(here):
    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (128, 128))  # a card of 3r is longer

    (here / "my.card").write_bytes(b"before")
    words = ["card", "design", "3r", "--output", "my.card", "--epsilon", "1"]
    ended = subprocess.run(
        [sys.executable, "-m", "ternhost", *words], capture_output=True, preexec_fn=limit_files
    )

    assert ended.returncode != errors.OK
    assert list(here.iterdir()) == [here / "my.card"]
    assert (here / "my.card").read_bytes() == b"before"


# Certify a card


@pytest.fixture
def duchi_card(tern, tmp_path):
    """The file of a card of epsilon 1.5."""
    path = tmp_path / "duchi.card"
    tern("card", "design", "duchi", "--epsilon", "1.5", "--output", str(path))
    return path


def certify(tern, path, epsilon, code=errors.OK):
    return tern("card", "certify", str(path), "--epsilon", epsilon, "--json", code=code)


def test_certify_accepts_the_epsilon_of_a_card_and_no_smaller_one(tern, duchi_card):
    accepted = certify(tern, duchi_card, "1.5").json
    assert (accepted["certified"], accepted["epsilon_certified"]) == (True, 1.5)
    refused = certify(tern, duchi_card, "1.499999", errors.FAILED).json
    assert (refused["certified"], refused["epsilon_certified"]) == (False, 1.5)


def test_certify_refuses_a_file_that_is_no_card(tern, tmp_path):
    path = tmp_path / "none.card"
    path.write_bytes(b"not a card at all")
    refused = certify(tern, path, "1", errors.FAILED).json
    assert (refused["certified"], refused["epsilon_certified"]) == (False, None)


# Certify a table of probabilities


@pytest.fixture
def certified(tern, tmp_path):
    """`certified(text, *more)`: the output, or the error, of `tern card certify` for a table."""

    def run(text, *more, name="table.csv", code=errors.OK):
        (tmp_path / name).write_text(text)
        printed = tern("card", "certify", str(tmp_path / name), *more, code=code)
        return printed.out or printed.err

    return run


TABLE = "x, -2, 2\n-1, 0.75, 1/4\n1, 0.25, 3/4\n"


def test_certify_takes_a_table_of_probabilities(certified):
    certified(TABLE, "--epsilon", "1.098613")  # ln 3, rounded up
    refused = certified(TABLE, "--epsilon", "1.098612", "--json", code=errors.FAILED)
    assert json.loads(refused)["certified"] is False


def test_a_table_with_a_zero_keeps_no_epsilon_but_a_delta(certified):
    table = ";a;b;c\nyes;0.5;0.25;1/4\nno;1/2;1/2;0"
    words = certified(table, "--epsilon", "1", code=errors.FAILED)
    assert "delta      1/4 = 0.25 at epsilon 1.0" in words


def test_a_table_with_decimal_commas_is_taken_exactly(certified):
    tiny = "0,00000000000000000000000000001"
    rest = "0,99999999999999999999999999999"
    result = json.loads(
        certified(f";a;b\nyes;0,5;0,5\nno;{tiny};{rest}\n", "--epsilon", "1", "--json", code=1)
    )
    assert result["ratio"] == "50000000000000000000000000000/1"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("0.333,0.333,0.333\n1/3,1/3,1/3", "input 1 sum to 999/1000"),
        ("1.5,-0.5\n0.5,0.5", "the probability -1/2"),
        ("0.5,0.5", "two rows or more, all of one length"),
        ("0.5,0.5\n1", "line 2"),
        ("0.5,1/0\n0.5,0.5", "'1/0' is not a probability"),
        ("0.5,1e999999999\n0.5,0.5", "'1e999999999' is not a probability"),
        (",a,a\nx,0.5,0.5\ny,0.5,0.5", "their names are a, a"),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_reason(certified, table, reason):
    assert reason in certified(table, code=errors.USAGE)


# Account for many reports

BOUNDS = ("pure", "zcdp", "exact")


@pytest.fixture
def account(tern):
    """`account(words)`: the result of `tern card account` at delta 1e-6."""

    def run(words):
        return tern("card", "account", *words.split(), "--delta", "1e-6", "--json").json

    return run


def test_account_composes_the_losses_of_many_reports(account):
    """`tern card account` shows what 1 to 1000 reports tell together, by three bounds. Each grows
    with the reports. The exact one (19.2) is far below the sum of the epsilons, 100, and a little
    below the one by zero-concentrated privacy.
    """
    result = account("three-outputs:.1 --rounds 1000")
    assert result["epsilon_pure"] == pytest.approx(100)
    assert 19 < result["epsilon_exact"] == result["epsilon"] < 19.4 < result["epsilon_zcdp"] < 21.6
    rows = result["rows"]
    assert [row["rounds"] for row in rows] == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    for bound in BOUNDS:
        losses = [row[bound] for row in rows]
        assert losses == sorted(set(losses))
        assert losses[-1] == result[f"epsilon_{bound}"]


def test_an_account_has_the_true_epsilon_of_a_card_that_claims_less(account, duchi_card):
    data = duchi_card.read_bytes()
    claims_one = data[:1] + (1_000_000).to_bytes(4, "little") + data[5:]
    duchi_card.write_bytes(claims_one)
    assert account(f"{duchi_card} --rounds 2")["epsilon_pure"] == 2 * 1.5


def test_account_composes_rounds_behind_an_intermediary(account):
    four = account("duchi:1 --shuffled 300 --rounds 4")
    behind = [row["behind"] for row in four["rows"]]
    assert behind == sorted(set(behind))
    assert four["epsilon_central"] == behind[-1] < 3 * behind[0] < four["epsilon_exact"] < 4


def test_account_composes_several_cards_in_the_same_shares(account, duchi_card):
    both = account(f"{duchi_card} duchi:1 --rounds 4,20")
    # 4 and 20 rounds, and as near as whole rounds come to 1/2, 1/4, 1/8 and 1/12 of both.
    assert [row["rounds"] for row in both["rows"]] == [2, 3, 6, 12, 24]
    assert both["rows"][-1]["pure"] == 4 * 1.5 + 20 * 1  # the card in the file is of 1.5
    of_first = account(f"{duchi_card} --rounds 4")["epsilon"]
    of_second = account("duchi:1 --rounds 20")["epsilon"]
    assert max(of_first, of_second) < both["epsilon"] < of_first + of_second


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("duchi:1 --rounds 0", "--rounds"),
        ("duchi:1 3r:1 duchi:1 --rounds 2,3", "--rounds has 2 numbers for 3 cards"),
        ("duchi:1 --shuffled 9 --unit record", "--unit"),
        ("duchi:1 --records 9", "--records"),
        ("projection:1 --k 2", "--k"),
        ("duchi:1 --delta 1", "delta"),
    ],
)
def test_an_account_that_makes_no_sense_is_refused(tern, words, option):
    refused = tern("card", "account", "--delta", "1e-6", *words.split(), code=errors.USAGE)
    assert option in refused.err
