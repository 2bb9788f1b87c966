"""What a report of a run may cost, and what its result is called."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ternhost import datasets, mechanisms
from ternhost.algorithms import training
from ternhost.errors import UsageError
from ternhost.mechanisms import certify
from ternhost.runs.session import Options, Session, design_report


def test_a_card_never_costs_more_than_was_asked() -> None:
    card = mechanisms.design("three-outputs", "1").card.hex()
    assert design_report(Options(card=card, epsilon="2", k=2), 28).epsilon == 2_000_000
    for epsilon, k in (("0.999999", 1), ("2", 3)):
        with pytest.raises(UsageError, match="more than the"):
            design_report(Options(card=card, epsilon=epsilon, k=k), 28)


def test_a_hierarchy_is_for_other_commands() -> None:
    card = mechanisms.design("lhp", "2").card.hex()
    for options in (Options(card=card), Options(mechanism="lhp")):
        with pytest.raises(UsageError, match="a level and a sign") as refused:
            design_report(options, 28)
        assert "--algorithm hiera" in str(refused.value.hint)


def test_a_share_below_a_millionth_is_refused() -> None:
    with pytest.raises(UsageError, match="below a millionth"):
        design_report(Options(epsilon="0.000001", k=3), 28)


def test_a_regression_is_judged_beside_the_mean_label(tmp_path: Path) -> None:
    options = Options(dataset="diabetes", model="linear", fleet="simulated:40", reports=40, group=20)
    with Session.begin(options, tmp_path / "store.sqlite") as session:
        result = session.run()
    assert result["task"] == datasets.REGRESSION
    assert result["accuracy_baseline"] == training.baseline(datasets.load("diabetes"))
    assert result["accuracy_baseline"] < 0.6 < training.majority(datasets.load("diabetes"))


def test_a_group_is_no_larger_than_the_run() -> None:
    assert Options().group == 500
    assert Options(reports=100).group == 100
    assert Options(reports=100, group=20).group == 20


def test_round_numbers_are_checked_before_boards_are_made(tmp_path: Path) -> None:
    for number in (0, -1, 2**30):
        with pytest.raises(UsageError, match="cannot have the number"):
            Options(first_round=number)
    options = Options(fleet="emulated:1", reports=100, group=20, first_round=2**30 - 4)
    with pytest.raises(UsageError, match="would go beyond"):
        Session.begin(options, tmp_path / "store.sqlite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.sqlite", "store.sqlite-lock"]
    with Session.begin(replace(options, fleet="simulated:100", first_round=2**30 - 5), tmp_path / "b"):
        pass


def test_a_result_says_how_sure_it_is(tmp_path: Path) -> None:
    for dataset, model in (("diabetes", "linear"), ("breast-cancer", "logistic")):
        options = Options(dataset=dataset, model=model, fleet="simulated:300", reports=300)
        with Session.begin(options, tmp_path / dataset) as session:
            result = session.run()
        low, high = result["accuracy_interval"]
        assert low < result["accuracy"] < high
        last = result["last_gradient"]
        assert sum(last["reports"]) == 300
        for low, mean, high, n in zip(
            *(last[key] for key in ("low", "mean", "high", "reports")), strict=True
        ):
            assert (low < mean < high) if n else mean is None


@pytest.mark.parametrize("mechanism", ["optimal", "auto"])
def test_an_optimal_card_for_training_is_one_for_gradients(mechanism: str) -> None:
    report = design_report(Options(mechanism=mechanism, epsilon="2", levels=4), 28)
    gradients = mechanisms.design("optimal", 2, 4, objective="mean-second-moment", prior="small")
    assert report.card.data == gradients.card
    worst = mechanisms.design("optimal", 2, 4).decode()
    assert report.variance < float(certify.moments(worst).variance(Fraction(0)))
