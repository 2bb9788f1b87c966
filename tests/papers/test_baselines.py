"""The papers' mechanisms and learner in floats have the means, variances and gradients that they should."""

import itertools
import math

import numpy as np
import pytest
from designing import worst

from tern.fixed import ONE
from ternhost import datasets
from ternhost.learn import judging
from ternhost.learn.designs import coordinates_by_rule
from ternhost.privacy import mechanisms
from ternhost.privacy.mechanisms import piecewise
from ternhost.vectorised import gradients
from ternpapers import baseline, comparison, discretisation, perturbing

# SCDF and Staircase by equation 2 of Wang et al.: m, and the density within m of 0, from epsilon
# and e^-epsilon. The density falls by e^-epsilon at m and at each step of 2 beyond it.
STEPS = {
    "scdf": lambda epsilon, e: (2 * (1 - e - epsilon * e) / (epsilon * (1 - e)), epsilon / 4),
    "staircase": lambda epsilon, e: (
        (m := 2 / (1 + math.exp(epsilon / 2))),
        (1 - e) / (2 * m + 4 * e - 2 * m * e),
    ),
}


@pytest.mark.parametrize("name", [name for name in perturbing.MECHANISMS if name not in STEPS])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_float_mechanisms_have_the_papers_mean_and_variance(name, epsilon):
    law = mechanisms.REGISTRY.named(name).variance
    assert law is not None
    n, rng = 200_000, baseline.generator(3)
    for x in (-0.8, 0.0, 0.3, 1.0):
        outputs = perturbing.MECHANISMS[name](epsilon)(np.full(n, x), rng)
        assert abs(outputs.mean() - x) < 5 * (law(epsilon, x) / n) ** 0.5
        assert outputs.var() == pytest.approx(law(epsilon, x), rel=0.03)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_noise_of_steps_has_the_mean_and_the_variance_of_its_density(name, epsilon):
    m, height = STEPS[name](epsilon, math.exp(-epsilon))
    width = 2e-4
    y = np.arange(width / 2, 2 + 80 / epsilon, width)  # of one side
    density = height * np.exp(-epsilon * np.maximum(0, np.ceil((y - m) / 2)))
    assert 2 * width * density.sum() == pytest.approx(1, rel=1e-3)
    variance_of_density = 2 * width * (y * y * density).sum()
    n, rng = 200_000, baseline.generator(3)
    for x in (-0.8, 0.0, 1.0):
        outputs = perturbing.MECHANISMS[name](epsilon)(np.full(n, x), rng)
        assert abs(outputs.mean() - x) < 5 * (variance_of_density / n) ** 0.5
        assert outputs.var() == pytest.approx(variance_of_density, rel=0.03)
        assert np.mean(np.abs(outputs - x) < m) == pytest.approx(2 * m * height, abs=0.006)


@pytest.mark.parametrize("model", ["linear", "logistic", "svm"])
def test_float_gradients_agree_with_the_gradients_of_devices(model):
    data = datasets.load("diabetes" if model == "linear" else "breast-cancer")
    d = data.dimension
    weights = np.random.default_rng(4).normal(0, 0.3, d)
    x, y = data.features[:200] / ONE, data.labels[:200] / ONE
    chosen, components = baseline.gradients(model, x, y, weights, 3, np.random.default_rng(5))
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    mantissas = np.rint(weights * 2**12).astype(np.int64)
    number = {"linear": 1, "logistic": 2, "svm": 3}[model]
    exact = gradients(number, mantissas, -12, data.records(np.arange(200)))
    assert np.abs(np.take_along_axis(exact, chosen, axis=1) / ONE - components).max() < 2e-3
    everything = baseline.mean_of(np.tile(np.arange(d), (200, 1)), exact / ONE, (200, d))
    assert everything == pytest.approx((exact / ONE).mean(axis=0))


def test_the_float_learner_learns_and_k_follows_the_paper_s_rule():
    data = datasets.load("synthetic-logistic")
    losses = []
    for reports in (1000, 50_000):
        run = baseline.Training("logistic", 4.0, reports, 1.0, decays=True)
        weights = baseline.train(run, data, perturbing.MECHANISMS["pm-sub"], 1)
        assert (weights == baseline.train(run, data, perturbing.MECHANISMS["pm-sub"], 1)).all()
        losses.append(judging.figures(data, 2, weights)["log_loss"])
    assert losses[1] < 0.45 < losses[0]
    ks = [
        coordinates_by_rule("paper", round(epsilon * 1e6), 16)
        for epsilon in (0.5, 4.9, 5.0, 8.0, 60.0)
    ]
    assert ks == [1, 1, 2, 3, 16]


def test_the_baseline_and_synthetic_records_have_different_draws():
    assert baseline.generator(1).random() != np.random.default_rng(1).random()


