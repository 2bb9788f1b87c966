"""The papers' mechanisms and learner in floats have the means, variances and gradients that they should."""

import itertools
import math

import numpy as np
import pytest
from designing import worst

from tern.fixed import ONE
from ternhost import datasets
from ternhost.privacy import mechanisms
from ternhost.privacy.mechanisms import piecewise
from ternhost.vectorised import ModelParameters, gradients
from ternpapers import baseline, laws, perturbing
from ternpapers.comparison.reports import reported
from ternpapers.piecewise_law import PiecewiseLaw

# SCDF and Staircase by equation 2 of Wang et al.: m, and the density within m of 0, from epsilon
# and e = exp(-epsilon). The density falls by e at m and at each step of 2 beyond it.


def scdf(epsilon, e):
    return 2 * (1 - e - epsilon * e) / (epsilon * (1 - e)), epsilon / 4


def staircase(epsilon, e):
    m = 2 / (1 + math.exp(epsilon / 2))
    return m, (1 - e) / (2 * m + 4 * e - 2 * m * e)


STEPS = {"scdf": scdf, "staircase": staircase}
WITH_LAWS = [name for name in perturbing.MECHANISMS if name not in STEPS]
SAMPLES = 200_000


def require_law(outputs, mean, variance):
    """Require outputs with this mean, within five standard errors, and this variance."""
    assert abs(outputs.mean() - mean) < 5 * (variance / len(outputs)) ** 0.5
    assert outputs.var() == pytest.approx(variance, rel=0.03)


@pytest.mark.parametrize("name", WITH_LAWS)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_float_mechanisms_have_the_papers_mean_and_variance(name, epsilon):
    law = mechanisms.REGISTRY.named(name).variance
    perturb, rng = perturbing.MECHANISMS[name](epsilon), baseline.generator(3)
    for x in (-0.8, 0.0, 1.0):
        require_law(perturb(np.full(SAMPLES, x), rng), x, law(epsilon, x))


def step_density(name, epsilon):
    """The density of a mechanism's noise on a grid of its positive side: the grid, its step, the
    densities. It falls to nearly 0 within the grid.
    """
    m, height = STEPS[name](epsilon, math.exp(-epsilon))
    step = 2e-4
    noise = np.arange(step / 2, 2 + 80 / epsilon, step)
    steps_down = np.maximum(0, np.ceil((noise - m) / 2))
    return noise, step, height * np.exp(-epsilon * steps_down)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_density_of_noise_of_steps_adds_up_to_1(name, epsilon):
    _, step, density = step_density(name, epsilon)
    both_sides = 2 * step * density.sum()
    assert both_sides == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_noise_of_steps_has_the_mean_and_the_variance_of_its_density(name, epsilon):
    """SCDF and Staircase of Wang et al. add noise whose density falls in steps."""
    noise, step, density = step_density(name, epsilon)
    variance = 2 * step * (noise**2 * density).sum()
    x = 0.5
    outputs = perturbing.MECHANISMS[name](epsilon)(np.full(SAMPLES, x), baseline.generator(3))
    require_law(outputs, x, variance)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_noise_of_steps_is_on_its_first_step_as_often_as_its_density_says(name, epsilon):
    m, height = STEPS[name](epsilon, math.exp(-epsilon))
    x = 0.5
    outputs = perturbing.MECHANISMS[name](epsilon)(np.full(SAMPLES, x), baseline.generator(3))
    is_on_first_step = np.abs(outputs - x) < m
    assert is_on_first_step.mean() == pytest.approx(2 * m * height, abs=0.006)


