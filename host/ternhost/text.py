"""Text for people.

Text from outside, such as a board's, is escaped, because a terminal obeys control characters.
"""

import re
from collections.abc import Mapping
from html import escape

_LONG = re.compile(r"\S{40}(?=\S)")


def visible(text: str, lines: bool = False) -> str:
    """`text` with escapes instead of unprintable characters, such as control characters.

    A no-break space stays; lines: so do newlines and tabs.
    """
    if text.isprintable():
        return text
    kept_characters = "\u00a0\n\t" if lines else "\u00a0"
    shown = ""
    for character in text:
        if character.isprintable() or character in kept_characters:
            shown += character
        else:
            shown += character.encode("unicode_escape").decode()
    return shown


def brief(text: str, most: int = 600, lines: bool = False) -> str:
    """`text` as `visible`, cut where it is longer than any name and any paragraph of tern."""
    shown = visible(text, lines)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def as_html(text: object) -> str:
    """A text as HTML, as `brief`, with its ends of lines.

    A word that is too long for a line may be broken.
    """
    with_breaks = _LONG.sub("\\g<0>\u200b", brief(str(text), lines=True))
    return escape(with_breaks).replace("\u200b", "<wbr>")


def counted(n: int, what: str) -> str:
    """A number of something, for people: "1 report", "20 reports"."""
    noun = what if n == 1 else f"{what}s"
    return f"{n:,} {noun}"


def clipped(rounds: Mapping[str, int], sign: str = "+-") -> str:
    """Describe for people the bounds to which gradients were clipped, and in how many rounds.

    rounds: the number of rounds by bound. An example of the result is "gradients were clipped to
    +-0.5 in 1 round, +-0.25 in 37 rounds".
    """
    descriptions = []
    for bound, round_count in rounds.items():
        text = f"{sign}{bound}"
        if len(rounds) > 1:
            text += f" in {counted(round_count, 'round')}"
        descriptions.append(text)
    return f"gradients were clipped to {', '.join(descriptions)}"
