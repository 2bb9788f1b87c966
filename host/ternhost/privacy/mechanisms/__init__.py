"""Every mechanism, through one interface: `design(name, epsilon)` returns a certified, exactly
unbiased card.

A `Mechanism` is registered here, by an entry point of the group `tern.mechanisms`, or by
`REGISTRY.register`.
"""

import argparse
import contextlib
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
    "add_options",
    "design",
    "option",
    "options_given",
    "options_named",
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
    """The option of that name of a mechanism. Raises UsageError."""
    for declared in REGISTRY.named(name).options:
        if declared.name == option_name:
            return declared
    takers = [
        other
        for other, its in REGISTRY.items()
        if option_name in {each.name for each in its.options}
    ]
    hint = (
        f"it is for {', '.join(takers)}"
        if takers
        else "'tern card design --help' lists all of them"
    )
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
    """Design the card of mechanism `name` at `epsilon` (or `epsilon_micro`), with `levels` outputs
    where it can choose.

    `options` are the mechanism's own. A mechanism that is tuned for `use` (GRADIENTS or VALUES)
    takes the best ones for it, unless one of these is given. A shipped card replaces a slow design.
    Raises UsageError.
    """
    mechanism = REGISTRY.named(name)
    if (epsilon is None) == (epsilon_micro is None):
        raise TypeError("give either epsilon or epsilon_micro")
    micro = parse_epsilon(epsilon) if epsilon is not None else epsilon_micro
    assert micro is not None
    if micro < 1:
        text = f"the epsilon of one card must not be below a millionth, but it is {micro / MICRO:g}"
        raise UsageError(text, "give a larger --epsilon, or report fewer coordinates")
    for option_name in options:
        option(name, option_name)  # or refuse it
    chosen = mechanism.chosen(options, use)
    levels = mechanism.levels if levels is None else levels
    if mechanism.slow and not chosen:
        data = shipped.load(name, micro, levels)
        if data is not None:
            return Design(name, micro, data, ("a shipped card",))
    return mechanism.design(micro, levels, **chosen)


_DEST = (
    "mechanism_option_"  # prefix in a command's namespace, where an option may have the same name
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all mechanisms to `parser`, each once, under a heading of their own.

    An option of the command that has the same name takes its place.
    """
    known: dict[str, tuple[Option, dict[str, list[str]]]] = {}
    for name, mechanism in REGISTRY.items():
        for option in mechanism.options:
            _, names_by_help = known.setdefault(option.name, (option, {}))
            names_by_help.setdefault(option.help_text(), []).append(name)
    group = parser.add_argument_group("options of mechanisms")
    for option, names_by_help in known.values():
        metavar = "{" + ",".join(option.values) + "}" if option.values else option.metavar
        text = "; ".join(f"{', '.join(names)}: {help_}" for help_, names in names_by_help.items())
        with contextlib.suppress(argparse.ArgumentError):
            group.add_argument(
                flag(option.name), dest=_DEST + option.name, metavar=metavar, help=text
            )


def options_given(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """The given options of `add_options`, as keywords of `design`.

    Raises UsageError for those of other mechanisms.
    """
    return {given: option(name, given).read(text) for given, text in _given(args).items()}


def options_named(args: argparse.Namespace, *others: str) -> list[str]:
    """The options of `add_options`, and those of `others`, that the command line gives, as flags:
    "--window".
    """
    given = [*_given(args), *(name for name in others if getattr(args, name) is not None)]
    return [flag(name) for name in given]


def _given(args: argparse.Namespace) -> dict[str, str]:
    return {
        dest.removeprefix(_DEST): text
        for dest, text in vars(args).items()
        if dest.startswith(_DEST) and text is not None
    }