@pytest.mark.parametrize("model", ["linear", "logistic", "svm"])
def test_float_gradients_agree_with_the_gradients_of_devices(model):
    """The papers' learner computes gradients in floating point, three coordinates of each; devices
    do in integers (ONE stands for 1). They agree, so that the two can be compared in figures.
    """
    data = datasets.load("diabetes" if model == "linear" else "breast-cancer")
    weights = np.random.default_rng(4).normal(0, 0.3, data.dimension)
    x, y = data.features[:200] / ONE, data.labels[:200] / ONE
    chosen, components = baseline.gradients(model, x, y, weights, 3, np.random.default_rng(5))
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    mantissas = np.rint(weights * 2**12).astype(np.int64)

    # The same weights in units of 2**-12, as a device has them.
    number = {"linear": 1, "logistic": 2, "svm": 3}[model]
    parameters = ModelParameters(number, mantissas, exponent=-12)
    exact = gradients(parameters, data.records(np.arange(200)))
    errors = np.take_along_axis(exact, chosen, axis=1) / ONE - components
    assert np.abs(errors).max() < 2e-3  # of fixed point


@pytest.mark.parametrize(("tolerance", "rounds"), [(0.0, 10), (0.2, 3), (0.3, 2), (9.0, 1)])
def test_the_learner_of_the_papers_stops_after_a_step_within_its_tolerance(tolerance, rounds):
    """Gradients halve from round to round, so that the steps are 1/2, 1/4, 1/8 and so on."""
    data = datasets.load("breast-cancer")
    run = baseline.Training(
        "logistic", epsilon=1, reports=100, rate=1, rounds=10, regularisation=0, tolerance=tolerance
    )
    asked = []

    def mean_gradient(x, y, weights):
        asked.append(len(x))
        return np.full(data.dimension, 0.5 ** len(asked))

    weights = baseline.descend(run, data, mean_gradient, np.random.default_rng(1))
    assert asked == [10] * rounds
    assert weights == pytest.approx(np.full(data.dimension, 0.5**rounds - 1))


def test_the_learner_of_the_papers_takes_shorter_steps_if_its_rate_decays():
    """The rate of round t is the first one over the square root of t, and lambda is 1e-4."""
    data = datasets.load("breast-cancer")
    run = baseline.Training("linear", epsilon=1, reports=30, rate=0.5, rounds=3, decays=True)
    rng = np.random.default_rng(1)
    ones = np.ones(data.dimension)
    weights = baseline.descend(run, data, lambda *_: ones, rng)

    expected = 0.0
    for t in (1, 2, 3):
        expected -= 0.5 / math.sqrt(t) * (1 + 1e-4 * expected)
    assert weights == pytest.approx(expected * ones, rel=1e-12)


# Tuples


def all_signs(d):
    return np.array(list(itertools.product((-1, 1), repeat=d)))


@pytest.mark.parametrize("d", [1, 4, 5])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_duchi_s_tuples_are_unbiased_and_keep_epsilon_by_enumeration(d, epsilon):
    """Duchi's mechanism for tuples rounds each of d values to a sign at random, and then draws an
    output from all sign vectors, of which those that agree with the rounded tuple are exp(epsilon)
    as likely. All outcomes together: the mean output is the tuple x.
    """
    bound, e = perturbing.tuple_bound(epsilon, d), math.exp(epsilon)
    signs = all_signs(d)
    agrees = signs @ signs.T >= 0  # rounded tuples x outputs
    agreeing_outputs = agrees[0].sum()

    likely = e / ((e - 1) * agreeing_outputs + 2**d)
    output_law = np.where(agrees, likely, likely / e)
    x = np.linspace(-0.9, 0.7, d)
    rounding_law = np.prod(0.5 + signs * x / 2, axis=1)

    assert output_law.sum(axis=1) == pytest.approx(1)
    assert bound * (rounding_law @ output_law) @ signs == pytest.approx(x)


