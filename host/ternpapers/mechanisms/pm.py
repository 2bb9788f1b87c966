"""PM (Wang et al., ICDE 2019) and PM-OPT (Zhao et al., IEEE IoT J. 8, 2021).

They are piecewise mechanisms, as PM-SUB of the core, and differ from it in t, the parameter that
sets the width of the window.
"""

import math

from ternhost.privacy.mechanisms.piecewise import piecewise_mechanism, t_sub

_MOST_STEPS = 50  # a bound on the steps of Newton's method, which takes 3 to 5
_EXACT = 1e-15  # a step of this relative size is the last one


def t_pm(epsilon: float) -> float:
    """Return the parameter of PM (Wang et al., section III-B): e**(epsilon / 2)."""
    return math.exp(epsilon / 2)


def t_opt(epsilon: float) -> float:
    """Return the parameter of PM-OPT, which minimises the worst-case variance.

    It is the root of t**4 + 2 E t**3 - 2 E t - E**2, with E = e**epsilon, by Newton's method from
    the parameter of PM-SUB.
    """
    e = math.exp(epsilon)
    t = t_sub(epsilon)
    for _ in range(_MOST_STEPS):
        value = t**4 + 2 * e * t**3 - 2 * e * t - e * e
        slope = 4 * t**3 + 6 * e * t * t - 2 * e
        step = value / slope
        t -= step
        if abs(step) <= _EXACT * t:
            break
    return t


PM = piecewise_mechanism("pm", t_pm, "piecewise, as Wang et al. 2019 describe it")
PM_OPT = piecewise_mechanism("pm-opt", t_opt, "piecewise, with the best window of Zhao et al. 2021")
