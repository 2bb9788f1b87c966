"""Each instrument's own bytes give the known energy back, and damage to them is seen."""

import io
from binascii import b2a_base64
from types import SimpleNamespace

import numpy as np
import pyjls
import pytest
from bench.known import BUSY, VOLTS, known, require_known, require_refused
from harness.port import silent
from ppk2_api import ppk2_api

from ternbench import energy
from ternbench.exports import reader
from ternbench.exports.reader import Choices
from ternbench.meters import ina, ppk2
from ternbench.meters.jls import JlsRecording
from ternbench.meters.joulescope import from_samples
from ternhost.errors import DeviceError, TernError, UsageError

# Power Profiler Kit II

KIT = known(100_000)
SHUNTS = {0: 1000.0, 1: 100.0, 2: 10.0, 3: 1.0, 4: 0.05}  # ohms of the kit's ranges
CONVERTER_VOLTS = 1.8 / 163840 * 4  # of one count
FULL_SCALE = 0x3FFF  # of the converter's 14 bits
IN_WINDOWS = [3500 + 5000 * i for i in range(6)]  # a sample in each window


class Kit:
    """The kit's serial line, byte by byte.

    It answers 0x19 with its calibration and 0x06 with samples, in pieces of odd sizes.
    """

    def __init__(self, samples):
        self.samples = samples
        self.written = b""
        self.waiting = b""

    @property
    def in_waiting(self):
        return min(len(self.waiting), 4093)

    def write(self, data):
        self.written += data
        if b"\x19" in data:
            lines = ["Calibrated: 1", *(f"R{scale}: {ohms}" for scale, ohms in SHUNTS.items())]
            for name, value in {"GS": 0, "GI": 1, "O": 0, "S": 0, "I": 0, "UG": 1}.items():
                lines += [f"{name}{scale}: {value}" for scale in SHUNTS]
            self.waiting += "\n".join((*lines, "HW: 1", "IA: 0", "END\n")).encode()
        elif data.endswith(b"\x06"):
            self.waiting += self.samples

    def read(self, n):
        part, self.waiting = self.waiting[:n], self.waiting[n:]
        return part

    def close(self):
        pass


def counts(amperes, scale):
    return np.round(amperes * SHUNTS[scale] / CONVERTER_VOLTS).astype(np.int64)


def kit_bytes(current=KIT, scale=3):
    """Samples of one range. The marker is D0; the other inputs are high, as floating ones may be."""
    counter = np.arange(50, 50 + len(current.seconds)) % 64
    inputs = 0xFE | current.marker.astype(np.int64)
    words = counts(current.amperes, scale) | scale << 14 | counter << 18 | inputs << 24
    return words.astype("<u4").tobytes()


@pytest.fixture
def recorded(monkeypatch):
    """`recorded(data)`: a kit that sends these bytes in 0.33 s, and the trace of its meter."""

    def record(data):
        kit = Kit(data)
        serial = SimpleNamespace(Serial=lambda *_, **__: kit)
        monkeypatch.setattr(ppk2_api, "serial", serial)
        with silent() as port:
            meter = ppk2.Ppk2(port, VOLTS)
        # The recording ends when all bytes have arrived.
        clock = SimpleNamespace(
            sleep=lambda seconds: None, monotonic=lambda: 0.0 if kit.waiting else 3.0
        )
        monkeypatch.setattr(ppk2, "time", clock)
        return kit, meter.record(0.33)

    return record


def test_the_bytes_of_a_power_profiler_kit_give_its_energy(recorded):
    _, trace = recorded(kit_bytes())
    assert np.array_equal(trace.marker, KIT.marker)
    assert trace.amperes == pytest.approx(KIT.amperes, abs=1e-4)
    require_known(trace)


def test_a_power_profiler_kit_supplies_the_voltage(recorded):
    kit, _ = recorded(kit_bytes())
    assert b"\x11\x02" in kit.written  # source mode
    high, low = divmod(3300 - 800 + 32, 256)
    assert bytes((0x0D, 3 + high, low)) in kit.written


def without(start, end):
    """Damage: samples are lost."""
    return lambda data: data[: 4 * start] + data[4 * end :]


