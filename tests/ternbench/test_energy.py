"""Energy from markers and meters: each instrument's own bytes give known charges back.

The life of a battery.
"""

import io
import json
from binascii import b2a_base64
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from harness.port import silent
from ppk2_api import ppk2_api

from ternbench import battery, current_model, energy
from ternbench.battery import Phase, Wakes
from ternbench.meters import csv, ina, ppk2
from ternbench.meters.joulescope import RANGES, from_samples
from ternbench.meters.ppk2 import Ppk2
from ternhost.errors import DeviceError, TernError, UsageError

VOLTS, IDLE, BUSY = 3.3, 0.010, 0.025


def known_trace(rate, windows=6, work=0.02, rest=0.03):
    """A current with two values, and markers.

    The net energy of a window is (BUSY - IDLE) * VOLTS * work.
    """
    n = round((rest + windows * (work + rest)) * rate)
    t = (np.arange(n) + 0.5) / rate
    marker = ((t - rest) % (work + rest) < work) & (t > rest)
    return t, np.where(marker, BUSY, IDLE), marker


RATE = 100_000  # of a Power Profiler Kit
_, AMPERES, MARKER = known_trace(RATE)
SLOW = known_trace(2000, work=0.2, rest=0.3)  # an INA's rate


def uniform(amperes, marker, rate=RATE):
    return energy.Trace(
        np.arange(len(amperes)) / rate, amperes, np.full(len(amperes), VOLTS), marker
    )


def check(trace, work=0.02, **options):
    """Measure a trace: it has the known energy. Return the result."""
    result = energy.measure(trace, 1, "x", **options)
    assert result.net == pytest.approx((BUSY - IDLE) * VOLTS * work * 1e6, rel=0.01)
    assert result.gross == pytest.approx(BUSY * VOLTS * work * 1e6, rel=0.01)
    assert result.idle_milliwatts == pytest.approx(IDLE * VOLTS * 1000, rel=0.01)
    assert result.volts == pytest.approx(VOLTS, rel=0.01)
    return result


def check_refused(trace, message, hint="", **options):
    with pytest.raises(TernError, match=message) as caught:
        energy.measure(trace, 1, "x", **options)
    assert hint in caught.value.hint


def test_idle_is_subtracted_and_shown():
    result = check(uniform(AMPERES, MARKER))
    assert result.windows == 6
    assert energy.measure(uniform(AMPERES, MARKER), 4, "x").net == pytest.approx(result.net / 4)
    shown = result.as_dict(bits=2)
    assert shown["microjoules_per_bit"] == pytest.approx(shown["microjoules_per_report"] / 2)
    assert shown["microjoules_per_report_with_idle"] > shown["microjoules_per_report"]


def test_an_active_low_marker_is_read_and_a_cut_window_is_left_out():
    cut = slice(int(0.035 * RATE), None)  # begins within the first window
    assert check(uniform(AMPERES[cut], ~MARKER[cut]), active_low=True).windows == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (np.zeros_like, "0 windows were marked"),
        (np.ones_like, "0 windows were marked"),
        (lambda marker: marker & (np.arange(len(marker)) < 5000), "windows were marked"),
        (lambda marker: np.arange(len(marker)) % 10 != 0, "no idle time"),
    ],
)
def test_a_marker_without_windows_or_idle_time_is_an_error(change, message):
    rate = 1000 if "idle" in message else RATE
    _, amperes, marker = known_trace(rate)
    check_refused(uniform(amperes, change(marker), rate), message)


def test_a_battery_lasts_as_long_as_its_charge():
    # 1 mW asleep and a report of 3.6 J each hour make 2 mW on average; 2000 mAh at 3.6 V are 25,920
    # J.
    assert energy.battery_days(2000, 3.6, 3.6e6, 1.0, 3600) == pytest.approx(25_920 / 2e-3 / 86400)
    with pytest.raises(UsageError):
        energy.battery_days(2000, 3.6, 1.0, 1.0, every=0.001, active_seconds=0.01)


# Power Profiler Kit II: its protocol, byte by byte

R = {0: 1000.0, 1: 100.0, 2: 10.0, 3: 1.0, 4: 0.05}  # shunts of the kit's ranges
ADC = 1.8 / 163840


