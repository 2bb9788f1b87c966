"""Cards that a command line names: by a file, or as `MECHANISM:EPSILON`, such as `duchi:2`.

A card is the integer table from which a device samples its report. A mechanism is a way to design
one. To design a card with other options than the default ones, use `tern card design`.
"""

import argparse
from pathlib import Path
from typing import Any

from tern.card import Card
from ternhost.errors import UsageError
from ternhost.privacy import cards, mechanisms
from ternhost.privacy.base import Design

HELP = (
    "card file, or MECHANISM:EPSILON, such as three-outputs:2 ('tern card list' lists mechanisms)"
)


def add_card(parser: argparse.ArgumentParser) -> None:
    """Add the argument CARD, for `card`."""
    parser.add_argument("card", metavar="CARD", help=HELP)


def card(name: str) -> tuple[Card, dict[str, Any]]:
    """Return a card and its description.

    name: of a card file, or `MECHANISM:EPSILON`. A file of that name comes first. Raises UsageError
    if it is neither, and OSError if the file cannot be read.
    """
    designed = design(name)
    if designed is not None:
        return cards.decode(designed.card), cards.describe_design(designed)
    loaded = cards.decode(cards.load(name), name)
    return loaded, cards.describe(loaded)


def card_bytes(name: str) -> bytes:
    """Return the bytes of a card, which need not be valid ones if they are from a file.

    name: as for `card`. Raises UsageError and OSError.
    """
    designed = design(name)
    if designed is not None:
        return designed.card
    return cards.load(name)


def design(name: str) -> Design | None:
    """Design the card that `MECHANISM:EPSILON` names; return None if the name is that of a file.

    Raises UsageError for an unknown mechanism, or an epsilon that is missing or none.
    """
    if Path(name).exists():
        return None
    mechanism, colon, epsilon = name.rpartition(":")
    if colon and is_word(mechanism):
        return mechanisms.design(mechanism, epsilon)
    if name in mechanisms.NAMES:
        raise UsageError(f"{name} is a mechanism, which needs an epsilon", hint=f"such as {name}:2")
    if is_word(name):
        raise UsageError(
            f"there is no card file {name!r}, and no mechanism of that name",
            hint="name a file, or MECHANISM:EPSILON; 'tern card list' lists the mechanisms",
        )
    return None


def is_word(text: str) -> bool:
    """Return whether a text looks like the name of a mechanism, and not like that of a file."""
    is_drive = len(text) == 1  # as in C:\\my.card
    return not is_drive and all(letter.isalnum() or letter == "-" for letter in text)
