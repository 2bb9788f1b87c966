"""Learning from noisy sums: the optimum without noise, the radius, what is counted, public rows
right and wrong.
"""

import json
import math

import numpy as np
import pytest
from scipy.optimize import minimize

from tern.wire import LINEAR, LOGISTIC, SOFTMAX_GRADIENT, SVM
from ternhost.errors import UsageError
from ternhost.learn.descent import Descent, PublicFacts
from ternhost.learn.refit import ENOUGH, Refit, descent_for


def population(model, rows=6000, d=6, classes=1, seed=7):
    """Features whose sizes differ, and labels of a model; classes as one-hot rows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, d)) * np.linspace(1, 0.4, d)
    x[:, 0] = 1
    weights = rng.normal(size=(classes, d))
    if model == LINEAR:
        return x, np.clip(x @ weights[0] * 0.2 + 0.05 * rng.normal(size=rows), -1, 1)
    if model == SOFTMAX_GRADIENT:
        noise = rng.gumbel(size=(rows, classes))
        return x, np.eye(classes)[(2 * x @ weights.T + noise).argmax(axis=1)]
    return x, (rng.random(rows) < 1 / (1 + np.exp(-2 * x @ weights[0]))).astype(float)


def answer(learner, x, t, rng, noisy=True, clips=True):
    """A round of boards with these records: what `take` takes, and the share of units that were
    clipped. Boards that do not clip find the radius right.
    """
    public = learner.facts
    z = x @ learner.weights.reshape(public.classes, -1).T
    if public.model == SOFTMAX_GRADIENT:
        e = np.exp(z - z.max(axis=1, keepdims=True))
        residual = e / e.sum(axis=1, keepdims=True) - t
    elif public.model == SVM:
        y = 2 * t[:, None] - 1
        residual = np.where(y * z < 1, -y, 0)
    else:
        residual = (z if public.model == LINEAR else 1 / (1 + np.exp(-z))) - t[:, None]
    each = (residual[:, :, None] * x[:, None]).reshape(len(x), public.values)
    each = each.reshape(-1, public.unit, public.values).sum(axis=1)
    norms = np.linalg.norm(each, axis=1)
    clipped = norms > learner.radius
    factor = (
        np.minimum(1, learner.radius / np.maximum(norms, 1e-12)) if clips else np.ones(len(norms))
    )
    total = (each * factor[:, None]).sum(axis=0)
    yes, no = learner.tally
    tally = yes * clipped.sum() + no * (~clipped).sum() if clips or learner.round == 0 else 0
    sigma = math.sqrt((learner.radius**2 + yes**2) / (2 * public.rho * learner.rho_share))
    spread = sigma * math.sqrt(public.boards) if noisy else 0
    noise = spread * rng.normal(size=public.values + 1)
    taken = (total + noise[1:], tally + noise[0], sigma if noisy else 0.0, public.boards)
    return taken, clipped.mean() if len(x) else 0.0


def learn(learner, x, t, seed=1, **how):
    """All rounds; the clipped shares, and the radii."""
    rng = np.random.default_rng(seed)
    seen = []
    while not learner.done:
        taken, share = answer(learner, x, t, rng, **how)
        seen.append((share, learner.radius))
        learner.learn(*taken)
    return np.array(seen).T


def loss(model, x, t, weights, classes):
    z = x @ weights.reshape(classes, -1).T
    if model == LINEAR:
        return ((z[:, 0] - t) ** 2).mean()
    if model == SOFTMAX_GRADIENT:
        return (np.log(np.exp(z).sum(axis=1)) - (z * t).sum(axis=1)).mean()
    return np.log1p(np.exp((1 - 2 * t) * z[:, 0])).mean()


CASES = [(LOGISTIC, 1), (LINEAR, 1), (SOFTMAX_GRADIENT, 3)]


@pytest.mark.parametrize(("model", "classes"), CASES)
@pytest.mark.parametrize("rows", [0, 400])
def test_without_noise_and_clipping_it_finds_the_optimum(model, classes, rows):
    x, t = population(model, classes=classes)
    others = population(model, rows, classes=classes, seed=8)[0] if rows else None
    mine = descent_for(PublicFacts(model, 6, 20, 300, rho=100.0, classes=classes), others)
    learn(mine, x, t, noisy=False, clips=False)
    optimum = minimize(
        lambda w: loss(model, x, t, w, classes), np.zeros(6 * classes), method="BFGS"
    ).fun
    nothing = loss(model, x, t, np.zeros(6 * classes), classes)
    assert loss(model, x, t, mine.model, classes) - optimum < 0.02 * (nothing - optimum)


def test_a_hinge_learns_to_tell_classes():
    x, t = population(SVM)
    mine = descent_for(PublicFacts(SVM, 6, 20, 300, rho=1.0), x[:ENOUGH])
    assert type(mine) is Descent  # the Hessian of a hinge is not a matter of features alone
    learn(mine, x, t)
    assert (
        (x @ mine.model > 0) == (t > 0)
    ).mean() > 0.82  # of .84 by the weights that made the labels


@pytest.mark.parametrize(("model", "classes"), CASES)
@pytest.mark.parametrize("unit", [1, 10])
def test_a_quarter_of_the_units_gets_clipped(model, classes, unit):
    x, t = population(model, classes=classes)
    mine = Descent(PublicFacts(model, 6, 20, 300, rho=10.0, unit=unit, classes=classes))
    shares, radii = learn(mine, x, t)
    assert 0.22 < np.mean(shares[-20:]) < 0.31
    if model == LINEAR and unit == 1:
        assert radii[-1] < 0.5 * max(radii)  # it falls with the residuals


def test_every_round_has_its_share_of_rho_and_the_tally_costs_little():
    public = PublicFacts(LOGISTIC, 6, 20, 300, 0.02)
    for mine in (descent_for(public, population(LOGISTIC, ENOUGH)[0]), descent_for(public)):
        spent = 0.0
        while not mine.done:
            spent += mine.rho_share
            assert max(map(abs, mine.tally)) < mine.radius / 5
            mine.learn(np.zeros(6), 0.0, 1.0, 20)
        assert spent == pytest.approx(1)
    assert Descent(PublicFacts(LOGISTIC, 30, 5, 100, 0.02)).rounds == 60
    assert Descent(PublicFacts(LOGISTIC, 30, 100, 5000, 1.5)).rounds == 150


def test_boards_with_few_records_are_counted_in_the_first_round():
    x, t = population(LOGISTIC, rows=1500)
    few = Descent(PublicFacts(LOGISTIC, 6, 20, 300, rho=1.0))
    few.learn(*answer(few, x, t, np.random.default_rng(1))[0])
    assert few.state()["there"] == pytest.approx(0.25, abs=0.03)


def test_a_round_in_which_nobody_or_half_of_the_boards_answer():
    x, t = population(LOGISTIC)
    whole, half = (Descent(PublicFacts(LOGISTIC, 6, 20, 300, rho=1.0)) for _ in range(2))
    whole.learn(*answer(whole, x, t, np.random.default_rng(1), noisy=False)[0])
    (total, tally, _, _), _ = answer(half, x, t, np.random.default_rng(1), noisy=False)
    half.learn(total / 2, tally / 2, 0.0, 10)
    assert half.weights == pytest.approx(whole.weights)
    before = half.state()
    half.learn(np.zeros(6), 0.0, 1.0, 0)
    assert half.state() == {**before, "round": 2}


@pytest.mark.parametrize("rows", [None, "rows"])
def test_noise_alone_moves_no_weight_far(rows):
    for seed in range(10):
        public = PublicFacts(LOGISTIC, 30, 20, 100, rho=0.02)
        mine = descent_for(
            public, np.random.default_rng(3).uniform(-1, 1, (400, 30)) if rows else None
        )
        _, radii = learn(mine, np.empty((0, 30)), np.empty(0), seed=seed)
        assert np.isfinite(mine.model).all()
        assert (
            np.abs(mine.model).max() < 4
        )  # the walk of a weight has a standard deviation of at most .5
        assert max(radii) <= 2 * math.sqrt(30)


def related(direction, rows, seed):
    """Features that nearly lie on a line, which has this direction."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 1)) * direction + 0.05 * rng.normal(size=(rows, len(direction)))
    return np.column_stack([np.ones(rows), np.clip(x, -1, 1)[:, 1:]])


