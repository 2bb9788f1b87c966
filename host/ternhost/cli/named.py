"""Cards that a command line names: by a file, or by a mechanism with its epsilon and options.

A card is the integer table from which a device samples its report. A mechanism is a way to design
one.
"""

import argparse
from pathlib import Path
from typing import Any

from tern.card import Card
from ternhost.command import add_option
from ternhost.errors import UsageError
from ternhost.privacy import cards, mechanisms
from ternhost.privacy.base import Design


def add_arguments(
    parser: argparse.ArgumentParser, required: bool = False, many: bool = False
) -> None:
    """Add the argument NAME, a card file or a mechanism, and the options of mechanisms.

    required: NAME must be a mechanism, and --epsilon must be given. many: there may be any number
    of names, which argparse puts into `names` instead of `name`.
    """
    text = "card file, or (with --epsilon) mechanism: "
    if required:
        text = "mechanism: "
    text += ", ".join(mechanisms.NAMES)
    if many:
        text += "; without NAME, --epsilon stands for any mechanism"
        parser.add_argument("names", metavar="NAME", nargs="*", help=text)
    else:
        parser.add_argument("name", metavar="NAME", help=text)
    text = "epsilon in decimal, rounded down to millionths"
    add_option(parser, "--epsilon E", text, required=required)
    text = "number of outputs, if the mechanism leaves a choice"
    add_option(parser, "--levels N", text, type=int)
    mechanisms.add_options(parser)


def design(args: argparse.Namespace, name: str) -> Design:
    """Design the card of the named mechanism, as the options say.

    Raises UsageError for an unknown mechanism, and for options that it does not have.
    """
    options = mechanisms.options_given(args, name)
    return mechanisms.design(name, args.epsilon, args.levels, **options)


def card(
    args: argparse.Namespace, name: str, is_only_name: bool = True
) -> tuple[Card, dict[str, Any]]:
    """Return a card and its description: designed with the named mechanism, or loaded from a file.

    is_only_name: False if the command line has several names; then --epsilon concerns only those
    that are mechanisms. Raises UsageError for options that do not fit, and OSError if the file
    cannot be read.
    """
    is_mechanism = name in mechanisms.NAMES

    # --epsilon asks for a design. A single name must then be a mechanism: `design` refuses others.
    if args.epsilon is not None and (is_only_name or is_mechanism):
        designed = design(args, name)
        return cards.decode(designed.card), cards.describe_design(designed)

    # The card is in a file, which options of a mechanism do not concern.
    if args.epsilon is None:
        useless_options = mechanisms.options_named(args, "levels")
        if useless_options:
            text = f"{' and '.join(useless_options)} would change nothing: {name} is a card file"
            raise UsageError(text, hint="to design the card of a mechanism, give --epsilon")
    if is_mechanism and not Path(name).exists():
        raise UsageError(f"{name} is a mechanism, which needs an epsilon", hint="add --epsilon E")
    loaded = cards.decode(cards.load(name), name)
    return loaded, cards.describe(loaded)
