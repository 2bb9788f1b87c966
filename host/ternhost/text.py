"""Text for people.

Text from outside, such as a board's, is escaped, because a terminal obeys control characters.
"""

import codecs
import contextlib
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from html import escape
from typing import TextIO

# What stands for a character where the encoding of a terminal or a file lacks it.
_PLAIN = {
    "\u00a0": " ",  # a no-break space
    "\u00b5": "u",
    "\u03bc": "u",
    "\u2013": "-",
    "\u2014": "-",
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
    "\u2026": "...",
}
PLAIN = "ternhost.plain"
"""The name of an error handler for encodings: characters that are missing get their plain twins.

A character without a twin is escaped, so that nothing is lost.
"""

_MOST_DIGITS = 18  # of a number that has room in 64 bits
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


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what stands for characters that cannot be encoded, and where the text goes on.

    A byte of a file name that is not UTF-8, for which Python has a surrogate, becomes itself again.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), error.start + 1
    escaped = character.encode("ascii", "backslashreplace").decode("ascii")
    return _PLAIN.get(character, escaped), error.start + 1


codecs.register_error(PLAIN, _plain)


def wrapped(text: str, columns: int) -> str:
    """Return a text whose lines fit a terminal: longer ones are broken at blanks.

    Words and numbers stay whole, and so do lines that are commands of tern, which people copy. The
    rest of a line is indented by two more blanks than the line.
    """
    lines = []
    for line in text.split("\n"):
        if len(line) <= columns or line.lstrip().startswith("tern "):
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line,
            columns,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
    return "\n".join(lines)


def columns_of(stream: TextIO) -> int:
    """Return the width of the terminal on which `stream` is, in characters.

    The environment variable COLUMNS counts more than what the terminal says, as in the help.
    """
    if not os.environ.get("COLUMNS", "").isdecimal():
        with contextlib.suppress(OSError, ValueError):
            columns = os.get_terminal_size(stream.fileno()).columns
            if columns:
                return columns
    return shutil.get_terminal_size().columns


def fitting(text: str, stream: TextIO) -> str:
    """Return a text for `stream`: on a terminal, with lines that fit it; elsewhere as it is."""
    if not stream.isatty():
        return text
    return wrapped(text, columns_of(stream))


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


def whole_number(text: str) -> int | None:
    """Return the whole number that a text is in digits 0 to 9; None for any other text.

    A text of more digits than any number that tern counts is no number either.
    """
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    return None


# What people call things, and what tern's options call them.
_SYNONYMS = {
    "average": "mean",
    "frequency": "share",
    "median": "quantile",
    "percentile": "quantile",
    "proportion": "share",
}


def did_you_mean(word: str, known: Iterable[str], rest: str = "") -> str:
    """Return "did you mean ...?" with the most similar of the known words; empty if none is.

    rest: what the user wrote after the word, such as ":3" after the kind of a fleet.
    """
    import difflib  # here, since only an error needs it

    words = list(known)
    similar = difflib.get_close_matches(word, words, n=1)
    if _SYNONYMS.get(word) in words:
        similar = [_SYNONYMS[word]]
    return f"did you mean {similar[0]}{rest}?" if similar else ""


def one_of(word: str, known: Iterable[str]) -> str:
    """Return the hint for a word that is not known: the most similar known one, and all of them."""
    names = list(known)
    return f"{did_you_mean(word, names)} one of: {', '.join(names)}".strip()


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