class Kit:
    """The kit's serial line: calibration on 0x19; on 0x06 the samples, four bytes each, in pieces
    of odd sizes.
    """

    def __init__(self, samples):
        self.samples = samples
        self.written = self.waiting = b""

    @property
    def in_waiting(self):
        return min(len(self.waiting), 4093)

    def write(self, data):
        self.written += data
        if b"\x19" in data:
            names = {"GS": 0, "GI": 1, "O": 0, "S": 0, "I": 0, "UG": 1}
            rows = [f"R{i}: {ohms}" for i, ohms in R.items()]
            rows += [f"{name}{i}: {value}" for name, value in names.items() for i in R]
            self.waiting += "\n".join(("Calibrated: 1", *rows, "HW: 1", "IA: 0", "END\n")).encode()
        elif data.endswith(b"\x06"):
            self.waiting += self.samples

    def read(self, n):
        part, self.waiting = self.waiting[:n], self.waiting[n:]
        return part

    def close(self):
        pass


def kit_bytes(amperes=AMPERES, marker=MARKER, scale=3):
    """Samples of range 3 (1 ohm), the marker on D0; the other digital inputs are high, as floating
    ones may be.
    """
    counts = np.round(amperes * R[scale] / ADC / 4).astype(np.int64)
    assert counts.max() < 1 << 14
    counter = np.arange(50, 50 + len(amperes)) % 64
    words = counts | scale << 14 | counter << 18 | (0xFE | marker.astype(np.int64)) << 24
    return words.astype("<u4").tobytes()


def recorded(data, monkeypatch, seconds=0.33):
    """What a kit that sends these bytes in that time has received, and its trace."""
    kit = Kit(data)
    monkeypatch.setattr(ppk2_api, "serial", SimpleNamespace(Serial=lambda *_, **__: kit))
    with silent() as port:
        meter = Ppk2(port, VOLTS)
    # The recording ends when all bytes have arrived.
    clock = SimpleNamespace(
        sleep=lambda seconds: None, monotonic=lambda: 0.0 if kit.waiting else 3.0
    )
    monkeypatch.setattr(ppk2, "time", clock)
    return kit, meter.record(seconds)


def test_the_bytes_of_a_power_profiler_kit_give_its_energy(monkeypatch):
    kit, trace = recorded(kit_bytes(), monkeypatch)
    assert len(trace.seconds) == len(AMPERES)
    assert np.array_equal(trace.marker, MARKER)
    assert trace.amperes == pytest.approx(AMPERES, abs=1e-4)
    check(trace)
    assert b"\x11\x02" in kit.written  # source mode
    assert bytes((0x0D, 3 + (3300 - 800 + 32) // 256, (3300 - 800 + 32) % 256)) in kit.written


def without(data, start, end):
    return data[: 4 * start] + data[4 * end :]


def with_bits(data, mask, bits, places):
    """A kit's samples with `bits` under `mask` at these places."""
    words = np.frombuffer(data, "<u4").copy()
    words[places] = words[places] & ~np.uint32(mask) | np.uint32(bits)
    return words.tobytes()


IN_WINDOWS = [3500 + 5000 * i for i in range(6)]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda data: without(data, 4000, 4040),
            "lost samples: 1 gaps, 0.41 ms in all, in 1 of 6 windows",
        ),
        (lambda data: without(data, 2980, 3020), "lost samples"),  # and an edge
        (
            lambda data: without(data, 5100, 5600),
            "lost samples: 500 of 33000, and its counter jumps 1 times",
        ),
        (
            lambda data: without(data, 4000, 4640),
            "lost samples: 640 of 33000, and its counter jumps 0",
        ),
        (lambda data: data[:16001] + data[16004:], "its counter jumps"),  # bytes out of step
        (
            lambda data: with_bits(data, 7 << 14, 4 << 14, IN_WINDOWS),
            "changed its range in 6 of 6 windows",
        ),
        (
            lambda data: with_bits(data, 0x3FFF, 0x3FFF, range(4000, 4010)),
            "exceeds the meter's range in 1",
        ),
        (lambda data: with_bits(data, 1 << 24, 0, IN_WINDOWS), "edges do not pair: 12 windows"),
        (
            lambda data: with_bits(data, 1 << 24, 1 << 24, range(5000, 8000)),
            "edges do not pair: 5 windows",
        ),
    ],
)
def test_a_damaged_recording_of_a_power_profiler_kit_is_refused(damage, message, monkeypatch):
    with pytest.raises(TernError, match=message) as caught:
        energy.measure(recorded(damage(kit_bytes()), monkeypatch)[1], 1, "x")
    assert caught.value.hint