def with_bits(mask, bits, samples):
    """Damage: the bits under `mask` of these samples are others."""

    def change(data):
        words = np.frombuffer(data, "<u4").copy()
        words[samples] = words[samples] & ~np.uint32(mask) | np.uint32(bits)
        return words.tobytes()

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without(4000, 4040), "1 gaps, 0.41 ms in all, in 1 of 6 windows"),
        (without(5100, 5600), "lost samples: 500 of 33000, and its counter jumps 1 times"),
        (without(4000, 4640), "lost samples: 640 of 33000, and its counter jumps 0"),
        (lambda data: data[:16001] + data[16004:], "its counter jumps"),
        (with_bits(7 << 14, 4 << 14, IN_WINDOWS), "changed its range in 6 of 6 windows"),
        (with_bits(FULL_SCALE, FULL_SCALE, range(4000, 4010)), "exceeds the meter's range in 1"),
        (with_bits(1 << 24, 0, IN_WINDOWS), "edges do not pair: 12 windows"),
    ],
    ids=[
        "a gap in a window",
        "a gap between windows",
        "a gap of ten whole turns of the counter",
        "bytes out of step",
        "another range",
        "above the range",
        "a marker that fails in windows",
    ],
)
def test_a_damaged_recording_of_a_power_profiler_kit_is_refused(damage, message, recorded):
    with pytest.raises(TernError, match=message) as caught:
        energy.measure(recorded(damage(kit_bytes()))[1], 1, "x")
    assert caught.value.hint


def test_a_port_without_a_kit_is_refused():
    with silent() as port, pytest.raises(DeviceError, match="no Power Profiler Kit"):
        ppk2.Ppk2(port)


# INA226 and INA228

SLOW = known(2000, work=0.2, rest=0.3)  # an INA's rate
ROWS_OF_A_LINE = 16  # of the logger's output, which is base64


def logger_bytes(chip, ohms, current=SLOW, first_tick=0):
    """What the logger sends."""
    rows = []
    for seconds, amperes, is_marked in zip(*current, strict=True):
        ticks = (first_tick + round(seconds * 1e6)) % (1 << 30)
        bus = round(VOLTS / chip.bus) | is_marked << 30
        rows.append(ina.ROW.pack(ticks, bus, round(amperes * ohms / chip.shunt)))
    lines = b""
    for first in range(0, len(rows), ROWS_OF_A_LINE):
        lines += b2a_base64(b"".join(rows[first : first + ROWS_OF_A_LINE]))
    return lines


@pytest.mark.parametrize("chip", ina.CHIPS.values(), ids=ina.CHIPS)
def test_the_bytes_of_an_ina_logger_give_its_energy(chip):
    first_tick = (1 << 30) - 500_000  # the clock wraps
    data = logger_bytes(chip, chip.usual_ohms, first_tick=first_tick)
    require_known(ina.decode(data + b"end\n", chip, chip.usual_ohms), work=0.2)


CHIP = ina.CHIPS["ina226"]


def test_damaged_lines_of_a_logger_are_left_out():
    data = bytearray(logger_bytes(CHIP, 0.1))
    del data[700:703]  # where no window is
    trace = ina.decode(bytes(data), CHIP, 0.1)
    require_known(trace, work=0.2)
    lost_samples = len(SLOW.seconds) - len(trace.seconds)
    assert 0 < lost_samples <= 2 * ROWS_OF_A_LINE


@pytest.mark.parametrize("chip", ina.CHIPS.values(), ids=ina.CHIPS)
def test_an_ina_at_the_end_of_its_range_is_refused(chip):
    ohms = chip.max_shunt * chip.shunt / BUSY
    require_known(ina.decode(logger_bytes(chip, ohms / 2), chip, ohms / 2), work=0.2)
    trace = ina.decode(logger_bytes(chip, ohms), chip, ohms)
    require_refused(trace, "exceeds the meter's range in 6 of 6 windows")


ADDRESS = 0x40  # of an INA on its bus


class Bus:
    """An INA on an I2C bus, with the registers of its datasheet, and conversions always ready."""

    def __init__(self, registers):
        self.registers = registers
        self.written = {}

    def writeto_mem(self, address, register, data):
        assert address == ADDRESS
        self.written[register] = bytes(data)

    def readfrom_mem_into(self, address, register, view):
        view[:] = self.registers[register]


