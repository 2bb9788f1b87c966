"""Every mechanism: `design(name, epsilon)` returns a certified, exactly unbiased card.

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


# Prefix in a command's namespace, where an option may have the same name.
_DEST = "mechanism_option_"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of all mechanisms to `parser`, each once, under a heading of their own.

    The help names the mechanisms that take an option. If the command itself has an option of the
    same name, the mechanisms' is left out.
    """
    option_by_name: dict[str, Option] = {}
    # For each option, the names of the mechanisms that have it by what its help says.
    mechanisms_by_help: dict[str, dict[str, list[str]]] = {}
    for mechanism_name, mechanism in REGISTRY.items():
        for option in mechanism.options:
            if option.name not in option_by_name:
                option_by_name[option.name] = option
                mechanisms_by_help[option.name] = {}
            names_by_help = mechanisms_by_help[option.name]
            names_by_help.setdefault(option.help_text(), []).append(mechanism_name)

    group = parser.add_argument_group("options of mechanisms")
    for name, option in option_by_name.items():
        metavar = option.metavar
        if option.values:
            metavar = "{" + ",".join(option.values) + "}"
        texts = []
        for help_text, mechanism_names in mechanisms_by_help[name].items():
            texts.append(f"{', '.join(mechanism_names)}: {help_text}")
        with contextlib.suppress(argparse.ArgumentError):  # the command has such an option
            group.add_argument(
                flag(name), dest=_DEST + name, metavar=metavar, help="; ".join(texts)
            )


def options_given(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Return the options on the command line for mechanism `name`, as keywords of `design`.

    args: the parsed command line. Raises UsageError for an option that this mechanism does not
    have.
    """
    keywords = {}
    for option_name, text in _given(args).items():
        keywords[option_name] = option(name, option_name).read(text)
    return keywords


def options_named(args: argparse.Namespace, *others: str) -> list[str]:
    """Return the flags, such as "--window", of mechanisms' options on the command line.

    others: names of the command's own options, whose flags are added if they are given.
    """
    given = list(_given(args))
    given += [name for name in others if getattr(args, name) is not None]
    return [flag(name) for name in given]


def _given(args: argparse.Namespace) -> dict[str, str]:
    """Return the texts of the options of `add_options` that the command line has, by name."""
    given = {}
    for dest, text in vars(args).items():
        if dest.startswith(_DEST) and text is not None:
            given[dest.removeprefix(_DEST)] = text
    return given
