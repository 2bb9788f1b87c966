"""What a report of a run may cost, and what its result is called."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ternhost import datasets, mechanisms
from ternhost.algorithms import judging
from ternhost.algorithms.base import Audience, ReportDesign
from ternhost.algorithms.fedsgd import FedSGD, Options
from ternhost.errors import UsageError
from ternhost.mechanisms import certify
from ternhost.runs.options import Where
from ternhost.runs.run import Run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def design_report(options: Options) -> ReportDesign:
    """The report that FedSGD designs for the flights, of 28 coordinates."""
    return FedSGD(options, Audience()).designs[0]


def test_a_card_never_costs_more_than_was_asked() -> None:
    card = mechanisms.design("three-outputs", "1").card.hex()
    assert design_report(Options(card=card, epsilon="2", k=2)).cost == 2_000_000
    for epsilon, k in (("0.999999", 1), ("2", 3)):
        with pytest.raises(UsageError, match="more than the"):
            design_report(Options(card=card, epsilon=epsilon, k=k))


def test_a_hierarchy_is_for_other_commands() -> None:
    card = mechanisms.design("lhp", "2").card.hex()
    for options in (Options(card=card), Options(mechanism="lhp")):
        with pytest.raises(UsageError, match="a level and a sign") as refused:
            design_report(options)
        assert "--algorithm hiera" in str(refused.value.hint)


def test_a_share_below_a_millionth_is_refused() -> None:
    with pytest.raises(UsageError, match="below a millionth"):
        design_report(Options(epsilon="0.000001", k=3))


def test_a_regression_is_judged_beside_the_mean_label() -> None:
    options = Options(dataset="diabetes", model="linear", reports=40, group=20)
    with Run.begin("fedsgd", options, Where(fleet="simulated:40")) as going:
        result = going.run()
    assert (result["task"], result["measure"]) == (datasets.REGRESSION, "squared_error")
    assert result["squared_error_baseline"] == judging.baseline(datasets.load("diabetes"))
    assert result["squared_error_baseline"] < 0.6 < judging.majority(datasets.load("diabetes"))
    assert not [name for name in result if "accuracy" in name]


def test_a_group_is_no_larger_than_the_run() -> None:
    assert Options().group == 500
    assert Options(reports=100).group == 100
    assert Options(reports=100, group=20).group == 20


def test_round_numbers_are_checked_before_boards_are_made(tmp_path: Path) -> None:
    for number in (0, -1, 2**30):
        with pytest.raises(UsageError, match="--first-round must be 1 to 1073741823"):
            Where(first_round=number)
    options = Options(reports=100, group=20)
    where = Where(fleet="emulated:1", first_round=2**30 - 4)
    with pytest.raises(UsageError, match="would go beyond"):
        Run.begin("fedsgd", options, where)
    assert list(tmp_path.iterdir()) == []
    with Run.begin("fedsgd", options, replace(where, fleet="simulated:100", first_round=2**30 - 5)):
        pass


def test_a_result_says_how_sure_it_is() -> None:
    for dataset, model, name in (
        ("diabetes", "linear", "squared_error"),
        ("breast-cancer", "logistic", "accuracy"),
    ):
        options = Options(dataset=dataset, model=model, reports=300)
        with Run.begin("fedsgd", options, Where(fleet="simulated:300")) as going:
            result = going.run()
        low, high = result[f"{name}_interval"]
        assert low < result[name] < high
        last = result["last_gradient"]
        assert sum(last["reports"]) == 300
        for low, mean, high, n in zip(
            *(last[key] for key in ("low", "mean", "high", "reports")), strict=True
        ):
            assert (low < mean < high) if n else mean is None


@pytest.mark.parametrize("mechanism", ["optimal", "auto"])
def test_an_optimal_card_for_training_is_one_for_gradients(mechanism: str) -> None:
    report = design_report(Options(mechanism=mechanism, epsilon="2", levels=4))
    gradients = mechanisms.design("optimal", 2, 4, objective="mean-second-moment", prior="small")
    assert report.card.data == gradients.card
    worst = mechanisms.design("optimal", 2, 4).decode()
    assert report.variance < float(certify.moments(worst).variance(Fraction(0)))