def test_right_public_rows_are_kept_and_wrong_ones_dropped():
    rng = np.random.default_rng(2)
    one, other = np.zeros(12), np.zeros(12)
    one[[1, 3]] = other[[2, 5]] = 0.5, 0.4
    for seed in range(5):
        x = related(one, 6000, seed)
        t = (rng.random(6000) < 1 / (1 + np.exp(-3 * x[:, 1]))).astype(float)
        right, wrong = (
            Refit(PublicFacts(LOGISTIC, 12, 20, 300, 0.1), related(v, 400, 9)) for v in (one, other)
        )
        learn(right, x, t)
        learn(wrong, x, t)
        assert (right.fits, right.rounds) == (True, 4)
        assert (wrong.fits, wrong.rounds >= 60) == (False, True)
        assert loss(LOGISTIC, x, t, wrong.model, 1) < 0.98 * math.log(2)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_restored_learner_goes_on_exactly_as_it_would_have(wrong):
    x, t = population(LOGISTIC)
    rows = population(LOGISTIC, 400, seed=8)[0]
    if wrong:
        rows = related(np.linspace(-0.6, 0.6, 6), 400, 1)
    public = PublicFacts(LOGISTIC, 6, 20, 300, rho=0.5)
    for make in (lambda: Descent(public), lambda: Refit(public, rows)):
        mine, rng = make(), np.random.default_rng(4)
        while not mine.done:
            again = make()
            again.restore(json.loads(json.dumps(mine.state())))
            taken, _ = answer(mine, x, t, rng)
            mine.learn(*taken)
            again.learn(*taken)
            assert (again.state(), again.rounds, again.radius) == (
                mine.state(),
                mine.rounds,
                mine.radius,
            )
            assert np.array_equal(again.weights, mine.weights)


def test_the_state_of_something_else_is_refused():
    mine = Descent(PublicFacts(LOGISTIC, 6, 20, 300, 0.02))
    for wrong in (
        {},
        {**mine.state(), "radius": 1},
        Descent(PublicFacts(LOGISTIC, 7, 20, 300, 0.02)).state(),
    ):
        with pytest.raises(UsageError, match="state"):
            mine.restore(wrong)
