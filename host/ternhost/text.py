"""Text for people.

Text from outside, such as a board's, is escaped, because a terminal obeys control characters.
"""

import re
from collections.abc import Mapping
from html import escape

_LONG = re.compile(r"\S{40}(?=\S)")  # 40 characters of a word that goes on


def visible(text: str, lines: bool = False) -> str:
    """Return a text with escapes instead of unprintable characters, such as control characters.

    A no-break space is not escaped. lines: newlines and tabs are not escaped either.
    """
    if text.isprintable():
        return text
    kept_characters = "\u00a0"  # a no-break space
    if lines:
        kept_characters += "\n\t"
    shown = ""
    for character in text:
        if character.isprintable() or character in kept_characters:
            shown += character
        else:
            shown += character.encode("unicode_escape").decode()
    return shown


def brief(text: str, most: int = 600, lines: bool = False) -> str:
    """Return a text as `visible` does, shortened to at most so many characters.

    The default is more than any name and any paragraph of tern has.
    """
    shown = visible(text, lines)
    if len(shown) <= most:
        return shown
    return shown[: most - 1] + "…"


def as_html(text: object) -> str:
    """Return a text as HTML, shortened as `brief` does.

    Newlines stay. A word that is too long for a line may be broken after every 40 characters: a
    zero-width space marks the places, and becomes a <wbr>.
    """
    with_breaks = _LONG.sub("\\g<0>\u200b", brief(str(text), lines=True))
    return escape(with_breaks).replace("\u200b", "<wbr>")


def counted(n: int, what: str) -> str:
    """Return a number of something in words: "1 report", "20 reports"."""
    if n == 1:
        return f"1 {what}"
    return f"{n:,} {what}s"


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