def test_hm_tp_has_larger_errors_than_pm_sub_where_values_are_about_0():
    """By the exact laws: claim VIII-A of Zhao et al. is not so."""
    x = comparison._numbers("Gaussian, mean 0", 100_000)[::50]
    errors = []
    for name in ("pm-sub", "hm-tp"):
        law = np.vectorize(mechanisms.REGISTRY.named(name).variance)
        errors.append(float(np.mean(16 * (law(1.0, x) + x * x) - x * x)) / 100_000)
    assert errors == pytest.approx([6.13e-4, 6.87e-4], rel=2e-3)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_duchi_s_tuples_are_unbiased_and_keep_epsilon_by_enumeration(d, epsilon):
    bound, e = perturbing.tuple_bound(epsilon, d), math.exp(epsilon)
    signs = np.array(list(itertools.product((-1, 1), repeat=d)))
    products = signs @ signs.T  # of v and an output
    agreeing = (products >= 0).sum(axis=1)[0]
    likely = e / ((e - 1) * agreeing + 2**d)
    of_v = np.where(products >= 0, likely, likely / e)
    assert of_v.sum(axis=1) == pytest.approx(1)
    x = np.linspace(-0.9, 0.7, d)
    of_x = np.prod(0.5 + signs * x / 2, axis=1)
    assert bound * (of_x @ of_v) @ signs == pytest.approx(x)
    reports = perturbing.duchi_tuples(np.tile(x, (200_000, 1)), epsilon, baseline.generator(1))
    assert np.ptp(np.abs(reports)) == 0
    assert np.abs(reports.mean(axis=0) - x).max() < 5 * bound / 200_000**0.5


@pytest.mark.parametrize(("d", "told"), [(3, 1.0), (4, math.log(1 + math.e))])
def test_duchi_s_tuples_as_printed_tell_more_where_d_is_even(d, told):
    signs = np.array(list(itertools.product((-1, 1), repeat=d)))
    sides = [signs @ signs.T >= 0, signs @ signs.T <= 0]
    of_v = sum(
        share * side / side.sum(axis=1, keepdims=True)
        for share, side in zip((math.e, 1), sides, strict=True)
    )
    assert math.log(of_v.max() / of_v.min()) == pytest.approx(told)


@pytest.mark.parametrize(
    "name", ["laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "hm-tp"]
)
def test_reports_of_tuples_are_unbiased(name):
    x = np.tile(np.linspace(-1, 1, 6), (100_000, 1))
    reports = comparison.reported(x, name, 5.0, baseline.generator(2))
    errors = reports.std(axis=0) / len(x) ** 0.5
    assert (np.abs(reports.mean(axis=0) - x[0]) < 5 * errors).all()


@pytest.mark.parametrize("name", perturbing.WINDOWED)
@pytest.mark.parametrize("outputs", [3, 2001])
def test_discrete_outputs_are_unbiased_and_within_the_range(name, outputs):
    bound = perturbing.largest_output(name, 2.0)
    perturb = perturbing.rounded(perturbing.MECHANISMS[name](2.0), bound, outputs)
    for x in (-1.0, 0.3, 1.0):
        reports = perturb(np.full(200_000, x), baseline.generator(3))
        assert np.abs(reports).max() <= bound * (1 + 1e-12)
        assert len(np.unique(reports.round(9))) <= outputs
        assert abs(reports.mean() - x) < 5 * reports.std() / 200_000**0.5


def test_pdpm_has_a_range_about_any_centre():
    perturb = perturbing.ranged(perturbing.MECHANISMS["pdpm"](1.0), centre=0.7, radius=0.2)
    for x, told in (
        (0.5, 0.5),
        (0.65, 0.65),
        (0.9, 0.9),
        (2.0, 0.9),
    ):  # beyond the range it is clipped
        reports = perturb(np.full(300_000, x), baseline.generator(4))
        assert abs(reports.mean() - told) < 5 * reports.std() / 300_000**0.5
        assert len(np.unique(reports)) == 3


@pytest.mark.parametrize(("epsilon", "m", "x"), [(1.0, 1, 0.6), (2.0, 3, -0.25), (4.0, 7, 1.0)])
def test_the_variance_of_algorithm_5_is_that_of_its_law(epsilon, m, x):
    """The continuous mechanism's density and the rounding of its outputs, summed over a fine grid."""
    e, t = math.exp(epsilon), piecewise.t_sub(epsilon)
    bound = perturbing.piecewise_bound(epsilon, t)
    half, middle = bound / (t + 1), x * bound * t / (t + 1)
    y = ((np.arange(200_000) + 0.5) / 100_000 - 1) * bound
    density = np.where(np.abs(y - middle) < half, e / half, t / (bound - half)) / (2 * (t + e))
    f = y * m / bound % 1
    step = bound / m
    low = y - f * step
    p = density / density.sum()
    assert p @ y == pytest.approx(x, abs=1e-4)
    assert p @ y**2 - x * x == pytest.approx(piecewise.variance(epsilon, t, x), rel=1e-3)
    variance = p @ ((1 - f) * low**2 + f * (low + step) ** 2) - x * x
    assert variance == pytest.approx(
        discretisation.discretised_variance(epsilon, t, m, x), rel=1e-3
    )


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("m", [1, 3, 7])
def test_a_window_card_has_less_variance_than_algorithm_5_with_as_many_levels(epsilon, m):
    t = piecewise.t_sub(epsilon)
    paper = max(
        discretisation.discretised_variance(epsilon, t, m, x) for x in np.linspace(0, 1, 101)
    )
    assert worst("pm-sub", epsilon, 2 * m + 1, window="best") < paper
