"""Text for people. Text from outside, such as a board's, is escaped, because a terminal obeys control characters."""

from __future__ import annotations

from collections.abc import Mapping


def visible(text: str, lines: bool = False) -> str:
    """`text` with escapes instead of unprintable characters, such as control and bidirectional characters.

    lines: newlines and tabs stay.
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


def brief(text: str, most: int = 400, lines: bool = False) -> str:
    """`text` as `visible`, cut where it is longer than any name and any sentence of tern."""
    shown = visible(text, lines)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def counted(n: int, what: str) -> str:
    """A number of something, for people: "1 report", "20 reports"."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def clipped(rounds: Mapping[str, int]) -> str:
    """Bounds and their numbers of rounds: "gradients were clipped to +-0.5 in 1 round, +-0.25 in 37 rounds"."""
    several = len(rounds) > 1
    bounds = [f"+-{bound}" + f" in {counted(n, 'round')}" * several for bound, n in rounds.items()]
    return f"gradients were clipped to {', '.join(bounds)}"
