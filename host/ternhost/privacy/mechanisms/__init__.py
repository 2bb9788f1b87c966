"""Every mechanism: `design(name, epsilon)` returns a certified, exactly unbiased card.

A `Mechanism` is registered here, by an entry point of the group `tern.mechanisms`, or by
`REGISTRY.register`.
"""

from collections.abc import Collection
from decimal import Decimal
from typing import Any

from ternhost.errors import UsageError
from ternhost.options import Option, flag
from ternhost.privacy.base import MICRO, Design, parse_epsilon
from ternhost.privacy.mechanism import GRADIENTS, VALUES, Mechanism
from ternhost.privacy.mechanisms import shipped
from ternhost.registry import Registry

__all__ = [
    "GRADIENTS",
    "NAMES",
    "OWN",
    "REGISTRY",
    "VALUES",
    "Design",
    "Mechanism",
    "Option",
    "design",
    "option",
    "parse_epsilon",
]

_HERE = "ternhost.privacy.mechanisms"
OWN = {  # the mechanisms of the core
    "duchi": f"{_HERE}.duchi:DUCHI",
    "three-outputs": f"{_HERE}.three_outputs:THREE_OUTPUTS",
    "3r": f"{_HERE}.three_outputs:BETTER",
    "rr3": f"{_HERE}.three_outputs:RR3",
    "laplace": f"{_HERE}.laplace:LAPLACE",
    "pm-sub": f"{_HERE}.piecewise:PM_SUB",
    "projection": f"{_HERE}.projection:PROJECTION",
    "grr": f"{_HERE}.grr:GRR",
    "optimal": f"{_HERE}.optimal:OPTIMAL",
    "auto": f"{_HERE}.auto:AUTO",
}
REGISTRY: Registry[Mechanism] = Registry("mechanism", "tern.mechanisms", OWN)
NAMES: Collection[str] = REGISTRY.keys()  # a view: what is registered later is in it


def option(name: str, option_name: str) -> Option:
    """Return an option of the mechanism `name`.

    Raises UsageError, with a hint at mechanisms that have the option, if this one does not.
    """
    for declared in REGISTRY.named(name).options:
        if declared.name == option_name:
            return declared

    mechanisms_with_option = []
    for other, mechanism in REGISTRY.items():
        if any(declared.name == option_name for declared in mechanism.options):
            mechanisms_with_option.append(other)
    hint = "'tern card design --help' lists all of them"
    if mechanisms_with_option:
        hint = f"it is for {', '.join(mechanisms_with_option)}"
    raise UsageError(f"{name} has no option {flag(option_name)}", hint=hint)


def design(
    name: str,
    epsilon: str | int | float | Decimal | None = None,
    levels: int | None = None,
    *,
    epsilon_micro: int | None = None,
    use: str | None = None,
    **options: Any,
) -> Design:
    """Return the card of a mechanism at an epsilon.

    name: that of the mechanism. epsilon: a number, or a text in decimal. epsilon_micro: the same in
    millionths, given instead of it. levels: the number of outputs, where the mechanism can choose;
    None: its default. use: GRADIENTS or VALUES; a mechanism that is tuned for it takes the best
    options for it, unless one of these is given. options: the mechanism's own.

    If the mechanism takes long to design a card and the card comes with tern, that one is returned.
    Raises UsageError.
    """
    mechanism = REGISTRY.named(name)
    if (epsilon is None) == (epsilon_micro is None):
        raise TypeError("give either epsilon or epsilon_micro")
    if epsilon is not None:
        epsilon_micro = parse_epsilon(epsilon)
    assert epsilon_micro is not None
    if epsilon_micro < 1:
        given = f"{epsilon_micro / MICRO:g}"
        text = f"the epsilon of one card must not be below a millionth, but it is {given}"
        raise UsageError(text, "give a larger --epsilon, or report fewer coordinates")
    for option_name in options:
        option(name, option_name)  # raises for one that the mechanism does not have

    chosen = mechanism.chosen(options, use)
    if levels is None:
        levels = mechanism.levels
    if mechanism.slow and not chosen:
        data = shipped.load(name, epsilon_micro, levels)
        if data is not None:
            return Design(name, epsilon_micro, data, ("a shipped card",))
    return mechanism.design(epsilon_micro, levels, **chosen)
