"""Every mechanism, through one interface: `design(name, epsilon)` returns a certified, exactly unbiased card."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from ternhost.errors import UsageError
from ternhost.mechanisms import auto, duchi, grr, hybrid, laplace, lhp, pdpm, piecewise, three_outputs
from ternhost.mechanisms.base import Design, parse_epsilon

__all__ = ["NAMES", "Design", "design", "parse_epsilon"]

_DESIGNERS: dict[str, Callable[..., Design]] = {
    "three-outputs": three_outputs.design,
    "duchi": duchi.design,
    "harmony": duchi.design_harmony,
    "laplace": laplace.design,
    "pm": piecewise.design_pm,
    "pm-sub": piecewise.design_sub,
    "pm-opt": piecewise.design_opt,
    "hm": hybrid.design_hm,
    "hm-tp": hybrid.design_hm_tp,
    "3r": three_outputs.design_better,
    "rr3": three_outputs.design_rr3,
    "pdpm": pdpm.design,
    "lhp": lhp.design,
    "grr": grr.design,
    "optimal": auto.optimal_or_shipped,
    "auto": auto.design,
}

NAMES = tuple(_DESIGNERS)


def design(
    name: str,
    epsilon: str | int | float | Decimal | None = None,
    levels: int | None = None,
    *,
    epsilon_micro: int | None = None,
    **options: Any,
) -> Design:
    """Design the card of mechanism `name` at `epsilon` (or `epsilon_micro`), with so many levels where it has a choice.

    Options by mechanism: see `tern card design --help`. Raises UsageError for a name, epsilon, number of levels or
    option that makes no sense.
    """
    if name not in _DESIGNERS:
        raise UsageError(f"no mechanism called {name!r}", hint="known: " + ", ".join(NAMES))
    if (epsilon is None) == (epsilon_micro is None):
        raise TypeError("give either epsilon or epsilon_micro")
    micro = parse_epsilon(epsilon) if epsilon is not None else epsilon_micro
    if micro is not None and micro < 1:
        raise UsageError(
            "an epsilon below a millionth for one card cannot be",
            hint="give a larger --epsilon, or report fewer coordinates",
        )
    try:
        return _DESIGNERS[name](micro, levels, **options)
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise UsageError(f"{name} has no option {str(error).split()[-1]}") from None
        raise
