"""Kinds of files that programs of instruments export, all of one current with a known energy.

Six windows of 20 ms at 30 mA lie in rests of 30 ms at 10 mA, at 5 V: a report costs 2,000 uJ beyond
idling. Each kind writes this in a way of its own, and some ways are wrong or leave something open.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

RATE = 5000
MICROJOULES = 2000.0
VOLTS = 5.0
_REST, _WORK, _WINDOWS = 150, 100, 6  # samples, samples, and a number
_SAMPLES = _REST + _WINDOWS * (_WORK + _REST)


@dataclass(frozen=True)
class Sample:
    """A sample: its number, seconds, amperes, and whether the marker is high."""

    number: int
    seconds: float
    amperes: float
    marker: bool


def _sample(number):
    in_period = (number - _REST) % (_WORK + _REST)
    is_busy = number >= _REST and in_period < _WORK
    return Sample(number, number / RATE, 0.03 if is_busy else 0.01, is_busy)


SAMPLES = [_sample(number) for number in range(_SAMPLES)]


@dataclass(frozen=True)
class Kind:
    """A file, and what `tern bench energy` must make of it.

    settings: of --meter csv. refused: a word in the message or hint of the refusal; None if the file
    must give the energy. file: its name.
    """

    name: str
    data: bytes
    settings: str = ""
    refused: str | None = None
    file: str = "export.csv"


def changes():
    """The first sample, and those at which the marker has changed."""
    pairs = pairwise(SAMPLES)
    return [SAMPLES[0], *[after for before, after in pairs if before.marker != after.marker]]


Cell = Callable[[Sample], str]


def scaled(quantity, factor=1.0, form=".6f", shift=0.0):
    """A column of seconds, amperes or watts in another unit."""
    values = {
        "s": lambda sample: sample.seconds,
        "A": lambda sample: sample.amperes,
        "W": lambda sample: sample.amperes * VOLTS,
    }
    value = values[quantity]
    return lambda sample: f"{value(sample) * factor + shift:{form}}"


def always(text):
    return lambda sample: text


def marked(high="1", low="0"):
    return lambda sample: high if sample.marker else low


SECONDS, MILLISECONDS = scaled("s"), scaled("s", 1e3, ".3f")
MICROSECONDS = scaled("s", 1e6, ".0f")
AMPERES, MILLIAMPERES, MICROAMPERES = (
    scaled("A"),
    scaled("A", 1e3, ".4f"),
    scaled("A", 1e6, ".3f"),
)
MARKER = marked()
FIVE = always("5")


def lines_of(columns, separator=",", samples=SAMPLES):
    """A line for each sample. columns: functions of a sample."""
    return [separator.join([cell(sample) for cell in columns]) for sample in samples]


def written(header, columns, separator=",", before=(), samples=SAMPLES):
    """A file with a line of titles. before: lines before it."""
    lines = lines_of(columns, separator, samples)
    return "\n".join([*before, header, *lines]) + "\n"


def titled(time, current, cells=(MILLISECONDS, MILLIAMPERES), voltage="voltage_v"):
    """A file with these titles of time and current."""
    return written(f"{time},{current},{voltage},marker", [*cells, FIVE, MARKER])


def with_commas(text):
    """The text with decimal commas and semicolons."""
    return text.replace(",", ";").replace(".", ",")


KINDS: list[Kind] = []


def kind(name, text, settings="", refused=None, file="export.csv", encoding="utf-8"):
    data = text if isinstance(text, bytes) else text.encode(encoding)
    KINDS.append(Kind(name, data, settings, refused, file))


# Titles and units

_SI = titled("time_s", "current_a", (SECONDS, AMPERES))
kind("SI units after underscores", _SI)
for _time, _current in [
    ("t/ms", "I/mA"),
    ("Time (ms)", "Current (mA) avg"),
    ("Time [ms]", "I [mA]"),
    ("time_ms", "current_mA"),
    ("time_ms", "current_ma"),
    ("time_ms", "current_ma_avg"),
    ("timestampMs", "currentMa"),
    ("milliseconds", "milliamps"),
    ("Time(msec)", "Current(mAmps)"),
    ("ms", "mA"),
    ("t in ms", "I in mA"),
    ("Zeit (ms)", "Strom (mA)"),
    ("time.ms", "Main {mA}"),
    ("Time(ms)", '"Avg. current [mA, avg]"'),
]:
    kind(f"titles {_time} and {_current}", titled(_time, _current))
for _current in [
    "Current (µA)",
    "Current (μA)",
    "uAmps",
    "Current [uA]",
    "I/µA",
    "Current micro amps",
]:
    kind(f"title {_current}", titled("Time (ms)", _current, (MILLISECONDS, MICROAMPERES)))
_TABS = written("t, ms\tI, mA\tvoltage_v\tmarker", [MILLISECONDS, MILLIAMPERES, FIVE, MARKER], "\t")
kind("units after commas", _TABS)
kind("a unit after a comma is named", _TABS, settings=',current="I, mA"')
_NANO = (scaled("s", 1e9, ".0f"), scaled("A", 1e9, ".1f"))
kind("nanoseconds and nanoamperes", titled("Time (ns)", "Current (nA)", _NANO))
kind("minutes", titled("Time (min)", "current_ma", (scaled("s", 1 / 60, ".9f"), MILLIAMPERES)))
kind("hours", titled("t [h]", "current_ma", (scaled("s", 1 / 3600, ".12f"), MILLIAMPERES)))
kind(
    "millivolts",
    written("time_s,current_a,U [mV],marker", [SECONDS, AMPERES, always("5000"), MARKER]),
)
_ROW_OF_UNITS = written(
    "Time,Current,Voltage,Marker", [MILLISECONDS, MILLIAMPERES, FIVE, MARKER]
).replace("\n", "\n(ms),(mA),(V),\n", 1)
kind("a row of units", _ROW_OF_UNITS)
kind("a row of units without a unit", _ROW_OF_UNITS.replace("(mA)", "", 1), refused="current=")
kind("a row of units against titles", _SI.replace("\n", "\nms,mA,V,\n", 1), refused="time=")
_CAPITALS = titled("TIME(MS)", "CURRENT(NA)", (MILLISECONDS, scaled("A", 1e9, ".3f")))
kind("capital letters", _CAPITALS, refused="time=")
kind(
    "capital letters whose units are named",
    _CAPITALS,
    settings=",current=CURRENT(NA) in nA,time=TIME(MS) in ms",
)
for _current in [
    "Current (MA)",
    "CURRENT_MA",
    "Current A",
    "currentA",
    "Current",
    "Current (x1000) (A)",
]:
    kind(f"title {_current}", titled("Time (ms)", _current), refused="current=")
kind("a power of ten as a unit", titled("t/ms", "I / 10^-3 A"), refused="current=")
for _current in ["Current x10 (mA)", "Current*10 [mA]", "10 x Current (mA)", "Current/10 (mA)"]:
    kind(f"title {_current}", titled("t/ms", _current), refused="current=")
for _current in ["Current 1e-3 (A)", "I 10^-3 (A)", "Current (mA) e-1", "-Current (mA)"]:
    kind(f"title {_current}", titled("t/ms", _current), refused="current=")
for _current in [
    "Imax (mA)",
    "Irms/mA",
    "Ipk [mA]",
    "ISET_mA",
    "Ilim (mA)",
    "currentmax_ma",
    "Strombegrenzung (mA)",
    "Maximalstrom (mA)",
    "Grenzwert (mA)",
    "Corriente máx (mA)",
    "最大电流(mA)",
    "电流限制(mA)",
    "I² (mA)",
    "Δ I (mA)",
    "Current change (mA)",
    "AC current (mA)",
    "median current (mA)",
]:
    kind(f"the only current is {_current}", titled("t/ms", _current), refused="current=")
kind("Chinese titles", titled("时间(ms)", "电流（mA）"))
kind("a logarithm of a current", titled("t/ms", "log I (mA)"), refused="current=")
kind("a current that charges a battery", titled("t/ms", "Charge current (mA)"), refused="current=")
kind("a current in volts", titled("t/ms", "I (V)"), refused="current=")
kind("a voltage without a unit", titled("t/ms", "I/mA", voltage="Voltage"), refused="voltage=")
kind(
    "channels a and b",
    written(
        "time_s,current_a,current_b,voltage_v,marker", [SECONDS, MILLIAMPERES, FIVE, FIVE, MARKER]
    ),
    refused="current=",
)
kind(
    "a channel a that is named",
    written(
        "time_s,current_a,current_b,voltage_v,marker", [SECONDS, MILLIAMPERES, FIVE, FIVE, MARKER]
    ),
    settings=",current=current_a in mA",
)

# Times

for _unit, _factor in {"seconds": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}.items():
    _since = scaled("s", _factor, ".4f", shift=1732780000 * _factor)
    kind(f"{_unit} since 1970", titled("Timestamp", "current_ma", (_since, MILLIAMPERES)))
kind("times without a unit", titled("Timestamp", "current_ma"), refused="time=")
kind(
    "ms since 1970 as seconds",
    titled("time_s", "current_ma", (scaled("s", 1e3, ".3f", 1732780000e3), MILLIAMPERES)),
    refused="time=",
)
kind(
    "seconds since 1970 as ms",
    titled("time_ms", "current_ma", (scaled("s", 1, ".5f", 1732780000), MILLIAMPERES)),
    refused="time=",
)
_START = datetime(2024, 11, 28, 7, 59, 59, 900000, tzinfo=UTC)


def moment(layout, digits=6, mark="."):
    def cell(sample):
        time = _START + timedelta(microseconds=200 * sample.number)
        return time.strftime(layout).replace("$", f"{mark}{time.microsecond:06d}"[: digits + 1])

    return cell


for _name, _layout in {
    "ISO 8601": "%Y-%m-%dT%H:%M:%S$Z",
    "ISO 8601 with nanoseconds": "%Y-%m-%dT%H:%M:%S$000Z",
    "ISO 8601 with a zone": "%Y-%m-%d %H:%M:%S$+00:00",
    "ISO 8601 without a zone": "%Y-%m-%d %H:%M:%S$",
    "short ISO 8601": "%Y%m%dT%H%M%S$Z",
    "hours, minutes and seconds": "%H:%M:%S$",
}.items():
    kind(_name, titled("Time (UTC)", "current_ma", (moment(_layout), MILLIAMPERES)))
kind(
    "minutes and seconds",
    titled("Time", "current_ma", (lambda sample: f"0:{sample.seconds:07.4f}", MILLIAMPERES)),
)
kind(
    "American dates",
    titled("Time", "current_ma", (moment("%m/%d/%Y %I:%M:%S$ %p"), MILLIAMPERES)),
    refused="line 2",
)
kind(
    "a date that does not exist",
    titled("Time", "current_ma", (moment("2024-02-30 %H:%M:%S$"), MILLIAMPERES)),
    refused="line 2",
)
kind(
    "times past midnight",
    titled(
        "Time",
        "current_ma",
        (
            lambda sample: (
                moment("%H:%M:%S$")(sample).replace("08:00", "00:00").replace("07:59", "23:59")
            ),
            MILLIAMPERES,
        ),
    ),
    refused="goes back",
)
_WITHOUT_TIMES = written("current_ma,voltage_v,marker", [MILLIAMPERES, FIVE, MARKER])
kind("no times", _WITHOUT_TIMES, refused="rate=")
kind("no times, but a rate", _WITHOUT_TIMES, settings=",rate=5000")
kind(
    "numbers of samples, and a rate",
    written(
        "Sample,current_ma,voltage_v,marker",
        [lambda sample: str(sample.number), MILLIAMPERES, FIVE, MARKER],
    ),
    settings=",rate=5e3",
)
kind("a rate that contradicts the times", _SI, settings=",rate=1000", refused="rate=")
_COARSE_TIMES = titled("time_s", "current_ma", (scaled("s", 1, ".3f"), MILLIAMPERES))
kind("times that repeat", _COARSE_TIMES, refused="rate=")
kind("times that repeat, and a wrong rate", _COARSE_TIMES, settings=",rate=1000", refused="rate=")
kind("times that repeat, and a rate", _COARSE_TIMES, settings=",rate=5000")
kind(
    "times that go back",
    written(
        "time_s,current_a,voltage_v,marker",
        [SECONDS, AMPERES, FIVE, MARKER],
        samples=[*SAMPLES[:500], *SAMPLES[400:]],
    ),
    refused="line 502",
)
for _name, _first, _next, _refused in [
    ("a gap in a window", 420, 440, "lost samples"),
    ("a small gap in a rest", 550, 562, None),
    ("a large gap in a rest", 550, 600, "lost samples"),
]:
    _with_gap = SAMPLES[:_first] + SAMPLES[_next:]
    _columns = [SECONDS, AMPERES, FIVE, MARKER]
    _text = written("time_s,current_a,voltage_v,marker", _columns, samples=_with_gap)
    kind(_name, _text, refused=_refused)
kind(
    "a single sample",
    written(
        "time_s,current_a,voltage_v,marker", [SECONDS, AMPERES, FIVE, MARKER], samples=SAMPLES[:1]
    ),
    refused="export",
)
kind(
    "hours for seconds",
    titled("t [h]", "current_ma", (SECONDS, MILLIAMPERES)),
    refused="--anyway",
)
kind(
    "a delta of time", titled("dt_ms", "current_ma", (always("0.2"), MILLIAMPERES)), refused="time="
)

# Numbers and files

kind("semicolons and decimal commas", with_commas(_SI))
kind("tabs", _SI.replace(",", "\t"))
kind("blanks", _SI.replace(",", " "))
kind("UTF-8 with a byte order mark", _SI, encoding="utf-8-sig")
kind("UTF-16", titled("t/ms", "I/µA", (MILLISECONDS, MICROAMPERES)), encoding="utf-16")
kind("Windows-1252", titled("t/ms", "I/µA", (MILLISECONDS, MICROAMPERES)), encoding="cp1252")
kind("lines that end as on Windows", _SI.replace("\n", "\r\n"))
kind("comments", "# recorded on a bench\n# 10 kHz\n" + _SI)
kind("lines before the titles", "Instrument;X1\nExported\n\n" + with_commas(_SI))
kind("a line that names the separator", "sep=;\n" + with_commas(_SI))
kind("lines of names and values", "Device,X1\nRate,5000\n\n" + _SI)
kind("comments of another kind", "% recorded on a bench\n" + _SI)
kind("no titles", _SI.partition("\n")[2], refused="time=")
kind(
    "no titles, but columns that are named",
    _SI.partition("\n")[2],
    settings=",time=x0 in s,current=x1 in A,voltage=x2 in V,marker=x3",
)
kind("titles that come twice", titled("time_s", "time_s", (SECONDS, AMPERES)), refused="several")
kind("titles in the middle", _SI + _SI, refused="line 1652")
kind(
    "units in each cell",
    titled("Time (ms)", "Current", (MILLISECONDS, lambda sample: f"{1e3 * sample.amperes:.1f} mA")),
    refused="current=",
)
kind("nothing", "", refused="no records")
kind("titles only", _SI.partition("\n")[0] + "\n", refused="export")
kind("a picture", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(200), refused="table")
kind("quotes", _SI.replace("time_s,current_a", '"time_s","current_a"'))
kind("commas at the ends of lines", _SI.replace("\n", ",\n"))
_GROUPED = [MICROSECONDS, scaled("A", 1e6, ",.1f"), always("5.0"), MARKER]
kind("thousands with commas", written("time_us\tcurrent_ua\tvoltage_v\tmarker", _GROUPED, "\t"))
_OPEN = written(
    "time_us;current_ua;voltage_v;marker",
    [MICROSECONDS, scaled("A", 1e6, ",.0f"), FIVE, MARKER],
    ";",
)
kind("thousands that may be decimals", _OPEN, refused="decimal=")
kind("thousands that may be decimals, and a decimal mark", _OPEN, settings=",decimal=point")
kind(
    "decimals that may be thousands",
    with_commas(
        written(
            "time_us,current_ma,voltage_v,marker",
            [MICROSECONDS, scaled("A", 1e3, ".3f"), FIVE, MARKER],
        )
    ),
    refused="decimal=",
)


kind(
    "times that may be decimals",
    written(
        "time_s\tcurrent_ma\tvoltage_v\tmarker",
        [scaled("s", 1e3, ",.0f", 12500), scaled("A", 1e3, ".0f"), FIVE, MARKER],
        "\t",
    ),
    refused="decimal=",
)


def missing_at(numbers, text, cell):
    return lambda sample: text if sample.number in numbers else cell(sample)


_FEW = {100, 101, 900, 1500}
for _text in ["", "NaN", "-"]:
    kind(
        f"a few cells {_text!r}",
        titled("time_s", "current_a", (SECONDS, missing_at(_FEW, _text, AMPERES))),
    )
kind(
    "many empty cells",
    titled("time_s", "current_a", (SECONDS, missing_at(set(range(0, _SAMPLES, 2)), "", AMPERES))),
    refused="lack a number",
)
kind(
    "an infinite current",
    titled("time_s", "current_a", (SECONDS, missing_at({900}, "inf", AMPERES))),
    refused="line 902",
)
kind(
    "a word among currents",
    titled("time_s", "current_a", (SECONDS, missing_at({900}, "overload", AMPERES))),
    refused="line 902",
)

# Several columns

kind(
    "a limit beside the current",
    written(
        "time_s,current_limit_a,current_a,voltage_v,marker",
        [SECONDS, always("0.5"), AMPERES, FIVE, MARKER],
    ),
)
kind(
    "minimum, mean and maximum",
    written(
        "Time (s),Min Current (mA),Avg Current (mA),Max Current (mA),voltage_v,marker",
        [SECONDS, always("1"), MILLIAMPERES, always("99"), FIVE, MARKER],
    ),
)
_TWO = written(
    "time_s,Current 1 (mA),Current 2 (mA),voltage_v,marker",
    [SECONDS, always("7"), MILLIAMPERES, FIVE, MARKER],
)
kind("two currents", _TWO, refused="current=")
kind("two currents, of which one is named", _TWO, settings=",current=Current 2 (mA)")
kind("a limit only", titled("time_s", "current_limit_a", (SECONDS, AMPERES)), refused="current=")
kind(
    "a voltage at the shunt only",
    titled("t/ms", "I/mA", voltage="Shunt voltage (mV)"),
    refused="volts=",
)
kind("a current that nobody has", _SI, settings=",current=I_dut", refused="its columns")
kind("a column of another quantity", _SI, settings=",current=voltage_v", refused=" in mA")
kind("a unit of another quantity", _SI, settings=",current=current_a in mV", refused="current=")
_POWER = written("time_s,Power (mW),marker", [SECONDS, scaled("W", 1e3, ".4f"), MARKER])
kind("powers", _POWER, settings=",volts=5")
kind("powers without a voltage", _POWER, refused="volts=")
_BOTH = "time_s,current_a,voltage_v,power_w,marker"
kind("powers beside currents", written(_BOTH, [SECONDS, AMPERES, FIVE, scaled("W"), MARKER]))
kind(
    "powers that contradict currents",
    written(_BOTH, [SECONDS, MILLIAMPERES, FIVE, scaled("W"), MARKER]),
    refused="power",
)
kind(
    "a charge only",
    written("time_s,Charge (mC),voltage_v,marker", [SECONDS, MILLIAMPERES, FIVE, MARKER]),
    refused="current",
)
kind(
    "the time of day, which is current",
    written("Current Time (s),I (mA),voltage_v,marker", [SECONDS, MILLIAMPERES, FIVE, MARKER]),
)
kind("volts that contradict the file", _SI, settings=",volts=3.3", refused="volts=")
kind("volts that the file has as well", _SI, settings=",volts=5")

# Markers

for _high, _low in [
    ("true", "false"),
    ("HIGH", "LOW"),
    ("on", "off"),
    ("1.0", "0.0"),
    ("3.31", "0.02"),
    ("255", "0"),
]:
    kind(
        f"a marker of {_high} and {_low}",
        written("time_s,current_a,voltage_v,marker", [SECONDS, AMPERES, FIVE, marked(_high, _low)]),
    )
_LOW = written("time_s,current_a,voltage_v,marker", [SECONDS, AMPERES, FIVE, marked("0", "1")])
kind("a marker that is active-low", _LOW, settings=",active-low")
kind("a marker that is active-low, unsaid", _LOW, refused="active-low")


def analogue(sample):
    return f"{(3.3 if sample.marker else 0) + 0.1 * math.sin(sample.number):.3f}"


_VOLTAGE = written("time_s,current_a,voltage_v,Trigger (V)", [SECONDS, AMPERES, FIVE, analogue])
kind("a marker as a voltage", _VOLTAGE)
kind(
    "a ramp as a marker",
    written("time_s,current_a,voltage_v,marker", [SECONDS, AMPERES, FIVE, scaled("s", 1e4, ".0f")]),
    refused="marker=",
)


def other_input(sample):
    """Changes between windows and in them."""
    return str(sample.number // 37 % 2)


_TWO_INPUTS = written(
    "time_s,current_a,voltage_v,D0,D1", [SECONDS, AMPERES, FIVE, MARKER, other_input]
)
kind("two inputs", _TWO_INPUTS, refused="marker=")
kind("two inputs, of which one is named", _TWO_INPUTS, settings=",marker=D0")
kind("the wrong input", _TWO_INPUTS, settings=",marker=D1", refused="")


def bits(sample):
    return f"{int(sample.marker)}00{other_input(sample)}0000"


_BITS = written("Timestamp(ms),Current(uA),D0-D7", [MILLISECONDS, MICROAMPERES, bits])
kind("bits", _BITS, settings=",volts=5", refused="marker=")
kind("bits, of which one is named", _BITS, settings=",volts=5,marker=D0")
kind(
    "bits without their zeros",
    written(
        "Timestamp(ms),Current(uA),D0-D7",
        [MILLISECONDS, MICROAMPERES, lambda sample: str(int(bits(sample)))],
    ),
    settings=",volts=5,marker=D0",
    refused="spreadsheet",
)
kind("an input that the bits lack", _BITS, settings=",volts=5,marker=D9", refused="its columns")
kind(
    "bits under another title",
    written("time_ms,current_ua,digital", [MILLISECONDS, MICROAMPERES, bits]),
    settings=",volts=5",
    refused="export each input",
)
kind(
    "a number of several inputs",
    written(
        "time_ms,current_ma,voltage_v,digital",
        [
            MILLISECONDS,
            MILLIAMPERES,
            FIVE,
            lambda sample: str(sample.marker + 2 * int(other_input(sample))),
        ],
    ),
    refused="marker=",
)
kind(
    "no marker", written("time_s,current_a,voltage_v", [SECONDS, AMPERES, FIVE]), refused="marker="
)
kind(
    "a marker that never changes",
    written("time_s,current_a,voltage_v,marker", [SECONDS, AMPERES, FIVE, always("0")]),
    refused="windows",
)

# Exports as makers' programs write them


def edges_as_x(sample):
    """D0 with Nordic's X in the first sample of a window."""
    before = SAMPLES[sample.number - 1].marker if sample.number else sample.marker
    return "X0000000" if before != sample.marker else bits(sample)


