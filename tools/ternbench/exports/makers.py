"""Exports whose titles do not say all, as the makers' programs write them.

PPK2's program and Monsoon's PowerTool name quantities and units in their titles, and need nothing
here. docs/guides/measuring.md names the documents.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ternbench.exports import titles, units
from ternbench.exports.titles import MARKER, Title
from ternbench.exports.units import CURRENT, POWER, TIME, VOLTAGE
from ternhost.datasets.tables.reading import RawTable

_SECONDS = units.parse("s")
_SI = {CURRENT: units.parse("A"), VOLTAGE: units.parse("V"), POWER: units.parse("W")}

# Joulescope's program names a signal by its source and a letter, such as JS220-001122.i.
_JOULESCOPE_SIGNAL = re.compile(r"[A-Za-z]+\d*-?\w*\.([ivpr0-37T])")
_JOULESCOPE_LETTERS = {"i": CURRENT, "v": VOLTAGE, "p": POWER}
# Its recordings of statistics, with words for the titles of the signals.
_JOULESCOPE_WORDS = {"time": TIME, "current": CURRENT, "voltage": VOLTAGE, "power": POWER}
_JOULESCOPE_OTHERS = re.compile(r"time|charge|energy|current_range|in\d|gpi\[?\d\]?|trigger_in")
# Otii's program writes a file for each channel, such as "Main current - Ace.csv".
_OTII_FILE = re.compile(r"(?:(?:main|adc) (current|voltage|power)|gpi\d)\b", re.I)
_OTII_COLUMNS = ("Timestamp", "Value")


@dataclass(frozen=True)
class Export:
    """What is known of an export.

    maker: of the instrument. titles: what titles mean, by title. has_wrong_times: the column of
    times is not what its title says.
    """

    maker: str = ""
    titles: dict[str, Title] = field(default_factory=dict)
    has_wrong_times: bool = False


def recognise(table: RawTable, path: Path) -> Export:
    """Return what is known of an export, by its titles and the name of its file."""
    columns = table.columns
    if table.names_in_comment and all(map(_is_joulescope, columns)):
        return Export("Joulescope", _joulescope(columns))
    if columns == _OTII_COLUMNS:
        match = _OTII_FILE.match(path.name)
        known = {"Timestamp": Title("Timestamp", TIME, _SECONDS)}
        if match:
            quantity = (match[1] or MARKER).lower()
            known["Value"] = Title("Value", quantity, _SI.get(quantity))
        return Export("Otii", known)
    if columns[:2] == ("Time(ms)", "Main(mA)"):
        # PyMonsoon writes seconds under this title, and one time for all samples of a packet.
        return Export("Monsoon", has_wrong_times=True)
    return Export()


def _is_joulescope(name: str) -> bool:
    """Return whether Joulescope's program writes such a title."""
    is_word = name in _JOULESCOPE_WORDS or _JOULESCOPE_OTHERS.fullmatch(name)
    return bool(is_word or _JOULESCOPE_SIGNAL.fullmatch(name))


def _joulescope(columns: tuple[str, ...]) -> dict[str, Title]:
    """Return what the titles of Joulescope's program mean: all units are SI units."""
    known = {}
    for name in columns:
        quantity = _JOULESCOPE_WORDS.get(name.lower())
        match = _JOULESCOPE_SIGNAL.fullmatch(name)
        if match:
            quantity = _JOULESCOPE_LETTERS.get(match[1], None if match[1] == "r" else MARKER)
        if quantity == TIME:
            known[name] = Title(name, TIME, _SECONDS)
        elif quantity is not None:
            known[name] = Title(name, quantity, _SI.get(quantity))
        else:
            known[name] = titles.parse(name)
    return known
