"""Text of others, such as a board's, before it is shown: a terminal obeys control characters, people believe lines."""

from __future__ import annotations


def visible(text: str, lines: bool = False) -> str:
    """`text` with an escape in place of whatever is not printed: control characters, and what turns the direction.

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