def test_a_kit_that_reaches_full_scale_as_it_changes_its_range_once_is_accepted(monkeypatch):
    _, amperes, marker = known_trace(RATE, windows=10)
    data = with_bits(kit_bytes(amperes, marker), 0x3FFF, 0x3FFF, [3500, 3501])
    data = with_bits(data, 0x1FFFF, 4 << 14 | round(BUSY * R[4] / ADC / 4), range(3502, 4000))
    check(recorded(data, monkeypatch)[1])


def test_windows_that_the_board_did_not_make_are_refused():
    trace = uniform(AMPERES, MARKER)
    check(trace, made=(3, 6))
    for least, most in ((7, 9), (2, 5)):
        check_refused(trace, f"6 windows, and the board made {least} to {most}", made=(least, most))


def test_a_port_without_a_kit_and_a_voltage_out_of_range_are_refused():
    with silent() as port, pytest.raises(DeviceError, match="no Power Profiler Kit"):
        Ppk2(port)
    with pytest.raises(UsageError, match=r"--volts must be 0\.8 to 5"):
        Ppk2("/dev/null", 12.0)


# INA226 and INA228: rows of the logger


def logger_bytes(chip, ohms, t, amperes, marker, first_tick=0):
    rows = []
    for seconds, current, marked in zip(t, amperes, marker, strict=True):
        ticks = (first_tick + round(seconds * 1e6)) % (1 << 30)
        bus = round(VOLTS / chip.bus) | (1 << 30 if marked else 0)
        rows.append(ina.ROW.pack(ticks, bus, round(current * ohms / chip.shunt)))
    return b"".join(b2a_base64(b"".join(rows[i : i + 16])) for i in range(0, len(rows), 16))


@pytest.mark.parametrize(("name", "ohms"), [("ina226", 0.1), ("ina228", 0.015)])
def test_the_bytes_of_an_ina_logger_give_its_energy(name, ohms):
    chip = ina.CHIPS[name]
    data = logger_bytes(chip, ohms, *SLOW, first_tick=(1 << 30) - 500_000)  # the clock wraps
    check(ina.decode(data + b"end\n", chip, ohms), work=0.2)


def test_a_damaged_frame_of_a_logger_is_left_out():
    chip = ina.CHIPS["ina226"]
    data = bytearray(logger_bytes(chip, 0.1, *SLOW))
    del data[700:703]
    trace = ina.decode(bytes(data), chip, 0.1)
    check(trace, work=0.2)  # none of its rows is in a window
    assert -33 < len(trace.seconds) - len(SLOW[0]) < 0
    with pytest.raises(DeviceError, match="no samples"):
        ina.decode(b"end\n", chip, 0.1)
    del data[12000:12003]  # a row in a window
    check_refused(ina.decode(bytes(data), chip, 0.1), "lost samples: 2 gaps")


@pytest.mark.parametrize(("name", "ohms"), [("ina226", 3.2767), ("ina228", 6.5536)])
def test_an_ina_at_the_end_of_its_range_is_refused(name, ohms):
    chip = ina.CHIPS[name]
    t, amperes, marker = SLOW
    amperes = np.minimum(amperes, chip.full * chip.shunt / ohms)  # 25 mA
    check(ina.decode(logger_bytes(chip, ohms / 2, t, amperes, marker), chip, ohms / 2), work=0.2)
    beyond = ina.decode(logger_bytes(chip, ohms, t, amperes, marker), chip, ohms)
    check_refused(beyond, "exceeds the meter's range in 6 of 6 windows", "smaller --shunt")


class Bus:
    """An INA on an I2C bus, with the registers of its datasheet and conversions that are always
    ready.
    """

    def __init__(self, registers):
        self.registers, self.written = registers, {}

    def writeto_mem(self, address, register, data):
        assert address == 0x40
        self.written[register] = bytes(data)

    def readfrom_mem_into(self, address, register, view):
        view[:] = self.registers[register]


@pytest.fixture(scope="module")
def logger():
    """The functions of the logger's program."""
    names = {}
    exec(ina.LOGGER.read_text().replace("from machine import I2C, Pin", ""), names)
    return SimpleNamespace(**names)