@pytest.fixture
def logger():
    """The names of the logger's program, which runs on a Pico."""
    names = {}
    exec(ina.LOGGER.read_text().replace("from machine import I2C, Pin", ""), names)
    return names


# By the datasheets: the registers of the bus voltage and of the shunt voltage.
REGISTERS = {
    "ina226": {2: (1234).to_bytes(2), 1: (-567).to_bytes(2, signed=True)},
    # 20 bits, above 4 reserved ones
    "ina228": {5: (1234 << 4).to_bytes(3), 4: (-567 << 4).to_bytes(3, signed=True)},
}


@pytest.mark.parametrize("chip", REGISTERS)
def test_the_logger_reads_the_voltages_of_a_chip(logger, chip):
    bus = Bus(REGISTERS[chip])

    bus_voltage, shunt_voltage = logger["configure"](bus, chip, ADDRESS)

    assert bus.written, "its configuration"
    assert logger["read_register"](bus, ADDRESS, bus_voltage, bytearray(3)) == 1234
    assert logger["read_register"](bus, ADDRESS, shunt_voltage, bytearray(3)) == -567


class HighPin:
    """A pin of a board at which the marker is high."""

    IN = PULL_DOWN = 0

    def __init__(self, *_):
        pass

    def __call__(self):
        return 1


def clock_of_a_board():
    """Stands in for `time` of MicroPython: 300 microseconds pass between two looks."""
    microseconds = iter(range(0, 10**9, 300))
    return SimpleNamespace(
        ticks_us=lambda: next(microseconds),
        ticks_ms=lambda: next(microseconds) // 1000,
        ticks_diff=int.__sub__,
    )


# The logger runs on a board whose INA226 always measures the same.
VOLTS_COUNT, SHUNT_COUNT = 2640, 1000  # in its registers
OHMS = 0.1  # of the shunt
LOGGED_MS = 60


@pytest.fixture
def logged(logger):
    """The bytes that the logger has sent in LOGGED_MS, while the marker was high."""
    registers = {2: VOLTS_COUNT.to_bytes(2), 1: SHUNT_COUNT.to_bytes(2)}
    sent = io.BytesIO()
    logger["time"] = clock_of_a_board()
    logger["sys"] = SimpleNamespace(stdout=SimpleNamespace(buffer=sent))
    logger["I2C"] = lambda *_, **__: Bus(registers)
    logger["Pin"] = HighPin
    logger["log"]("ina226", ADDRESS, LOGGED_MS)
    return sent.getvalue()


def test_the_logger_says_when_its_time_is_over(logged):
    assert logged.endswith(b"end\n")


def test_the_logger_sends_whole_lines(logged):
    rows = len(ina.decode(logged, CHIP, OHMS).seconds)
    assert rows > 0
    assert rows % ROWS_OF_A_LINE == 0


def test_the_logger_notes_the_marker_in_each_row(logged):
    assert np.all(ina.decode(logged, CHIP, OHMS).marker)


def test_the_logger_sends_the_voltage_and_the_current(logged):
    trace = ina.decode(logged, CHIP, OHMS)
    assert trace.volts == pytest.approx(VOLTS_COUNT * CHIP.bus)
    assert trace.amperes == pytest.approx(SHUNT_COUNT * CHIP.shunt / OHMS)


# Joulescope

SCOPE = known(200_000)


def joulescope_samples(amperes=SCOPE.amperes, ranges=None):
    """What the package's `read` returns."""
    samples = len(SCOPE.seconds)
    signals = {
        "current": amperes.astype(np.float32),
        "voltage": np.full(samples, VOLTS, np.float32),
        "current_lsb": SCOPE.marker.astype(np.uint8),
        "current_range": np.full(samples, 2, np.uint8) if ranges is None else ranges,
    }
    return {
        "time": {"output_sampling_frequency": {"value": 200_000, "units": "Hz"}},
        "signals": {name: {"value": value} for name, value in signals.items()},
    }


def with_samples_dropped(places):
    amperes = SCOPE.amperes.copy()
    amperes[places] = np.nan
    return amperes


def test_the_samples_of_a_joulescope_give_its_energy():
    while_it_rests = slice(1000, 1010)
    require_known(from_samples(joulescope_samples(with_samples_dropped(while_it_rests))))


