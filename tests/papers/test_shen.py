"""The figures of Shen et al. about means and models of PLDP-FL."""

import math

import numpy as np
import pytest

from ternhost.errors import UsageError
from ternhost.learn.models import fedavg
from ternhost.options import options_of
from ternhost.planning.statistics import pick
from ternpapers import experiments
from ternpapers.base import Options
from ternpapers.experiments import figures
from ternpapers.figure import NON_PRIVATE
from ternpapers.papers.shen import averaging, means, models, shares
from ternpapers.papers.shen.averaging import CHANGES, WEIGHTS, Averaging, accuracies
from ternpapers.safe_ranges import choice_of, in_turn

# Means


@pytest.mark.parametrize("mechanism", ["pdpm", "laplace", "duchi"])
def test_the_exact_error_of_a_mean_is_that_of_simulated_reports(mechanism):
    choices = in_turn("3", "2")
    of_clients = tuple(choice_of(client, choices) for client in range(means.CLIENTS))
    taus = np.array([tau for _, tau in of_clients])
    values = means.CENTRE + taus[:, None] * means.records()

    rng = np.random.default_rng(1)
    errors = []
    for _ in range(200):
        reports = averaging.perturbed(values, mechanism, of_clients, means.CENTRE, rng)
        errors.append(reports.mean() / values.mean() - 1)
    # The root mean square of 200 normal errors has a standard error of 1 / sqrt(400) = 5 %.
    simulated = float(np.sqrt(np.mean(np.square(errors))))
    assert means.relative_error(mechanism, choices) == pytest.approx(simulated, rel=0.15)


def squared_error_of_pdpm(epsilon, size):
    """The squared error of a report, by Algorithm 2, on average over a safe range of this size."""
    e = math.exp(epsilon)
    value = size * ((2 * np.arange(100) + 1) / 200 - 0.5)  # its distance from the centre
    high, low = size * (e + 3) / (2 * (e - 1)), -size * (e + 1) / (e - 1)
    of_high = value * (e - 1) / (size * (e + 2)) + (e + 1) / (2 * (e + 2))
    of_low = (1 - of_high) / 2
    return np.mean(of_high * high**2 + of_low * low**2 - value**2)


SIZES = {"1": (0.2, 0.4), "2": np.linspace(0.2, 2, 10), "3": (1.8, 2.0)}
EPSILONS = {"1": (0.1, 0.2), "2": np.linspace(0.1, 1, 10), "3": (0.9, 1.0)}


@pytest.mark.parametrize("mode", ["1", "2", "3"])
def test_the_figure_of_means_has_the_errors_of_algorithm_2_with_70_clients(mode):
    """By formulas of the paper alone. Each of the 70 clients reports 100 records around 1."""
    rows = experiments.run("shen", Options(), figure="2").tables["figure"]

    def drawn(panel, curve, x):
        (row,) = (
            row for row in pick(rows, panel=panel, curve=curve) if row["epsilon_or_size"] == x
        )
        return row["relative_error"]

    by_epsilon = [squared_error_of_pdpm(0.5, size) for size in SIZES[mode]]
    expected = math.sqrt(np.mean(by_epsilon) / (70 * 100))
    curve = f"safe ranges in mode {mode}"
    assert drawn("(a) by epsilon", curve, 0.5) == pytest.approx(expected)

    by_size = [squared_error_of_pdpm(epsilon, 1.2) for epsilon in EPSILONS[mode]]
    expected = math.sqrt(np.mean(by_size) / (70 * 100))
    curve = f"epsilon in mode {mode}"
    assert drawn("(b) by the size of the safe range", curve, 1.2) == pytest.approx(expected)


@pytest.mark.parametrize("options", [Options(runs=5), Options(data="digits")])
def test_the_figure_of_means_has_neither_runs_nor_data(options):
    with pytest.raises(UsageError):
        experiments.run("shen", options, figure="2")


# Training


