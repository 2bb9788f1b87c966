"""Cards that a command line names: by a file, or by a mechanism with its epsilon and options."""

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

    required: NAME must be a mechanism. many: any number of names, as `names`.
    """
    text = "mechanism: " if required else "card file, or (with --epsilon) mechanism: "
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
    """The mechanism of this name, designed as the options say. Raises UsageError."""
    options = mechanisms.options_given(args, name)
    return mechanisms.design(name, args.epsilon, args.levels, **options)


def card(
    args: argparse.Namespace, name: str, is_only_name: bool = True
) -> tuple[Card, dict[str, Any]]:
    """Return a card and its description: designed with the named mechanism, or loaded from a file.

    is_only_name: False if there are several names, of which --epsilon concerns only the mechanisms.
    Raises UsageError, and OSError if the file cannot be read.
    """
    if args.epsilon is not None and (is_only_name or name in mechanisms.NAMES):
        designed = design(args, name)
        return cards.decode(designed.card), cards.describe_design(designed)
    if args.epsilon is None:
        of_mechanism = mechanisms.options_named(args, "levels")
        if of_mechanism:
            text = f"{' and '.join(of_mechanism)} would change nothing: {name} is a card file"
            raise UsageError(text, hint="to design the card of a mechanism, give --epsilon")
    if name in mechanisms.NAMES and not Path(name).exists():
        raise UsageError(f"{name} is a mechanism, which needs an epsilon", hint="add --epsilon E")
    loaded = cards.decode(cards.load(name), name)
    return loaded, cards.describe(loaded)