@pytest.mark.parametrize(
    ("d", "epsilon_told"),
    [
        pytest.param(3, 1.0, id="odd: the epsilon that was asked for"),
        pytest.param(4, math.log(1 + math.e), id="even: more"),
    ],
)
def test_duchi_s_tuples_as_printed_tell_more_where_d_is_even(d, epsilon_told):
    """The paper first draws a side, the likely one with e**epsilon times the probability of the
    other, and then an output from it, evenly. Both sides include the outputs whose product with the
    tuple is 0. There are such outputs where d is even, so that the two sides together make them
    likelier than any of the unlikely side.
    """
    epsilon = 1.0
    products = all_signs(d) @ all_signs(d).T  # tuples x outputs
    likely_side, unlikely_side = products >= 0, products <= 0
    likelihood = math.exp(epsilon) * likely_side / likely_side.sum(axis=1, keepdims=True)
    likelihood += unlikely_side / unlikely_side.sum(axis=1, keepdims=True)
    assert math.log(likelihood.max() / likelihood.min()) == pytest.approx(epsilon_told)


@pytest.mark.parametrize("name", ["duchi", "hm", "hm-tp"])
def test_reports_of_tuples_are_unbiased(name):
    x = np.tile(np.linspace(-1, 1, 6), (100_000, 1))
    reports = reported(x, name, 5.0, baseline.generator(2))
    errors = reports.std(axis=0) / len(x) ** 0.5
    assert (np.abs(reports.mean(axis=0) - x[0]) < 5 * errors).all()


# Ranges and discrete outputs


# Algorithm 5 of Zhao et al. draws an output from [-A, A], and rounds it at random to a multiple of
# A / m. The tests replace the draw by a fine grid of outputs, each with its probability.
GRID = 200_000


def law_of_piecewise(epsilon, t, x):
    """The outputs of the piecewise mechanism at x, as a grid of [-A, A], and their probabilities.

    The density has two values: a high one in a window around x, and a low one outside of it.
    """
    bound = PiecewiseLaw(epsilon, t).bound  # A
    middles_of_cells = (np.arange(GRID) + 0.5) / GRID  # of [0, 1]
    outputs = (2 * middles_of_cells - 1) * bound

    half_width = bound / (t + 1)
    centre = x * bound * t / (t + 1)
    is_in_window = np.abs(outputs - centre) < half_width
    # An output is in the window with probability e**epsilon / (e**epsilon + t). Either part is
    # spread evenly over its width; the division by the sum leaves out what both have in common.
    inside = math.exp(epsilon) / half_width
    outside = t / (bound - half_width)
    density = np.where(is_in_window, inside, outside)
    return outputs, density / density.sum()


def mean_squares_after_rounding(outputs, step):
    """The mean square of each output, rounded at random to the multiple of `step` below or above.

    The nearer multiple is as much likelier as keeps the mean.
    """
    probability_of_above = outputs / step % 1
    below = outputs - probability_of_above * step
    above = below + step
    return (1 - probability_of_above) * below**2 + probability_of_above * above**2


@pytest.mark.parametrize(("epsilon", "m", "x"), [(1.0, 1, 0.6), (2.0, 3, -0.25), (4.0, 7, 1.0)])
def test_the_variance_of_algorithm_5_is_that_of_its_law(epsilon, m, x):
    t = piecewise.t_sub(epsilon)
    outputs, probabilities = law_of_piecewise(epsilon, t, x)
    step = PiecewiseLaw(epsilon, t).bound / m

    mean_square = probabilities @ mean_squares_after_rounding(outputs, step)
    variance = mean_square - x**2  # since the mean is x, as the next test shows

    stated = laws.variances("pm-sub", epsilon, np.array(x), outputs=2 * m + 1)
    assert variance == pytest.approx(stated, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "x"), [(1.0, 0.6), (2.0, -0.25), (4.0, 1.0)])
def test_the_mean_of_the_law_of_algorithm_5_is_the_input(epsilon, x):
    outputs, probabilities = law_of_piecewise(epsilon, piecewise.t_sub(epsilon), x)
    assert probabilities @ outputs == pytest.approx(x, abs=1e-4)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("m", [1, 7])
def test_a_window_card_has_less_variance_than_algorithm_5_with_as_many_levels(epsilon, m):
    levels = 2 * m + 1
    by_algorithm_5 = laws.variances("pm-sub", epsilon, np.linspace(0, 1, 101), outputs=levels)
    assert worst("pm-sub", epsilon, levels, window="best") < by_algorithm_5.max()