@pytest.mark.parametrize(("kind", "layout"), [("ina226", (2, 0, 2, 1)), ("ina228", (3, 4, 5, 4))])
def test_the_logger_reads_volts_and_amperes_from_the_registers(logger, kind, layout):
    width, shift, of_volts, of_shunt = layout
    chip, amperes, ohms = ina.CHIPS[kind], -0.0123, 0.1
    shunt, volts = round(amperes * ohms / chip.shunt) << shift, round(VOLTS / chip.bus) << shift
    bus = Bus(
        {
            of_volts: volts.to_bytes(width, "big"),
            of_shunt: shunt.to_bytes(width, "big", signed=True),
        }
    )
    registers = logger._start(bus, kind, 0x40)
    assert bus.written
    volts, shunt = (logger._read(bus, 0x40, register, bytearray(3)) for register in registers)
    assert volts * chip.bus == pytest.approx(VOLTS, rel=1e-3)
    assert shunt * chip.shunt / ohms == pytest.approx(amperes, rel=1e-2)


def test_the_logger_sends_rows_that_are_decoded_until_its_time_is_over(logger, monkeypatch):
    chip, clock, sent = ina.CHIPS["ina226"], iter(range(0, 10**9, 300)), io.BytesIO()
    bus = Bus({2: round(VOLTS / chip.bus).to_bytes(2, "big"), 1: (1000).to_bytes(2, "big")})
    names = logger.log.__globals__
    monkeypatch.setitem(names, "I2C", lambda *_, **__: bus)
    pin = type(
        "Pin", (), {"IN": 0, "PULL_DOWN": 0, "__init__": lambda *_: None, "__call__": lambda _: 1}
    )
    monkeypatch.setitem(names, "Pin", pin)
    ticks_us, ticks_ms = clock.__next__, lambda: next(clock) // 1000
    time = SimpleNamespace(ticks_us=ticks_us, ticks_ms=ticks_ms, ticks_diff=int.__sub__)
    monkeypatch.setitem(names, "time", time)
    monkeypatch.setitem(names, "sys", SimpleNamespace(stdout=SimpleNamespace(buffer=sent)))
    logger.log("ina226", 0x40, 60)
    assert sent.getvalue().endswith(b"end\n")
    trace = ina.decode(sent.getvalue(), chip, 0.1)
    assert len(trace.seconds) % 16 == 0 < len(trace.seconds)
    assert np.all(trace.marker)
    assert trace.volts == pytest.approx(VOLTS, rel=1e-3)
    assert trace.amperes == pytest.approx(1000 * chip.shunt / 0.1)


def test_the_samples_of_a_joulescope_give_its_energy():
    rate = 200_000
    _, amperes, marker = known_trace(rate)
    amperes = amperes.astype(np.float32)
    amperes[1000:1010] = np.nan  # dropped samples, where the board rests
    ranges = np.full(len(amperes), 2, np.uint8)
    data = {
        "time": {"output_sampling_frequency": {"value": rate, "units": "Hz"}},
        "signals": {
            "current": {"value": amperes, "units": "A"},
            "voltage": {"value": np.full(len(amperes), VOLTS, np.float32), "units": "V"},
            "current_lsb": {"value": marker.astype(np.uint8), "units": ""},
            "current_range": {"value": ranges, "units": ""},
        },
    }
    check(from_samples(data))
    check_refused(from_samples(data, RANGES["18mA"]), "exceeds the meter's range in 6 of 6")
    ranges[amperes > RANGES["18mA"]] = 3
    check_refused(from_samples(data), "changed its range in 6 of 6 windows")
    amperes[8000:8010] = np.nan
    check_refused(from_samples(data), r"lost samples: 2 gaps, 0\.11 ms in all, in 1 of 6 windows")