def paper_s_settings(number):
    """How each curve of the paper's panels of a figure is trained, by panel and curve."""
    settings = [cell.arguments["setting"] for cell in models.FIGURES[number].cells(Options())]
    of_paper = {}
    for setting in settings:
        if "ours" not in setting.panel:
            of_paper[setting.panel, setting.curve] = setting.averaging
    return of_paper


@pytest.mark.parametrize(("number", "curves"), [("4", 6), ("5", 9), ("6", 3)])
def test_in_the_paper_s_panels_70_of_100_clients_report_weights(number, curves):
    settings = paper_s_settings(number)
    assert len(settings) == curves
    assert averaging.CLIENTS == 100
    for setting in settings.values():
        assert (setting.gamma, setting.reported) == (0.7, WEIGHTS)


def test_clients_of_figure_6_have_the_range_from_minus_1_to_1_and_epsilon_in_mode_2():
    for setting in paper_s_settings("6").values():
        epsilons, taus = zip(*setting.choices, strict=True)
        assert set(taus) == {1.0}
        assert epsilons == pytest.approx(EPSILONS["2"])


def test_figure_5_has_each_mode_of_epsilon_with_each_of_the_safe_ranges():
    for (panel, curve), setting in paper_s_settings("5").items():
        epsilons, taus = ({*column} for column in zip(*setting.choices, strict=True))
        assert sorted(epsilons) == pytest.approx(EPSILONS[panel[-1]])
        sizes = [2 * tau for tau in sorted(taus)]
        assert sizes == pytest.approx(SIZES[curve[-1]])


def test_the_help_of_fedavg_names_the_paper_s_share_and_epochs_where_its_own_differ():
    declared = {option.name: option for option in options_of(fedavg.Options)}
    share, epochs = declared["share"], declared["local_epochs"]
    assert share.default != Averaging.gamma
    assert epochs.default != averaging.EPOCHS
    assert f" {Averaging.gamma}" in share.shown
    assert f" {averaging.EPOCHS} " in epochs.help


def test_without_noise_a_client_can_as_well_report_changes_as_weights():
    """The server adds the mean change to the weights that all clients were sent."""
    by_round = {}
    for reported in (WEIGHTS, CHANGES):
        run = Averaging(None, in_turn("1", "1"), reported=reported)
        by_round[reported] = accuracies("iris", run, rounds=3, seed=1)
    assert by_round[WEIGHTS] == by_round[CHANGES]
    assert by_round[WEIGHTS][-1] > 0.8


def test_noise_of_weights_does_not_shrink_with_their_changes():
    """So later rounds improve a model whose clients report changes, within the same safe ranges."""
    of_last_rounds = {}
    for reported in (WEIGHTS, CHANGES):
        run = Averaging("pdpm", in_turn("2", "1"), reported=reported)
        of_last_rounds[reported] = np.mean(accuracies("digits", run, rounds=8, seed=1)[4:])
    assert of_last_rounds[CHANGES] > of_last_rounds[WEIGHTS] + 0.2


def test_training_on_a_client_follows_the_gradient_of_the_cross_entropy(monkeypatch):
    """One step on one batch moves the weights by the learning rate times the gradient."""
    monkeypatch.setattr(averaging, "EPOCHS", 1)
    rng = np.random.default_rng(1)
    features = rng.uniform(-1, 1, (1, averaging.BATCH, 3))
    labels = np.eye(2)[rng.integers(2, size=averaging.BATCH)].T[None]
    start = rng.normal(size=(2, 3))

    def loss(weights):
        """The mean cross entropy of the client's records."""
        scores = features[0] @ weights.T
        log_sums = np.log(np.exp(scores).sum(axis=1))
        return float((log_sums - (scores * labels[0].T).sum(axis=1)).mean())

    (trained,) = averaging.train_on_clients(start, features, labels)
    step = 1e-6
    for place in np.ndindex(2, 3):
        nudge = np.zeros((2, 3))
        nudge[place] = step
        slope = (loss(start + nudge) - loss(start - nudge)) / (2 * step)
        assert trained[place] - start[place] == pytest.approx(-averaging.RATE * slope, abs=1e-6)


def test_a_data_set_that_names_no_classes_is_refused():
    with pytest.raises(UsageError):
        experiments.run("shen", Options(data="synthetic-linear", runs=1), figure="5")