kind(
    "PPK2 with an X at edges",
    written("Timestamp(ms),Current(uA),D0-D7", [MILLISECONDS, MICROAMPERES, edges_as_x]),
    settings=",volts=5,marker=D0",
)
kind(
    "PPK2 with each input",
    written(
        "Timestamp(ms),Current(uA),D0-D7,D0,D1,D2,D3,D4,D5,D6,D7",
        [
            MILLISECONDS,
            MICROAMPERES,
            bits,
            MARKER,
            *[always("0")] * 2,
            other_input,
            *[always("0")] * 4,
        ],
    ),
    settings=",volts=5,marker=D0",
)
kind(
    "Joulescope's statistics",
    "#" + written("time,current,voltage,in0", [SECONDS, AMPERES, FIVE, MARKER]),
)
kind(
    "Joulescope's visible data",
    "# "
    + written(
        "time,JS220-001122.i,JS220-001122.v,JS220-001122.0",
        [
            scaled("s", 1, ".18e"),
            scaled("A", 1, ".18e"),
            always("5.0e+00"),
            marked("1.0e+00", "0.0e+00"),
        ],
    ),
)
kind(
    "numpy's comment of unknown units",
    "# " + written("time,current,voltage,marker", [SECONDS, MILLIAMPERES, FIVE, MARKER]),
    refused="time=",
)
kind(
    "Otii, all channels in a file",
    written(
        '"Timestamp (s)","Arc Main Current (A)","Arc Main Voltage (V)","Arc Main Energy (J)","Arc GPI1"',
        [SECONDS, AMPERES, FIVE, always("0.1"), MARKER],
    ),
)
kind(
    "Otii, dates",
    written(
        '"Wall-clock time (UTC)","Arc Main Current (A)","Arc Main Voltage (V)","Arc GPI1"',
        [moment("%Y-%m-%dT%H:%M:%S$Z"), AMPERES, FIVE, MARKER],
    ),
)
kind(
    "Otii, one channel",
    written("Timestamp,Value", [SECONDS, AMPERES]),
    settings=",volts=5",
    refused="marker=",
    file="Main current - Ace.csv",
)
_POWERTOOL = written(
    "Time (s),Main Avg Current (mA),Main Max Current (mA),Main Avg Voltage (V),Aux Avg Current (mA)",
    [SECONDS, MILLIAMPERES, always("40"), FIVE, marked("0.33", "0.00")],
)
kind("Monsoon's PowerTool", _POWERTOOL, refused="current=")
kind(
    "Monsoon's PowerTool, with its columns named",
    _POWERTOOL,
    settings=",current=Main Avg Current (mA),marker=Aux Avg Current (mA)",
)
_PYMONSOON = written(
    "Time(ms),Main(mA),USB(mA),Aux(mA),Main Voltage(V),",
    [SECONDS, MILLIAMPERES, always("0.0"), marked("0.33", "0.00"), FIVE, always("")],
)
kind(
    "PyMonsoon, whose times are seconds",
    _PYMONSOON,
    settings=",current=Main(mA),marker=Aux(mA)",
    refused="rate=",
)
kind("PyMonsoon with a rate", _PYMONSOON, settings=",current=Main(mA),marker=Aux(mA),rate=5000")

