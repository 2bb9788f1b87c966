"""What the title of a column says: which quantity is in the column, and in which unit.

A title is read strictly. If something stands where a unit may stand and is none, the unit is not
known, and the user is asked for it. Otherwise an energy could be wrong by a factor of 1000.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ternbench.exports import units
from ternbench.exports.units import CURRENT, POWER, TIME, VOLTAGE, Unit

MARKER = "marker"

# Words of titles in lower case, by quantity: in English, German, French, Spanish and Italian.
_WORDS = {
    TIME: "time times timestamp timestamps t elapsed clock datetime date zeit zeitstempel uhrzeit "
    "temps tiempo tempo",
    CURRENT: "current currents curr amperage strom courant corriente corrente",
    VOLTAGE: "voltage voltages u spannung tension tensión voltaje tensione",
    POWER: "power leistung puissance potencia potenza",
    MARKER: "marker markers mark trigger trig digital logic sync gpi gpio pin",
}
# A column whose title has one of these words is not what the board draws: it is a setting, an
# extreme, a sum, or a voltage elsewhere. Users can still name it.
_WORDS_OF_OTHERS = (
    "limit lim set setpoint target max maximum min minimum peak pk pp rms std stdev stddev deviation "
    "sigma high hi low lo ac ocp change increment previous prev next median div "
    "range offset error err uncertainty compliance threshold thresh shunt sense lsb raw adc count "
    "counts code ref reference noise cumulative accumulated integral delta dt di diff interval step "
    "period duration energy charge capacity resistance temperature temp frequency factor index gain "
    "status log ln db dbm squared square normalised normalized norm "
    "maximal minimal spitze spitzen effektiv effektivwert soll sollwert grenze grenz grenzwert "
    "begrenzung máx mín máximo máxima mínimo mínima massimo massima minimo minima "
    "limite límite"
)
# The same in Chinese and Japanese, whose words have no blanks between them.
_SIGNS_OF_OTHERS = [
    "最大",
    "最小",
    "峰值",
    "有效",
    "限制",
    "限流",
    "制限",
    "设定",
    "設定",
    "目标",
    "目標",
]
# A power or a change of a quantity instead of the quantity itself.
_POWERS_AND_CHANGES = re.compile(r"\b[IVUP][\u00b2\u00b3]|[\u0394\u2206]")
_WORDS_OF_AVERAGES = "avg average mean dc value inst instantaneous moyenne mittel"
_REMARKS_ON_TIMES = "utc gmt local iso iso8601 abs absolute rel relative"

_QUANTITY_OF_WORD = {word: quantity for quantity, words in _WORDS.items() for word in words.split()}
_OTHER_WORDS = frozenset(_WORDS_OF_OTHERS.split())
# Those that other words may be joined to.
_LONG_WORDS = [word for word in _QUANTITY_OF_WORD if len(word) > 3]
_AVERAGES = frozenset(_WORDS_OF_AVERAGES.split())
# What stands in brackets beside a quantity and is no unit.
_REMARKS = _AVERAGES | _OTHER_WORDS | set(_QUANTITY_OF_WORD) | set(_REMARKS_ON_TIMES.split())

# Symbols of physics, alone or with what they are measured at: I, Idd, Vbus, P_load.
_PLACES = "(?:dd|cc|ee|ss|bat|batt|bus|in|out|load|dut|main|sys|supply|avg|mean)?"
_SYMBOLS = {
    CURRENT: re.compile(f"i{_PLACES}"),
    VOLTAGE: re.compile(f"v{_PLACES}"),
    POWER: re.compile(f"p{_PLACES}"),
}
# Inputs of instruments: D0, DI1, IN0, GPI2, GPIO15.
_INPUT = re.compile(r"(?:d|di|dio|in|gpi|gpio)\d+")
_INPUTS = re.compile(r"\bD(\d+)\s*(?:[-_:\u2013]|\.\.\.?|to)\s*D?(\d+)\b", re.I)

_BRACKETS = re.compile(r"[(\[{<]([^()\[\]{}<>]*)[)\]}>]")
# A factor beside the quantity, as in "Current x10 (mA)".
_FACTOR = re.compile(
    r"[x\u00d7*\u00b7/^]\s*\d|\d\s*[\u00d7*%]|(?<!\w)\d+\s*x|\b\d*e[-+]?\d|\d\^|^\s*[-\u2212]", re.I
)
_AFTER_MARK = re.compile(r"^(.*?)(?:\s+in\s+|\s*[/,;:]\s*)(\S.*)$")
_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class Title:
    """What a title says.

    - name: the title itself
    - quantity: what is in the column, such as "current"; None if that is not known
    - unit: its unit; None if the title names none, or one that is not understood
    - unclear: what stands in the place of a unit and is not understood; empty for nothing
    - is_other: the column is known not to be what the board draws at a time, such as a limit
    - inputs: the names of the digital inputs in a column of bits, such as D0 to D7, in the order of
      the title
    """

    name: str
    quantity: str | None
    unit: Unit | None = None
    unclear: str = ""
    is_other: bool = False
    inputs: tuple[str, ...] = ()


def parse(name: str, unit_below: str = "") -> Title:
    """Return what a title says.

    unit_below: the unit that a row of units below the titles names for the column.
    """
    inputs = _inputs_in(name)
    if inputs:
        return Title(name, MARKER, inputs=inputs)
    unit, unclear, rest = _split(units.plain(name))
    if unit_below:
        below = units.parse(unit_below.strip("()[]{}<> "))
        if below is None:
            unit, unclear = None, unit_below
        elif unit is not None and unit != below:
            unclear = f"{unit.symbol} and {unit_below}"
            unit = None
        else:
            unit, unclear = below, ""
    words = _words_of(rest)
    quantity = _quantity_of(words, unit)
    if quantity is None and unclear:  # such as MV: perhaps a voltage
        likely_unit = units.parse(unclear.lower())
        quantity = likely_unit.quantity if likely_unit else None
    if quantity == MARKER:
        unclear = ""
    elif unit is not None and quantity != unit.quantity:
        unclear = unit.symbol
        unit = None
    is_other = _is_other(name, words)
    return Title(name, quantity, unit, unclear, is_other)


def _is_other(name: str, words: Sequence[str]) -> bool:
    """Return whether a title is that of a limit, an extreme and the like.

    Its words may be joined to the quantity, as in Imax, currentmax and Strombegrenzung.
    """
    if _POWERS_AND_CHANGES.search(name) or any(sign in name for sign in _SIGNS_OF_OTHERS):
        return True
    for word in words:
        if word in _OTHER_WORDS or (word[1:] in _OTHER_WORDS and word[0] in "ivup"):
            return True
        for quantity in _LONG_WORDS:
            if word.removeprefix(quantity) in _OTHER_WORDS:
                return True
            if word.removesuffix(quantity) in _OTHER_WORDS:
                return True
    return False


def are_channels(name: str, names: Sequence[str]) -> bool:
    """Return whether the last letter of a title such as current_a seems to count channels.

    It does if there is a current_b or a current_1 as well, or a B beside an A.
    """
    stem, letter = name[:-1], name[-1:]
    if letter not in ("a", "A") or not (stem.endswith("_") or not stem):
        return False
    others = {f"{stem}{other}" for other in "bBcC0123"}
    return not others.isdisjoint(names)


def _inputs_in(name: str) -> tuple[str, ...]:
    """Return the names of the inputs in a title such as D0-D7 or D7-D0; empty for other titles."""
    match = _INPUTS.search(name)
    if match is None:
        return ()
    first, last = int(match[1]), int(match[2])
    step = 1 if last >= first else -1
    return tuple(f"D{number}" for number in range(first, last + step, step))


def _split(name: str) -> tuple[Unit | None, str, str]:
    """Divide a title into its unit, what is no unit but stands in its place, and the rest."""
    contents = [content.strip() for content in _BRACKETS.findall(name)]
    rest = _BRACKETS.sub(" ", name).strip()
    remarks = ""
    found: list[Unit] = []
    unclear = ""
    for content in contents:
        words = set(_words_of(content))
        text = _without_averages(content)
        unit = None
        if text != "na":  # which is more often "not available"
            unit = units.parse(text)
        if unit is not None:
            found.append(unit)
        elif words <= _REMARKS:
            remarks += f" {content}"
        else:
            unclear = content
    if len(found) > 1:
        unclear = " ".join(contents)
    if found and _FACTOR.search(rest):
        unclear = name
    if found or unclear:
        unit = None if unclear else found[0]
        return unit, unclear, rest + remarks
    unit, unclear, rest = _split_without_brackets(rest)
    return unit, unclear, rest + remarks


def _split_without_brackets(name: str) -> tuple[Unit | None, str, str]:
    """Divide a title such as "I/mA", "I, mA", "current_mA" or "milliamps", as `_split` does."""
    name = _without_averages(name)
    whole = units.parse(name)
    if whole is not None:
        return whole, "", ""
    if _is_capital_unit(name):
        return None, name, ""
    match = _AFTER_MARK.match(name)
    if match:
        text = _without_averages(match[2])
        if text == name or not text:
            return None, "", name
        unit = units.parse(text)
        return unit, "" if unit else text, match[1]
    return _split_last_word(name)


def _split_last_word(name: str) -> tuple[Unit | None, str, str]:
    """Divide a title whose last word may be a unit, such as current_mA or "Current milli amps"."""
    parts = re.split(r"([\s_.\-]+)", name)
    for count in (3, 1):  # of parts that are the unit: two words with what divides them, or one
        if len(parts) <= count:
            continue
        text = "".join(parts[-count:]).replace("_", " ")
        stem = "".join(parts[: -count - 1])
        unit = units.parse(text)
        if unit is None:
            if count == 1 and _is_capital_unit(text):
                return None, text, stem
            continue
        divider = parts[-count - 1]
        # "Current A" may be the current of channel A, and min is more often a minimum. A number
        # before the unit, as in 0.1 mA, may belong to it.
        is_channel = text in ("A", "a") and divider != "_"
        has_number = parts[-count - 2][:1].isdigit()
        if is_channel or has_number or text.lower() == "min":
            return None, text, stem
        return unit, "", stem
    first_unit = units.parse(parts[0])  # as in "mA Current"
    if (
        first_unit is not None
        and len(parts) > 1
        and len(parts[0]) > 1
        and parts[0].lower() != "min"
    ):
        return first_unit, "", "".join(parts[2:])
    return _split_joined(name)


def _split_joined(name: str) -> tuple[Unit | None, str, str]:
    """Divide a title such as currentmA or timeMs, whose unit follows the quantity directly."""
    lower = name.lower()
    words = sorted(_QUANTITY_OF_WORD, key=len, reverse=True)
    for word in words:
        end = name[len(word) :]
        if len(word) < 4 or not lower.startswith(word) or not end:
            continue
        if end[0].isupper() and end[1:].islower():  # the capital letter begins a word, as in timeMs
            end = end.lower()
        unit = units.parse(end)
        if unit is not None and len(end) > 1 and end != "min":
            return unit, "", word
        if _is_capital_unit(end):
            return None, end, word
    return None, "", name


def _is_capital_unit(text: str) -> bool:
    """Return whether a text would be a unit in small letters, such as MA."""
    return text.isupper() and units.parse(text.lower()) is not None


def _without_averages(text: str) -> str:
    """Return a text without words such as "avg" at its beginning and its end."""
    words = "|".join(sorted(_AVERAGES))
    text = re.sub(rf"^(?:(?:{words})\b[\s_]*)+", "", text.strip(), flags=re.I)
    return re.sub(rf"(?:[\s_,]*(?<![^\W_])(?:{words}))+$", "", text, flags=re.I).strip()


def _words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; D0 and GPI1 are words, too."""
    words = []
    spaced = _CAMEL.sub(" ", text.replace("_", " "))
    for part in re.split(r"[^\w]+", spaced):
        lower = part.lower()
        if _INPUT.fullmatch(lower):
            words.append(lower)
        else:
            words += [match[0].lower() for match in _TOKEN.finditer(part)]
    return words


def _quantity_of(words: Sequence[str], unit: Unit | None) -> str | None:
    """Return the quantity that words and unit name; None if they name none or contradict each other."""
    named = set()
    for word in words:
        if word in _QUANTITY_OF_WORD:
            named.add(_QUANTITY_OF_WORD[word])
        elif _INPUT.fullmatch(word):
            named.add(MARKER)
    symbols = set()
    for quantity, pattern in _SYMBOLS.items():
        if any(map(pattern.fullmatch, words)):
            symbols.add(quantity)
    if not named or (unit is not None and unit.quantity in symbols):
        named |= symbols
    if MARKER in named and (unit is None or unit.quantity == VOLTAGE):
        return MARKER
    named.discard(MARKER)
    if unit is not None and (not named or unit.quantity in named):
        return unit.quantity
    if len(named) == 1:
        return named.pop()
    if TIME in named:  # "current time" is a time
        return TIME
    return None
