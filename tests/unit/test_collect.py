"""`tern collect` on simulated fleets: what is asked, what it costs, and what comes of it."""

import json

import numpy as np
import pytest

from tern import card as cards
from tern import wire
from ternhost.algorithms import levels as hiera
from ternhost.cli import main
from ternhost.errors import UsageError
from ternhost.runs import collection_run
from ternhost.runs.collection_run import Options

EXTRACT = "AGE,HRSWORK1,SEX,MARST,REGION\n" + "".join(
    f"{20 + i % 60},{(7 * i) % 90},{1 + i % 2},{1 + i % 4 // 2},{i % 5 // 2}\n" for i in range(600)
)


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(EXTRACT)
    return f"ipums:{path}"


def run(tmp_path, **options):
    return collection_run.begin(Options(**options), tmp_path / "store.sqlite")


def test_a_question_for_numbers_and_one_for_each_size_of_domain(people):
    options = Options(dataset=people, epsilon="10")
    parts = collection_run.plan(options, collection_run.load(people))
    assert [part.columns for part in parts] == [(0, 1), (2, 3), (4,)]
    assert [part.card.symbols for part in parts] == [3, 2, 3]
    assert [part.categories for part in parts] == [False, True, True]
    # the budget is split by the number of attributes: 4, 4 and 2 of 10
    assert [part.cost for part in parts] == [pytest.approx(share, rel=1e-3) for share in (4e6, 4e6, 2e6)]
    assert sum(part.cost for part in parts) <= 10_000_000
    question = parts[1].question(5)
    assert (question.model, list(question.parameters)) == (wire.CATEGORIES, [0, 0, 1, 1, 0])
    assert parts[0].question(5).model == wire.VALUES


def test_numbers_and_categories_together(tmp_path, people):
    result = run(tmp_path, dataset=people, epsilon="20", fleet="simulated:200000")
    assert result["clients"] == 200_000
    assert result["epsilon_per_client"] <= 20
    assert [part["reports"] for part in result["parts"]] == [200_000] * 3
    by_name = {entry["name"]: entry for entry in result["attributes"]}
    for name in ("AGE", "HRSWORK1"):
        low, high = by_name[name]["interval"]
        assert low - 0.01 < by_name[name]["true"] < high + 0.01
        assert high - low < 0.05
    for name in ("SEX", "MARST", "REGION"):
        entry = by_name[name]
        assert np.abs(np.subtract(entry["frequencies"], entry["true"])).max() < 0.01
        assert sum(entry["frequencies"]) == pytest.approx(1)
    assert by_name["SEX"]["categories"] == ["1", "2"]
    assert json.loads((tmp_path / "result.json").read_text()) == result


def test_a_data_set_without_a_table_gives_its_features(tmp_path):
    result = run(
        tmp_path, dataset="iris", epsilon="8", fleet="simulated:50000", mechanism="pm-sub", levels=15
    )
    assert len(result["attributes"]) == 4  # not the constant
    assert result["mean_squared_error"] < 1e-3
    (part,) = result["parts"]
    assert (part["d"], part["k"]) == (4, 3)


def test_hiera_shows_the_true_loss_beside_the_stated_one(tmp_path):
    result = run(tmp_path, dataset="iris", method="hiera", epsilon="8", fleet="simulated:50000", mu=0.2)
    assert result["epsilon_per_client"] == pytest.approx(8, abs=1e-3)
    assert result["epsilon_per_client"] <= 8
    assert result["epsilon_stated"] < 5
    assert result["mean_squared_error"] < 0.01
    (part,) = result["parts"]
    card = cards.decode(bytes.fromhex(part["card"]))
    assert (card.shape, card.symbols, part["k"]) == (cards.HIERARCHY, 10, 1)
    assert cards.certify(card)
    assert not cards.certify(card, card.epsilon - 200)


def test_levels_of_an_epsilon():
    of = hiera.design(4_000_000, (3, 1))
    assert 3_999_000 < of.epsilon <= 4_000_000
    assert of.budgets[0] == pytest.approx(3 * of.budgets[1], rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "no method"),
        ({"mu": 1.5}, "mu"),
        ({"epsilon": "0"}, "epsilon"),
        ({"k_rule": "own"}, "no rule"),
        ({"quorum": 2.0}, "quorum"),
        ({"fleet": "nowhere"}, "no fleet"),
        ({"clients": -1}, "0 or more"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(UsageError, match=message):
        Options(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset": "wine", "clients": 10_000}, "there are 178"),
        ({"dataset": "wine", "clients": 3, "fleet": "emulated:4"}, "without one"),
        ({"dataset": "wine", "k": 14}, "cannot be reported"),
        ({"dataset": "wine", "method": "hiera", "budgets": "x"}, "no budgets"),
        ({"dataset": "wine", "method": "hiera", "budgets": "1"}, "positive budgets"),
        ({"dataset": "nothing"}, "no data set"),
        ({"dataset": "wine", "mechanism": "lhp"}, "a level and a sign"),
    ],
)
def test_runs_that_cannot_be(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        run(tmp_path, **options)


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["collect", "--dataset", "iris", "--fleet", "simulated:5000", "--epsilon", "4"]) == 0
    out = capsys.readouterr().out
    assert "95 % interval" in out
    assert "mean squared error" in out
    assert (
        main(["collect", "--dataset", "iris", "--method", "hiera", "--fleet", "simulated:100", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["method"] == "hiera"
    assert main(["collect", "--mu", "0.5"]) == 2
    assert "--mu belongs to hiera" in capsys.readouterr().err
    assert main(["collect", "--resume", "x", "--k", "1"]) == 2
    assert "keeps its options" in capsys.readouterr().err