# Exports of oscilloscopes, whose marker is in volts


def _shown_level(sample):
    return "3.3" if sample.marker else "0.0"


_SCOPE = written("Time(s),CH1(V),CH2(V)", [SECONDS, AMPERES, _shown_level])
kind("an oscilloscope", _SCOPE, settings=",volts=5", refused="current")
kind(
    "an oscilloscope with a probe of currents",
    _SCOPE,
    settings=",volts=5,current=CH1(V) in A,marker=CH2(V)",
)
_TWO_ROWS = written(
    "Time,Channel A,Channel B\n(ms),(mA),(V)\n", [MILLISECONDS, MILLIAMPERES, _shown_level]
)
kind("two rows of titles", _TWO_ROWS, settings=",volts=5,marker=Channel B")
kind("the marker is no supply", _TWO_ROWS, settings=",marker=Channel B", refused="volts=")


# Currents that no board draws

kind(
    "negative currents",
    titled("time_s", "current_a", (SECONDS, scaled("A", -1))),
    refused="swapped",
)
kind(
    "negative currents, and the wrong level",
    written(
        "time_s,current_a,voltage_v,marker", [SECONDS, scaled("A", -1), FIVE, marked("0", "1")]
    ),
    refused="swapped",
)
kind(
    "a flat current",
    titled("time_s", "current_a", (SECONDS, always("0.02"))),
    refused="no more energy",
)
kind(
    "a flat current with noise",
    titled(
        "time_s",
        "current_a",
        (SECONDS, lambda sample: f"{0.02 + 1e-3 * math.sin(sample.number**1.7):.6f}"),
    ),
    refused="no more energy",
)
kind(
    "a current in another unit than its title",
    titled("time_s", "current_a", (SECONDS, MILLIAMPERES)),
    refused="--anyway",
)
kind("picoamperes", titled("time_s", "current_pa", (SECONDS, MILLIAMPERES)), refused="--anyway")
kind(
    "a supply of 5000 V",
    written("time_s,current_ua,voltage_v,marker", [SECONDS, MILLIAMPERES, always("5000"), MARKER]),
    refused="--anyway",
)
kind(
    "a supply that is often away",
    titled("t/ms", "I/mA").replace(",5,", ",0,", 400),
    refused="--anyway",
)
kind("more reports than a window has room for", _SI, settings=",reports=10000", refused="reports=")
