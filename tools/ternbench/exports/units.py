"""Units of time, current, voltage and power, as people and instruments write them.

What counts here is not to know many units, but to refuse a text that may mean two things, such as
"MA" for megaampere or milliampere. A library of units would take one of them, so this is a short
table.
"""

import re
import unicodedata
from dataclasses import dataclass

TIME, CURRENT, VOLTAGE, POWER = "time", "current", "voltage", "power"

_PREFIXES = {"": 1.0, "p": 1e-12, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3}
_PREFIX_WORDS = {"pico": "p", "nano": "n", "micro": "u", "milli": "m", "kilo": "k"}
# A symbol: the quantity that it measures.
_SYMBOLS = {"s": TIME, "A": CURRENT, "V": VOLTAGE, "W": POWER}
# A word in lower case: the symbol that it stands for.
_WORDS = {
    **dict.fromkeys(["sec", "secs", "second", "seconds", "sekunden", "secondes"], "s"),
    **dict.fromkeys(["amp", "amps", "ampere", "amperes"], "A"),
    **dict.fromkeys(["volt", "volts"], "V"),
    **dict.fromkeys(["watt", "watts"], "W"),
}
# Times that have no prefixes, in seconds.
_LONG_TIMES = {
    **dict.fromkeys(["min", "mins", "minute", "minutes"], ("min", 60.0)),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], ("h", 3600.0)),
}
_PREFIXED_SYMBOL = re.compile("([pnumk]?)([sAVW])")
# As file names and programs write them: ma for mA. Capital letters are not read like this, since
# MA would be a megaampere.
_SMALL_SYMBOL = re.compile("([pnumk]?)([savw])")
_WORD_AFTER_PREFIX = re.compile(f"([pnumk])({'|'.join(_WORDS)})")
_WORD_AFTER_WORD = re.compile(f"(?:({'|'.join(_PREFIX_WORDS)})[ -]?)?({'|'.join(_WORDS)})")


@dataclass(frozen=True)
class Unit:
    """A unit: its quantity, such as "current", its usual symbol, and how many SI units it is."""

    quantity: str
    symbol: str
    factor: float


def plain(text: str) -> str:
    """Return a text with both micro signs as "u", and other characters in their usual form."""
    return unicodedata.normalize("NFKC", text).replace("\u03bc", "u")


def parse(text: str) -> Unit | None:
    """Return the unit that a text names, such as "mA", "milliamps" or "usec"; None if it is no unit.

    It is None, too, for a text with capital letters that leaves the prefix open, such as "MA".
    """
    text = plain(text).strip()
    match = _PREFIXED_SYMBOL.fullmatch(text) or _SMALL_SYMBOL.fullmatch(text)
    if match:
        symbol = match[2] if match[2] == "s" else match[2].upper()
        return _unit(match[1], symbol)
    if text == "S":  # seconds in a title of capital letters
        return _unit("", "s")
    match = _WORD_AFTER_PREFIX.fullmatch(text[:1] + text[1:].lower())
    if match:
        return _unit(match[1], _WORDS[match[2]])
    lower = text.lower()
    match = _WORD_AFTER_WORD.fullmatch(lower)
    if match:
        prefix = _PREFIX_WORDS[match[1]] if match[1] else ""
        return _unit(prefix, _WORDS[match[2]])
    if lower in _LONG_TIMES and text != "H":
        symbol, seconds = _LONG_TIMES[lower]
        return Unit(TIME, symbol, seconds)
    return None


def _unit(prefix: str, symbol: str) -> Unit:
    return Unit(_SYMBOLS[symbol], prefix + symbol, _PREFIXES[prefix])
