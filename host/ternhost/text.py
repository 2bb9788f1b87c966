"""Text for people.

Text from outside, such as a board's, is escaped, because a terminal obeys control characters.
"""

import re
from collections.abc import Mapping
from html import escape

_LONG = re.compile(r"\S{40}(?=\S)")


def visible(text: str, lines: bool = False) -> str:
    """`text` with escapes instead of unprintable characters, such as control and bidirectional
    characters.

    A no-break space stays; lines: so do newlines and tabs.
    """
    if text.isprintable():
        return text
    kept = "\u00a0\n\t" if lines else "\u00a0"
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode()
        for one in text
    )


def brief(text: str, most: int = 600, lines: bool = False) -> str:
    """`text` as `visible`, cut where it is longer than any name and any paragraph of tern."""
    shown = visible(text, lines)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def as_html(text: object) -> str:
    """A text as HTML, as `brief`, with its ends of lines; a word that is too long for a line may be
    broken.
    """
    return escape(_LONG.sub("\\g<0>\u200b", brief(str(text), lines=True))).replace(
        "\u200b", "<wbr>"
    )


def counted(n: int, what: str) -> str:
    """A number of something, for people: "1 report", "20 reports"."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def clipped(rounds: Mapping[str, int], sign: str = "+-") -> str:
    """Bounds and their numbers of rounds: "gradients were clipped to +-0.5 in 1 round, +-0.25 in 37
    rounds".
    """
    several = len(rounds) > 1
    bounds = [
        f"{sign}{bound}" + f" in {counted(n, 'round')}" * several for bound, n in rounds.items()
    ]
    return f"gradients were clipped to {', '.join(bounds)}"
