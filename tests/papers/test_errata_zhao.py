"""The formulas of Zhao et al. that are misprinted: what is wrong as printed, and right as corrected.

Most of what is right as printed is tested in test_zhao.py.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from ternhost.privacy.mechanisms import piecewise, three_outputs
from ternpapers import perturbing
from ternpapers.mechanisms import pm

# Three-Outputs: its derivation, in exact fractions

E = Fraction(3)  # e**epsilon, at epsilon = ln 3
INPUTS = [Fraction(i, 4) for i in range(-4, 5)]


@dataclass(frozen=True)
class SymmetricMechanism:
    """A mechanism with the outputs -C, 0 and C whose probabilities are linear on both sides of 0.

    It is symmetric: the probability of -C at x is that of C at -x.
    """

    c_at_0: Fraction  # the probability of C at x = 0
    c_at_1: Fraction
    c_at_minus_1: Fraction

    def p(self, output, x):
        """The probability of the output C, 0 or -C, where `output` is 1, 0 or -1."""
        if output == 0:
            return 1 - self.p(1, x) - self.p(-1, x)
        if output == -1:
            return self.p(1, -x)
        end = self.c_at_1 if x >= 0 else self.c_at_minus_1
        return self.c_at_0 + (end - self.c_at_0) * abs(x)


# At x = 1, C is twice as likely as at -1, where E would allow three times.
WASTEFUL = SymmetricMechanism(Fraction(3, 10), Fraction(5, 10), Fraction(1, 4))
# At x = 1, C is E times as likely as at -1.
TIGHT = SymmetricMechanism(Fraction(3, 10), Fraction(6, 10), Fraction(2, 10))


@pytest.mark.parametrize("x", INPUTS)
def test_equations_13_14_16_and_17_are_right(x):
    p = WASTEFUL.p
    if x >= 0:
        of_c = p(1, 0) + (p(1, 1) - p(1, 0)) * x
        of_minus_c = p(-1, 0) - (p(-1, 0) - p(-1, 1)) * x
    else:
        of_c = p(1, 0) + (p(1, 0) - p(1, -1)) * x
        of_minus_c = p(-1, 0) - (p(-1, -1) - p(-1, 0)) * x
    assert (of_c, of_minus_c) == (p(1, x), p(-1, x))


def zero_by_equation_15(p, x, as_printed):
    """The probability of the output 0, for x from 0 to 1."""
    slope = p(-1, 0) + p(1, 0) - p(1, 1) - p(-1, 1)
    if as_printed:
        slope = p(-1, 0) - p(1, 0) + p(-1, 1) - p(1, 1)
    return 1 - p(-1, 0) - p(1, 0) + slope * x


def zero_by_equation_18(p, x, as_printed):
    """The probability of the output 0, for x from -1 to 0."""
    slope = p(1, -1) + p(-1, -1) - p(1, 0) - p(-1, 0)
    if as_printed:
        slope = p(-1, 0) - p(1, 0) + p(-1, -1) - p(1, -1)
    return 1 - p(-1, 0) - p(1, 0) + slope * x


@pytest.mark.parametrize(("equation", "end"), [(zero_by_equation_15, 1), (zero_by_equation_18, -1)])
def test_equations_15_and_18_give_probabilities_that_add_up_to_1_unless_as_printed(equation, end):
    p = WASTEFUL.p
    for part in range(1, 5):
        x = Fraction(end * part, 4)
        of_the_outer_two = p(1, x) + p(-1, x)
        assert of_the_outer_two + equation(p, x, as_printed=False) == 1
        assert of_the_outer_two + equation(p, x, as_printed=True) != 1


@pytest.mark.parametrize("mechanism", [WASTEFUL, TIGHT])
def test_inequality_20_as_printed_holds_for_every_symmetric_mechanism(mechanism):
    """As printed, its right side has the probability of -C at -1, which is that of C at 1."""
    assert mechanism.p(1, 1) < E * mechanism.p(-1, -1)


def test_inequality_20_with_c_at_minus_1_tells_which_mechanism_can_be_improved():
    def premise(mechanism):
        return mechanism.p(1, 1) < E * mechanism.p(1, -1)

    assert premise(WASTEFUL)
    assert not premise(TIGHT)


@pytest.mark.parametrize("mechanism", [WASTEFUL, TIGHT])
def test_the_end_of_the_transformation_as_printed_is_never_reached(mechanism):
    """As printed, the probability of C at -1 shall become E times that of -C at 1, but in a symmetric
    mechanism they are equal.
    """
    assert mechanism.p(1, -1) == mechanism.p(-1, 1)


def test_the_end_with_c_in_both_places_is_reached_in_one_step():
    """Equation (21) subtracts the same number from the probability of C at every input."""
    p = WASTEFUL.p
    subtracted = (E * p(1, -1) - p(1, 1)) / (E - 1)
    assert p(1, 1) - subtracted == E * (p(1, -1) - subtracted)


# Three-Outputs: equations (2) to (8), in floats


def distribution(epsilon, x, as_printed):
    """The probabilities of -C, 0 and C by (2), (4) and (3)."""
    e, a = math.exp(epsilon), three_outputs.zero_probability(epsilon)
    middle = (1 - a) / 2
    likely = (e - a) / (e + 1)
    unlikely = likely / e
    if x >= 0:
        of_c = middle + (likely - middle) * x
        slope_of_minus_c = middle - unlikely
    else:
        of_c = middle + (middle - unlikely) * x
        slope_of_minus_c = likely - middle
    if as_printed:
        return middle + slope_of_minus_c * x, a + (a / e - a) * x, of_c
    return middle - slope_of_minus_c * x, a + (a / e - a) * abs(x), of_c


@pytest.mark.parametrize(("x", "printed_sum"), [(1, 1.2326), (0.5, 1.1163), (-1, 0.7674)])
def test_probabilities_of_three_outputs_add_up_to_1_unless_as_printed(x, printed_sum):
    """In (2) the sign of x is wrong for positive and for negative x; in (4) it should be |x|."""
    assert sum(distribution(1.0, x, as_printed=False)) == pytest.approx(1)
    assert sum(distribution(1.0, x, as_printed=True)) == pytest.approx(printed_sum, abs=5e-5)


def angle_of_equation_5(epsilon, power):
    """Delta_0, and the number whose arccos (5) takes, with Delta_0 to this power (printed: 1)."""
    e = math.exp(epsilon)
    delta_0 = e**4 + 14 * e**3 + 50 * e**2 - 2 * e + 25
    delta_1 = -2 * e**6 - 42 * e**5 - 270 * e**4 - 404 * e**3 - 918 * e**2 + 30 * e - 250
    return delta_0, -delta_1 / (2 * delta_0**power)


BETWEEN_THE_LIMITS = [math.log(2), 0.75, 1.0, 1.5, math.log((3 + math.sqrt(65)) / 2)]


@pytest.mark.parametrize("epsilon", BETWEEN_THE_LIMITS)
def test_equation_5_with_delta_0_to_the_power_of_3_halves_is_the_probability_of_0(epsilon):
    e = math.exp(epsilon)
    delta_0, cosine = angle_of_equation_5(epsilon, power=1.5)
    root = 2 * math.sqrt(delta_0) * math.cos(math.pi / 3 + math.acos(cosine) / 3)
    a = -(-e * e - 4 * e - 5 + root) / 6
    assert a == pytest.approx(three_outputs.zero_probability(epsilon), abs=1e-9)


@pytest.mark.parametrize("epsilon", BETWEEN_THE_LIMITS)
def test_equation_5_as_printed_has_no_value(epsilon):
    """It takes the arccos of a number beyond 1."""
    assert angle_of_equation_5(epsilon, power=1)[1] > 1


def test_the_limits_of_equation_5_are_where_the_root_meets_the_other_cases():
    """The root is 0 at epsilon ln 2, and E/(E+2) at the epsilon of (8)."""
    first, *_, last = BETWEEN_THE_LIMITS
    above = 1e-9
    assert three_outputs.zero_probability(first + above) == pytest.approx(0, abs=1e-8)
    assert three_outputs.zero_probability(last - above) == pytest.approx(
        three_outputs.rr3_zero_probability(last)
    )


@pytest.mark.parametrize("epsilon", [0.75, 1.0, 1.5, 1.7, 2.0, 4.0])
def test_three_outputs_has_the_best_probability_of_0(epsilon):
    """Its probability a of 0 (at input 0) is between 0 and E/(E+2), E = exp(epsilon), and no other
    there has a smaller worst-case variance.
    """
    a, most = three_outputs.zero_probability(epsilon), three_outputs.rr3_zero_probability(epsilon)
    assert 0 < a <= most
    variances = [
        three_outputs.worst_variance(epsilon, each) for each in np.linspace(0, most, 4001).tolist()
    ]
    assert three_outputs.worst_variance(epsilon, a) <= min(variances) * (1 + 1e-12)


# PM-OPT and PM-SUB: the range of (29), and the window from L to R, are right as printed


class Chosen:
    """Takes the place of a random generator: gives this number in [0, 1]."""

    def __init__(self, number):
        self.number = number

    def random(self, shape):
        return np.full(shape, self.number)


@pytest.mark.parametrize(("epsilon", "parameter"), [(0.5, pm.t_opt), (1.0, piecewise.t_sub)])
@pytest.mark.parametrize("x", [-0.4, 0.9])
def test_tern_draws_from_the_printed_window_and_range(epsilon, parameter, x):
    """A random number from 0 to 1 is the part of all reports that are smaller than the drawn one.

    The reports in the window are a part E/(t + E) of all. Those before it, from -A on, have the
    density d of (28).
    """
    e, t = math.exp(epsilon), parameter(epsilon)
    perturb = perturbing.by_piecewise(parameter)(epsilon)

    def report(number):
        return float(perturb(np.array([x]), Chosen(number))[0])

    unit = (e + t) / (t * (e - 1))
    left, right, bound = unit * (x * t - 1), unit * (x * t + 1), unit * (t + 1)
    before = t * (e - 1) / (2 * (t + e) ** 2) * (left + bound)
    drawn_window = report(before), report(before + e / (t + e))
    assert drawn_window == pytest.approx((left, right))
    assert (report(0), report(1)) == pytest.approx((-bound, bound))


# PM-OPT: its parameter t


def t_by_equation_30(epsilon, as_printed):
    """t of PM-OPT by (30a) and (30b); as printed, a fraction is misplaced."""
    e = math.exp(epsilon)
    q = 2 ** (2 / 3) * np.cbrt(e**2 - e**4)
    first = math.sqrt(e**2 + q)
    under_the_root = 2 * e**2 - q
    if as_printed:
        under_the_root /= 4 * e - 2 * e**3
    sign = 1 if epsilon < math.log(2) / 2 else -1
    second = math.sqrt(under_the_root + sign * (4 * e - 2 * e**3) / first)
    return sign * first / 2 + second / 2 - e / 2


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.4, 1.0, 3.0, 6.0])
def test_equation_30_without_the_misplaced_fraction_is_the_parameter_of_pm_opt(epsilon):
    corrected = t_by_equation_30(epsilon, as_printed=False)
    assert corrected == pytest.approx(pm.t_opt(epsilon), rel=1e-6)


def test_equation_30_as_printed_gives_another_parameter():
    assert t_by_equation_30(1.0, as_printed=True) == pytest.approx(0.34849, abs=5e-6)
    assert t_by_equation_30(1.0, as_printed=False) == pytest.approx(1.288757, abs=5e-7)


def test_equation_30c_is_right():
    """At epsilon ln sqrt 2, where (30a) and (30b) divide by 0."""
    printed = (math.sqrt(3 + 2 * math.sqrt(3)) - 1) / math.sqrt(2)
    assert printed == pytest.approx(pm.t_opt(math.log(2) / 2), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.3, math.log(2) / 2, 1.0, 3.0, 6.0])
def test_pm_opt_has_the_best_t(epsilon):
    """PM-OPT is the piecewise mechanism with the parameter t of least worst-case variance. It is so
    near epsilon = ln sqrt 2, too, where the closed form loses its digits.
    """
    best = pm.t_opt(epsilon)
    least = piecewise.worst_variance(epsilon, best)

    for factor in (0.9, 0.999, 1.001, 1.1):
        assert piecewise.worst_variance(epsilon, best * factor) > least
    # It is the root of the derivative: t**4 + 2 E t**3 - 2 E t - E**2, where E = exp(epsilon).
    e = math.exp(epsilon)
    assert best**4 + 2 * e * best**3 - 2 * e * best - e * e == pytest.approx(0, abs=1e-12 * e**4)


def test_the_closed_form_of_t_loses_its_digits_near_ln_sqrt_2():
    near = math.log(2) / 2 + 1e-9
    error = abs(t_by_equation_30(near, as_printed=False) / pm.t_opt(near) - 1)
    assert error > 1e-6


@pytest.mark.parametrize(
    ("epsilon", "ratio"), [(1.0, 0.254), (2.0, 0.263), (6.0, 0.296), (20.0, 0.322)]
)
def test_the_exponent_of_pm_opt_s_t_is_below_one_third(epsilon, ratio):
    """Zhao et al. call ln t / epsilon close to 1/3, which is why PM-SUB has t = e**(epsilon / 3)."""
    assert math.log(pm.t_opt(epsilon)) / epsilon == pytest.approx(ratio, abs=5e-4)