@pytest.mark.parametrize(
    ("names", "scales", "delimiter", "volts"),
    [
        ("time_s,current_a,voltage_v,marker", (1, 1, 1), ",", None),
        ("Timestamp(ms),Current(uA),D0", (1e3, 1e6, None), ",", VOLTS),
        ("Time [s];I [mA];V [mV];trigger", (1, 1e3, 1e3), ";", None),
    ],
)
def test_exports_of_other_instruments_give_their_energy(tmp_path, names, scales, delimiter, volts):
    t, amperes, marker = known_trace(10_000)
    columns = [t * scales[0], amperes * scales[1]]
    columns += [np.full(len(t), VOLTS * scales[2])] if scales[2] else []
    rows = zip(*columns, marker.astype(int), strict=True)
    lines = [names, *(delimiter.join(f"{value:.9g}" for value in row) for row in rows)]
    path = tmp_path / "export.csv"
    path.write_text("\n".join(lines))
    check(csv.read(path, volts))
    path.write_text("\n".join(lines[:450] + lines[470:]))  # within a window
    check_refused(csv.read(path, volts), r"lost samples: 1 gaps, 2\.1 ms in all, in 1 of 6 windows")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no samples"),
        ("a,b,c\n1,2,3\n2,3,4\n", "no column of time"),
        ("time_s,current_a,marker\n1,2,0\n2,3,1\n", "no voltage"),
        ("time_s,current_a,voltage_v\n1,2,3\n2,3,3\n", "no marker"),
        ("time_s,current_a,voltage_v,marker\n1,x,3,0\n2,3,3,0\n", "must have numbers only"),
        ("time_s,current_a,voltage_v,marker\n2,1,3,0\n1,3,3,0\n", "must increase"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        csv.read(path)


def test_the_model_multiplies_times_and_bytes_by_currents():
    model = current_model.load("rp2040")
    assert model.compute_microjoules(0.01) == pytest.approx(3.3 * 27.1 * 10)
    assert model.sleep_microjoules(1.0) == pytest.approx(3.3 * 390)
    assert current_model.load("esp32").links["wifi"].seconds(20) == pytest.approx(
        (20 + 112) * 8 / 6.5e6
    )
    with pytest.raises(UsageError, match="no currents"):
        current_model.load("z80")


def test_every_figure_of_the_model_has_its_source_and_page():
    boards = json.loads(current_model.FIGURES.read_text())["boards"]
    for board in boards.values():
        figures = [board["active"], board["sleep"], *board["links"].values()]
        assert all(
            figure["source"] and figure["page"] > 0 and figure["ma"] >= 0 for figure in figures
        )
    quoted = boards["rp2040"]["active"]["quoted"]
    derived = quoted["dvdd_48mhz_ma"] * 125 / 48 + quoted["iovdd_ma"] + quoted["usb_vdd_ma"]
    assert boards["rp2040"]["active"]["ma"] == pytest.approx(derived, abs=0.05)


# The life of a battery: charges add up, limits hold, and every figure has its source


def wakes(**options):
    """A wake of 2 s at 100 mA; 0.01 mA asleep."""
    awake = {"awake": Phase(2000, 100, "x")}
    usual = {"phases": awake, "sleep": 0.01, "longest": None, "self_discharge": 0.0}
    return Wakes(**{"name": "n", "sleep_source": "x", "volts": 3.7, **usual, **options})


def test_charges_add_up():
    life = wakes().life(1000, 3600)
    assert life.milliampere["awake"] == pytest.approx(200 / 3600)
    assert life.milliampere["sleep"] == pytest.approx(0.01 * 3598 / 3600)
    assert life.years == pytest.approx(1000 / life.average / 8766)
    assert wakes().life(1000, 7200).milliampere["awake"] == pytest.approx(100 / 3600)
    assert wakes().charge == 200


def test_an_unused_battery_is_empty_after_its_self_discharge():
    idle = wakes(phases={}, sleep=0.0, self_discharge=0.025)
    assert [idle.life(mah, 3600).years for mah in (1000, 2000)] == pytest.approx([40 / 12] * 2)


def test_times_can_be_given_and_unknown_names_are_refused():
    usual = battery.load("esp32")
    shorter = usual.with_ms({"join": 200, "slot": 0})
    assert (shorter.phases["join"].ms, shorter.phases["join"].ma) == (200, usual.phases["join"].ma)
    assert shorter.charge == pytest.approx(usual.charge - 0.6 * 110 - 0.5 * 110)
    for call, message in (
        (lambda: usual.with_ms({"dance": 1}), "no phase 'dance'"),
        (lambda: battery.load("esp8266"), "no figures are known for esp8266"),
        (lambda: battery.load("esp32", "hibernate"), "ESP32 has no sleep 'hibernate'"),
        (lambda: wakes().life(1000, 2), "it cannot come every 2 s"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            call()
        assert caught.value.hint


def test_a_switching_converter_draws_more_from_a_lower_voltage():
    low, high = (battery.load("pico-w", volts=volts) for volts in (2.5, 5.0))
    assert low.charge == pytest.approx(2 * high.charge)
    assert low.sleep == pytest.approx(2 * high.sleep)
    assert (
        battery.load("pico-w", "timer", volts=2.5).sleep
        == battery.load("pico-w", "timer", volts=5).sleep
    )
    assert battery.load("esp32", volts=2.5).charge == battery.load("esp32", volts=5).charge


def test_every_figure_of_a_battery_s_life_names_its_origin():
    origins = {"source", "measured_by", "assumed"}
    for name, board in battery.figures()["boards"].items():
        for figure in (*board["currents"].values(), *board["sleeps"].values()):
            assert origins & figure.keys(), f"{name}: {figure['what']}"
            assert not figure.get("assumed"), "currents are not assumed"
            assert figure["ma"] >= 0 < figure["volts"]
        for phase, figure in board["phases"].items():
            assert origins & figure.keys() or phase in ("begin", "slot", "finish"), (
                f"{name}: {phase}"
            )
            assert figure["current"] in board["currents"]
        assert board["phases"].keys() == battery.figures()["boards"]["esp32"]["phases"].keys()


# The changes of each row of the guide's second table: for an ESP32, and for a Pico W with a timer.
CHANGES = {
    "as above": ({}, {}),
    "TLS takes twice the time": ({"connect": 3000}, {"connect": 6000}),
    "a scan for the network": ({"join": 6000}, {"join": 8200}),
    "TLS session and address kept": ({"connect": 300, "address": 0}, None),
    "without TLS": ({"connect": 200}, {"connect": 200}),
    "a lithium primary cell": ({"self_discharge": 0.0017}, {"self_discharge": 0.0017}),
    "a round every 15 minutes": ({"interval": 900}, {"interval": 900}),
    "a round a day": ({"interval": 86_400}, {"interval": 86_400}),
}


def test_the_guide_has_the_years_of_the_model():
    guide = Path(__file__).parents[2] / "docs/guides/battery.md"
    rows = [
        line.strip("| ").split(" | ")
        for line in guide.read_text().splitlines()
        if line.startswith("| ")
    ]
    kinds = (("esp32", "deepsleep"), ("pico-w", "timer"))
    for begins, changes in CHANGES.items():
        (cells,) = [row[1:] for row in rows if row[0].startswith(begins)]
        for cell, kind, change in zip(cells, kinds, changes, strict=True):
            if change is None:
                assert cell == "-"
                continue
            times = dict(change)
            interval = times.pop("interval", 3600)
            loss = times.pop("self_discharge", None)
            years = (
                battery.load(*kind, self_discharge=loss).with_ms(times).life(2000, interval).years
            )
            assert cell == f"{years:.2f}".removeprefix("0"), begins
    for kind in (*kinds, ("esp32", "devkit"), ("pico-w", "deepsleep")):
        years = f"{battery.load(*kind).life(2000, 3600).years:.2f}".removeprefix("0")
        sleeps = [row[1] for row in rows if row[2:3] == [years]]
        assert any(sleep.startswith(kind[1]) or kind[1] == "devkit" for sleep in sleeps), kind


def test_the_command_takes_times_and_draws_the_life_of_a_battery(tmp_path, tern):
    picture = tmp_path / "battery.png"
    words = ["bench", "battery", "--chip", "pico-w", "--awake-ms", "join=1000"]
    result = tern(*words, "--json", "--plot", str(picture)).json
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert result["phases"]["join"]["ms"] == 1000
    assert result["milliampere_average"] == pytest.approx(sum(result["milliampere"].values()))
    assert result["modelled"]
    text = tern(*words, "--interval-s", "7200").out
    assert "years (modelled)" in text
    assert "cannot sleep longer than 4290 s" in text
    assert max(map(len, text.splitlines())) < 120
    assert "measured by" not in text
    sourced = tern(*words, "--interval-s", "7200", "--sources").out.splitlines()
    assert text.splitlines()[:-1] == sourced[: text.count("\n") - 1]
    assert "measured by" in "".join(sourced[text.count("\n") - 1 :])
    for wrong in ("join", "join=x", "join=-1"):
        assert "--awake-ms must be PHASE=MS" in tern(*words, "--awake-ms", wrong, code=2).err