def test_a_joulescope_that_drops_samples_in_a_window_is_refused():
    trace = from_samples(joulescope_samples(with_samples_dropped(slice(8000, 8010))))
    require_refused(trace, "lost samples: 1 gaps")


def written_jls(path, signals):
    """A file as Joulescope's program writes it. signals: samples and unit, by name."""
    with pyjls.Writer(str(path)) as writer:
        writer.source_def(1, name="JS220-001122", model="JS220")
        for number, (name, (samples, unit)) in enumerate(signals.items(), 1):
            is_digital = samples.dtype == bool
            writer.signal_def(
                number,
                1,
                signal_type=pyjls.SignalType.FSR,
                data_type=pyjls.DataType.U1 if is_digital else pyjls.DataType.F32,
                sample_rate=200_000,
                name=name,
                units=unit,
            )
            data = samples.astype(np.float32)
            if is_digital:
                data = np.packbits(samples, bitorder="little")
            writer.fsr(number, 0, data)
    return path


def jls_signals(**changes):
    volts = np.full(len(SCOPE.seconds), VOLTS)
    signals = {"current": (SCOPE.amperes, "A"), "voltage": (volts, "V")}
    return {**signals, "gpi[0]": (SCOPE.marker, ""), **changes}


def test_a_jls_file_gives_its_energy(tmp_path):
    path = written_jls(tmp_path / "x.jls", jls_signals())
    require_known(JlsRecording.opened(str(path), {}).read())


def test_a_jls_file_may_have_its_marker_at_another_input(tmp_path):
    signals = jls_signals()
    signals["gpi[3]"] = signals.pop("gpi[0]")
    path = written_jls(tmp_path / "x.jls", signals)
    require_known(JlsRecording.opened(str(path), {"marker": "gpi[3]"}).read())


@pytest.mark.parametrize("lacking", ["current", "voltage", "gpi[0]"])
def test_a_jls_file_without_a_signal_is_refused(tmp_path, lacking):
    signals = jls_signals()
    del signals[lacking]
    path = written_jls(tmp_path / "x.jls", signals)
    with pytest.raises(UsageError, match="has no signal"):
        JlsRecording.opened(str(path), {}).read()


def test_a_file_that_is_no_jls_is_refused(tmp_path):
    path = tmp_path / "x.jls"
    path.write_bytes(b"time_s,current_a\n" * 20)
    with pytest.raises(UsageError, match="no recording"):
        JlsRecording.opened(str(path), {}).read()


# Exports of other instruments

EXPORTED = known(10_000)


def export_lines(header, delimiter, scales):
    """A line for each sample. scales: of seconds, amperes and volts; None: no column of volts."""
    columns = [EXPORTED.seconds * scales[0], EXPORTED.amperes * scales[1]]
    if scales[2]:
        columns.append(np.full(len(EXPORTED.seconds), VOLTS * scales[2]))
    rows = zip(*columns, EXPORTED.marker.astype(int), strict=True)
    return [header, *(delimiter.join(f"{value:.9g}" for value in row) for row in rows)]


@pytest.mark.parametrize(
    ("header", "delimiter", "scales"),
    [
        ("Timestamp(ms),Current(uA),D0", ",", (1e3, 1e6, None)),
        ("Time [s];I [mA];V [mV];trigger", ";", (1, 1e3, 1e3)),
        ("Export of 3 November\nTime [s];I [mA];V [mV];trigger", ";", (1, 1e3, 1e3)),
    ],
)
def test_an_export_gives_its_energy_in_the_units_of_its_header(tmp_path, header, delimiter, scales):
    path = tmp_path / "export.csv"
    path.write_text("\n".join(export_lines(header, delimiter, scales)))
    require_known(reader.read(path, Choices(volts=None if scales[2] else VOLTS)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no records"),
        ("time_s,current_a,voltage_v,marker\n1,2,3,0\n", "has 1 sample"),
        ("a,b,c\n1,2,3\n2,3,4\n", "no column of time"),
        ("time_s,current_a,voltage_v,marker\n1,x,3,0\n2,3,3,0\n", "line 2, column current_a"),
        ("time_s,current_a,voltage_v,marker\n2,1,3,0\n1,3,3,0\n", "must increase"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        reader.read(path)