# Statements


def rows_by_round(accuracy_of):
    """Rows of Fig. 5 in three runs and two rounds, whose accuracies depend on the two modes."""
    rows = []
    for panel_mode in (1, 2, 3):
        for curve_mode in (1, 2, 3):
            for run in range(3):
                row = {
                    "panel": f"epsilon in mode {panel_mode}",
                    "curve": f"safe ranges in mode {curve_mode}",
                    "run": run,
                    "accuracy": accuracy_of(panel_mode, curve_mode) + run / 1e6,
                }
                rows += [{**row, "round": 1}, {**row, "round": 2}]
    return rows


@pytest.mark.parametrize(
    ("accuracy_of", "epsilons_matter", "ranges_matter"),
    [
        pytest.param(lambda epsilon, tau: epsilon / 9 - tau / 30, True, True, id="as in the paper"),
        pytest.param(lambda epsilon, tau: tau / 4 - epsilon / 30, False, False, id="the opposite"),
        pytest.param(lambda epsilon, tau: (epsilon + tau) / 9, True, False, id="large ranges"),
    ],
)
def test_larger_epsilons_and_smaller_ranges_are_told_apart(
    accuracy_of, epsilons_matter, ranges_matter
):
    verdicts = figures("shen")["5"].verdicts(rows_by_round(accuracy_of))
    assert [verdict.holds for verdict in verdicts.values()][:2] == [epsilons_matter, ranges_matter]


@pytest.mark.parametrize(("behind", "is_near"), [(0.01, True), (0.03, False)])
def test_mode_2_of_epsilon_is_near_mode_3_if_it_is_so_with_the_least_favourable_ranges(
    behind, is_near
):
    shortfalls = {(2, 2): 0.005, (2, 3): behind}
    rows = rows_by_round(lambda epsilon, tau: 0.9 - shortfalls.get((epsilon, tau), 0.0))
    _, _, is_near_here, *_ = figures("shen")["5"].verdicts(rows).values()
    assert is_near_here.holds is is_near


def rows_of_methods(accuracy_of_method):
    """Rows of Fig. 6 in three runs of one round."""
    rows = []
    for curve, accuracy in accuracy_of_method.items():
        for run in range(3):
            row = {"panel": models.OTHERS, "curve": curve, "run": run, "round": 1}
            rows.append({**row, "accuracy": accuracy + run / 1e6})
    return rows


@pytest.mark.parametrize(("accuracy_of_laplace", "is_best"), [(0.8, True), (0.96, False)])
def test_fedavg_must_be_better_than_both_methods_with_privacy(accuracy_of_laplace, is_best):
    of_methods = {"PLDP-FL": 0.9, "PLU-FedOA": accuracy_of_laplace, NON_PRIVATE: 0.95}
    _, _, is_best_here, *_ = figures("shen")["6"].verdicts(rows_of_methods(of_methods)).values()
    assert is_best_here.holds is is_best


def rows_by_share(accuracies_by_share):
    """Rows of Fig. 3 in three runs, with bytes that grow like the share."""
    rows = []
    for gamma, accuracy in accuracies_by_share.items():
        row = {"curve": "pdpm", "gamma": gamma}
        rows.append({"panel": shares.BYTES, **row, "run": 0, "value": 1000 * gamma})
        for run in range(3):
            rows.append({"panel": shares.AT_THE_END, **row, "run": run, "value": accuracy})
    return rows


@pytest.mark.parametrize(("accuracy_of_all_clients", "is_little"), [(0.81, True), (0.85, False)])
def test_beyond_a_share_of_0_7_little_is_gained_if_it_is_less_than_a_tenth_of_the_gain_before(
    accuracy_of_all_clients, is_little
):
    by_share = {0.1: 0.5, 0.3: 0.6, 0.5: 0.7, 0.7: 0.8, 1.0: accuracy_of_all_clients}
    *_, verdict = figures("shen")["3"].verdicts(rows_by_share(by_share)).values()
    assert verdict.holds is is_little
