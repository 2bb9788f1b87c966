"""Text for people; that of others, such as a board's, is made visible: a terminal obeys control characters."""

from __future__ import annotations

from collections.abc import Mapping


def visible(text: str, lines: bool = False) -> str:
    """`text` with an escape instead of whatever is not printed: control characters, and what turns the direction.

    lines: ends of lines and tabs stay.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        character
        if character.isprintable() or character in kept
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def rounds_in_words(rounds: Mapping[str, int]) -> str:
    """What was so in how many rounds: "0.5 in 1 round, 0.25 in 37 rounds"; of only one thing, what it was."""
    if len(rounds) == 1:
        return next(iter(rounds))
    return ", ".join(f"{what} in {count} round{'' if count == 1 else 's'}" for what, count in rounds.items())
