"""Files of instruments, put together at random, never give a wrong energy.

Each file has the same current, whose energy is known. Its titles, units, times, numbers and further
columns are drawn. Such a file gives the energy that is in it, or it is refused.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ternbench import energy
from ternbench.exports import reader
from ternbench.exports.reader import Choices
from ternhost.errors import TernError

RATE = 1000
REST, WORK, WINDOWS = 15, 20, 6  # samples, samples, and a number
IDLE, BUSY, VOLTS = 0.010, 0.030, 5.0
MICROJOULES = (BUSY - IDLE) * VOLTS * WORK / RATE * 1e6
NUMBERS = range(REST + WINDOWS * (WORK + REST))
IS_BUSY = [(number - REST) % (WORK + REST) < WORK and number >= REST for number in NUMBERS]
SECONDS = [number / RATE for number in NUMBERS]
AMPERES = [BUSY if is_busy else IDLE for is_busy in IS_BUSY]

# How people write units, and what they mean by it. Some mean the wrong thing by it.
CURRENTS = {
    **dict.fromkeys(["A", "a", "Amps", "ampere", "AMPS"], 1.0),
    **dict.fromkeys(
        ["mA", "ma", "MA", "Ma", "m A", "mAmp", "milliamps", "milli Amps", "mA DC"], 1e-3
    ),
    **dict.fromkeys(["µA", "μA", "uA", "ua", "UA", "Ua", "ΜA", "uAmps", "microamps", "㎂"], 1e-6),
    **dict.fromkeys(["nA", "na", "NA", "Na", "nanoamps"], 1e-9),
    **dict.fromkeys(["0.1 mA", "mA/10", "x0.1 mA", "100µA", "10^-4 A", "1e-4A"], 1e-4),
    **dict.fromkeys(["", "?", "arb", "LSB", "-", "mAh", "V", "%", "main"], 1e-5),
}
TIMES = {
    **dict.fromkeys(["s", "S", "sec", "Seconds"], 1.0),
    **dict.fromkeys(["ms", "MS", "Ms", "mS", "msec", "milliseconds", "milli sec"], 1e-3),
    **dict.fromkeys(["us", "µs", "μs", "US", "usec", "microseconds"], 1e-6),
    **dict.fromkeys(["ns", "NS", "nsec", "nanoseconds"], 1e-9),
    **dict.fromkeys(["min", "minutes", "m", "M"], 60.0),
    **dict.fromkeys(["h", "hours", "H"], 3600.0),
    **dict.fromkeys(["100 us", "ticks", "", "0.1ms"], 1e-4),
}
VOLTAGES = {**dict.fromkeys(["V", "v", "Volts"], 1.0), **dict.fromkeys(["mV", "MV", "mv"], 1e-3)}
SHAPES = [
    "{0} ({1})",
    "{0}({1})",
    "{0} [{1}]",
    "{0}/{1}",
    "{0} / {1}",
    "{0}, {1}",
    "{0}_{1}",
    "{0} {1}",
    "{0}{1}",
    "{0}.{1}",
    "{0}-{1}",
    "{0} in {1}",
    "{0}: {1}",
    "{0} = {1}",
    "{1}",
    "{1} {0}",
    "{1}_{0}",
    "{0} ({1}) avg",
    "{0} avg [{1}]",
    "{0}_{1}_mean",
    "{0} (main) ({1})",
    "{0} ({1}, avg)",
]
CURRENT_WORDS = ["current", "Current", "I", "i", "Idd", "i_dut", "Strom", "Main", "CH1", "Amperage"]
CURRENT_WORDS += ["current draw", "Avg Current", "Supply current", "VDD current", "Power supply I"]
TIME_WORDS = [
    "time",
    "Time",
    "Timestamp",
    "t",
    "elapsed",
    "Zeit",
    "Sample time",
    "current time",
    "T",
]
VOLTAGE_WORDS = ["voltage", "Voltage", "U", "V", "Vbus", "Supply voltage", "Spannung", "Main"]
MARKER_WORDS = ["marker", "Trigger", "D0", "GPI1", "in0", "digital", "MARKER"]
CASES = [str, str, str, str.upper, str.lower, str.title]
# Further columns: a title, and the number in it.
FURTHER = {
    "current_limit_a": 0.5,
    "Max Current (mA)": 40,
    "Current 2 (mA)": 7,
    "Energy (J)": 0.002,
    "Charge (mC)": 3,
    "Shunt Voltage (mV)": 3,
    "USB Voltage (V)": 4.9,
    "Temperature (C)": 25,
    "Resistance": 100,
    "LED [mA]": 2,
    "dt (ms)": 1,
    "D1": 0,
    "Power (W)": 0.1,
    "Current range": 3,
    "Time zone": 1,
    "I2": 0.02,
}
SEPARATORS = [",", ",", ";", "\t", " "]


@dataclass
class Table:
    """The columns of a file: titles, units below them, and the cells of each column."""

    titles: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    columns: list[list[str]] = field(default_factory=list)

    def add(self, title, unit, cells):
        self.titles.append(title)
        self.units.append(unit)
        self.columns.append(cells)


def formatted(values, digits, grouped):
    return [f"{value:{',' if grouped else ''}.{digits}f}" for value in values]


def dated(layout):
    start = datetime(2024, 11, 28, 8, tzinfo=UTC)
    moments = [start + timedelta(milliseconds=number) for number in NUMBERS]
    return [moment.strftime(layout) for moment in moments]


@st.composite
def files(draw):
    """The text of a file, and the settings with which it is read."""
    table = Table()
    case = draw(st.sampled_from(CASES))
    has_row_of_units = draw(st.integers(0, 5)) == 0
    grouped = draw(st.integers(0, 5)) == 0

    def named(words, units):
        unit = draw(st.sampled_from(sorted(units)))
        word = draw(st.sampled_from(words))
        if has_row_of_units:
            return case(word), unit
        title = draw(st.sampled_from(SHAPES)).format(word, unit)
        return case(title).strip(), unit

    title, unit = named(TIME_WORDS, TIMES)
    if draw(st.integers(0, 5)) == 0:
        layouts = ["%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d %H:%M:%S.%f", "%H:%M:%S.%f", "%M:%S.%f"]
        cells = dated(draw(st.sampled_from(layouts)))
    else:
        factor = TIMES[unit]
        shift = draw(st.sampled_from([0, 0, 12.5, 1.7e6, 1732780000])) / factor
        digits = draw(st.sampled_from([0, 3, 6, 9]))
        cells = formatted([value / factor + shift for value in SECONDS], digits, grouped)
    table.add(title, unit, cells)

    title, unit = named(CURRENT_WORDS, CURRENTS)
    digits = draw(st.sampled_from([0, 1, 3, 6]))
    values = [value / CURRENTS[unit] for value in AMPERES]
    cells = formatted(values, digits, grouped)
    if len(set(cells)) < 2 or abs(float(cells[0].replace(",", "")) / values[0] - 1) > 0.001:
        cells = formatted(values, 6, grouped)  # the digits must hold the current
    table.add(title, unit, cells)

    volts = None
    if draw(st.booleans()):
        title, unit = named(VOLTAGE_WORDS, VOLTAGES)
        table.add(title, unit, [f"{VOLTS / VOLTAGES[unit]:g}"] * len(NUMBERS))
    else:
        volts = VOLTS
    high, low = draw(st.sampled_from([("1", "0"), ("true", "false"), ("H", "L"), ("3.3", "0.1")]))
    table.add(
        case(draw(st.sampled_from(MARKER_WORDS))),
        "",
        [high if is_busy else low for is_busy in IS_BUSY],
    )
    for name in draw(st.lists(st.sampled_from(sorted(FURTHER)), max_size=2, unique=True)):
        table.add(name, "", [f"{FURTHER[name]:g}"] * len(NUMBERS))

    separator = draw(st.sampled_from(SEPARATORS))
    has_decimal_commas = separator != "," and draw(st.booleans())
    order = draw(st.permutations(range(len(table.titles))))
    rows = [[table.titles[place] for place in order]]
    if has_row_of_units:
        rows.append([table.units[place] for place in order])
    for number in NUMBERS:
        cells = [table.columns[place][number] for place in order]
        if has_decimal_commas:
            cells = [cell.translate(str.maketrans(",.", ".,")) for cell in cells]
        rows.append(cells)
    lines = []
    for row in rows:
        quoted = [f'"{cell}"' if separator in cell or "," in cell else cell for cell in row]
        lines.append(separator.join(quoted))
    return "\n".join(lines) + "\n", Choices(volts=volts)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(files())
def test_a_file_at_random_gives_its_energy_or_is_refused(tmp_path_factory, file):
    text, choices = file
    path = tmp_path_factory.getbasetemp() / "random.csv"
    path.write_text(text)
    try:
        report = energy.measure(reader.read(path, choices), 1, "x")
    except TernError:
        return
    assert report.net == pytest.approx(MICROJOULES, rel=0.01), text[:300]
