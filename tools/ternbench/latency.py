"""How long a report takes on a device, and where the time goes, by MLPerf Tiny's method.

After warm-ups, five windows of at least ten iterations are measured. The main case at a port has
windows of 80: its 400 reports show what garbage, its collection and the flash cost. The emulated
Pico simulates cycles, so that two boots with one seed must agree to the microsecond. QEMU's
machines count instructions, a lower bound for a chip.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np

from tern import card as cards
from tern import host_frames, ledger, storage, wire
from tern.fixed import ONE
from ternbench.cases import OVERHEAD, Case
from ternbench.subjects import INSTRUCTIONS, MICROSECONDS, Subject, subject
from ternhost.errors import UsageError
from ternhost.learn import projections
from ternhost.learn.designs import DeviceClass
from ternhost.learn.parameters import LINEAR_MODELS
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import parse_epsilon
from ternhost.provision.boards import board_files, fleet_file
from ternhost.reach import fleet
from terntools.boards import mpy
from terntools.emulators.fleets import OnFirmware

Say = Callable[[str], None]

DEVICE = 1
WINDOWS, ITERATIONS, WARM_UP = 5, 10, 3
MAIN_ITERATIONS = 80  # of the main case at a port: garbage is collected after 250 reports
MECHANISMS = ("three-outputs", "duchi", "pm-sub")
DIMENSIONS = (28, 100)
SUMS = tuple(Case("gaussian", "0.02", 28, 28, records=records) for records in (32, 500))
_BUDGET = 1_000_000_000
_EXPONENT = -14  # of the question's parameters: they are from -2 to 2
_LONG_SUM = 100  # records of a sum that takes long
_RENEWAL = 12  # reports of k = 1 from one new key of the generator to the next, which makes garbage

# Clocks of the ESP32-C3 and C6, and of the ESP32, S2 and S3. None of them ends more than one
# instruction a cycle.
CLOCKS_MHZ = (160, 240)
# Parts of a report that are hardware on those chips (SHA-256 and AES), and software here.
_HARDWARE = ("tag", "entropy", "coordinates")


@dataclass(frozen=True)
class Part:
    """A part of a report's time: the timed calls that it adds up, and those that it takes off."""

    added: tuple[str, ...]
    subtracted: tuple[str, ...] = ()
    wrapped: tuple[str, ...] = ()  # further timed calls within those that are added


# The parts as they are shown, in order. What remains of a report are the steps between them.
PARTS = {
    "tag": Part(("question", "tag")),
    "decode": Part(("decode", "certify")),  # a card is certified in its first report alone
    "gradient": Part(("gradient",)),
    "coordinates": Part(("coordinates",)),
    "entropy": Part(("refill", "end of report")),
    "sampling": Part(("sample",), subtracted=("refill",)),
    "packing": Part(("encode",), subtracted=("tag",), wrapped=("pack",)),
    "ledger": Part(("ledger load", "ledger pay")),
}


class Bench:
    """Measures reports on one device. Times are in `device.unit`."""

    def __init__(self, device: Subject) -> None:
        self.device = device
        self._key = bytes(range(wire.KEY_BYTES))  # of no real device: the same in every run
        self._round = 0

    def prepare(self, case: Case) -> None:
        """Provision and warm up the device for a case, in a folder and with a budget of its own."""
        measure = ledger.RHO if case.records else ledger.EPSILON
        policy = Policy(_BUDGET, _BUDGET, measure)
        files = board_files(DEVICE, [self._key], _rows(case), policy)
        if case.records:
            files = {**files, storage.FLEET: fleet_file(bytes(wire.KEY_BYTES), unit=1)}
        self.device.install(files)
        self._round = 0
        self.device.call(f"answer({self.messages(case, WARM_UP)!r})")

    def messages(self, case: Case, count: int) -> list[bytes]:
        """Return the next `count` ROUND messages of a case, which are new to the device."""
        card = case.card
        # Different parameters over the whole range of 16 bits, the same in every run.
        parameters = [(4801 * index) % 65536 - 32768 for index in range(case.d)]
        frame = bytearray(wire.MAX_FRAME)
        messages = []
        for _ in range(count):
            self._round += 1
            frame_size = host_frames.encode_round(
                frame,
                self._key,
                DEVICE,
                self._round,
                LINEAR_MODELS[case.model],
                parameters,
                card,
                case.values,
                _EXPONENT,
                case.range,
            )
            messages.append(bytes(frame[:frame_size]))
        return messages

    def report(self, case: Case, iterations: int = ITERATIONS) -> dict[str, Any]:
        """Measure the times of whole reports and of their parts.

        iterations: how many reports a window has at a port. Returns medians, the mean, the slowest
        report, and under "breakdown" the time of each part.
        """
        self.prepare(case)
        link_times: dict[str, float] = {}
        if self.device.has_port:
            times_by_window, answer_time, link_times = self._serve_windows(case, iterations)
        else:
            times_by_window = [self.answers(case)[0] for _ in range(WINDOWS)]
            answer_time = median(itertools.chain.from_iterable(times_by_window))

        parts = self._parts(case)
        parts["steps"] = max(0.0, answer_time - sum(parts.values()))
        if link_times:
            parts["link"] = sum(link_times.values())
        report_times = list(itertools.chain.from_iterable(times_by_window))
        mean_by_window = [fmean(window) for window in times_by_window]
        return {
            "answer": answer_time,
            **link_times,
            "median": median(report_times),
            "slowest": max(report_times),
            "mean": median(mean_by_window),
            "windows": mean_by_window,
            "breakdown": {name: round(value, 1) for name, value in parts.items()},
        }

    def _serve_windows(
        self, case: Case, iterations: int
    ) -> tuple[list[list[int]], float, dict[str, float]]:
        """Time reports over the device's port.

        Returns the times of whole reports by window, the median time of an answer, and the medians
        of the link: "receive" and "send".
        """
        times_by_window = []
        steps_of_reports = []  # receiving, answering, and sending of each report
        for _ in range(WINDOWS):
            reports = self.device.serve(self.messages(case, iterations))
            times_by_window.append([sum(times) for times in reports])
            steps_of_reports += reports
        receive_times, answer_times, send_times = zip(*steps_of_reports, strict=True)
        link_times = {"receive": median(receive_times), "send": median(send_times)}
        return times_by_window, median(answer_times), link_times

    def figures(self, case: Case) -> dict[str, Any]:
        """Return `report` with the case, the bytes of its frames, and the time of a value's noise.

        "bytes_float32" is the size of a report that would send d floats.
        """
        iterations = 2 if case.records > _LONG_SUM else ITERATIONS
        report = self.report(case, iterations)
        parts = report["breakdown"]
        return {
            "name": case.label,
            **asdict(case),
            **report,
            "bytes_in": len(self.messages(case, 1)[0]),
            "bytes_out": case.report_bytes,
            "bytes_float32": OVERHEAD + 4 * case.d,
            "noise": (parts["sampling"] + parts["entropy"]) / case.values,
        }

    def answers(self, case: Case) -> tuple[list[int], dict[str, list[int]]]:
        """The times of ITERATIONS reports on a prepared device, and of each watched call in them."""
        times, calls = self.device.call(f"answer({self.messages(case, ITERATIONS)!r})")
        return times, calls

    def _parts(self, case: Case) -> dict[str, float]:
        """Return the time of each of PARTS in a report."""
        # What timing a call adds to its own time, and to the time of its caller.
        time_inside, time_outside = self.device.call("overhead()")
        self.prepare(case)
        self.device.call("watch()")
        _, times_of_calls = self.answers(case)

        calls_per_report = {}  # in a report
        time_per_report = {}  # in a report
        for label, times in times_of_calls.items():
            calls_per_report[label] = len(times) / ITERATIONS
            time_per_report[label] = (
                median(times) * calls_per_report[label] - time_inside * calls_per_report[label]
            )

        parts = {}
        for name, part in PARTS.items():
            added = sum(time_per_report.get(label, 0.0) for label in part.added)
            subtracted = sum(time_per_report.get(label, 0.0) for label in part.subtracted)
            nested = (*part.subtracted, *part.wrapped)
            nested_calls = sum(calls_per_report.get(label, 0.0) for label in nested)
            parts[name] = max(0.0, added - subtracted - time_outside * nested_calls)
        return parts

    def burst(self, case: Case, count: int) -> float:
        """Let the device make `count` reports, each with the marker set.

        Returns the seconds that they took.
        """
        (message,) = self.messages(case, 1)
        times, _ = self.device.call(f"answer(rounds({message!r}, {self._key!r}, {count}))")
        return float(sum(times)) / 1e6

    def units(self, card: bytes, name: str) -> float:
        """Measure a case of tern.bench, and return the median time of one of its units."""
        return float(median(self.device.call(f"case({name!r}, {WINDOWS}, {card!r})")))

    def heap(self, case: Case) -> dict[str, int]:
        """Measure bytes of the heap.

        Returns the bytes that are free before and with the client, the garbage of a report, and the
        most that is in use.
        """
        self.prepare(case)
        free_before, free_with_client = self.device.call("heap")
        garbage_bytes = 0
        used_bytes = []
        for _ in range(2):
            messages = self.messages(case, _RENEWAL)
            garbage, used = self.device.call(f"garbage({messages!r})")
            garbage_bytes += garbage
            used_bytes.append(used)
        garbage_per_report = math.ceil(garbage_bytes / (2 * _RENEWAL))
        return {
            "free_before": free_before,
            "free": free_with_client,
            "garbage_per_report": garbage_per_report,
            "peak": max(used_bytes) + garbage_per_report,
        }


def _rows(case: Case) -> Any:
    """Return records of the device that use the whole range: an array of Q1.14 fixed point.

    A sum has a row for each of its records. Columns: the coordinates, then the label.
    """
    shape = max(1, case.records), case.d + 1
    values = 7919 * np.arange(math.prod(shape)) % (2 * ONE) - ONE
    return values.astype(np.int16).reshape(shape)


def measure(
    fleet_name: str, case: Case, say: Say, mechanisms: Sequence[str] = MECHANISMS
) -> dict[str, Any]:
    """Measure all figures of `tern bench latency` on a board, an emulated board or the device.

    fleet_name: a fleet of one. say: is called with each step. On an emulated board the main figures
    come from two boots, which must agree to the microsecond; in instructions they may differ by the
    share `runs_differ_by`. Raises UsageError without mpy-cross.
    """
    library = mpy.compile_set(mpy.BOARDS["pico"])  # first, since the compiler may be missing
    with subject(fleet_name) as device:
        bench = Bench(device)
        result = main_figures(bench, case, mechanisms, say)
        result["reports"] = _reports(bench, case, mechanisms, say)

    result["identical_runs"] = None
    result["runs_differ_by"] = None
    if isinstance(fleet.parse(fleet_name), OnFirmware):
        say("booting once more: the figures must be the same")
        with subject(fleet_name) as device:
            second_boot = main_figures(Bench(device), case, mechanisms, say)
        if result["unit"] == MICROSECONDS:
            result["identical_runs"] = all(
                result[name] == second_boot[name] for name in second_boot
            )
        else:
            name = f"{INSTRUCTIONS}_per_report"
            result["runs_differ_by"] = abs(second_boot[name]["median"] / result[name]["median"] - 1)

    result["mpy_bytes"] = sum(map(len, library.values()))
    result["method"] = {
        "windows": WINDOWS,
        "iterations": ITERATIONS,
        "warm_up": WARM_UP,
        "counts": "median",
        "main_iterations": MAIN_ITERATIONS,
    }
    return result


def plan(fleet_name: str, case: Case, mechanisms: Sequence[str] = MECHANISMS) -> list[float]:
    """Return the relative durations of the steps of `measure`, as on an emulated Pico."""
    mechanism_steps = [1] * len(mechanisms)
    main_steps = [2, 10, *mechanism_steps, 1]
    report_steps = [5 + report.records // 10 for report in _cases(case, mechanisms)]
    durations: list[float] = [*main_steps, *report_steps]
    if isinstance(fleet.parse(fleet_name), OnFirmware):
        durations += [9, *main_steps]
    return durations


def main_figures(bench: Bench, case: Case, mechanisms: Sequence[str], say: Say) -> dict[str, Any]:
    """Measure one report, a coordinate of each mechanism, and the heap.

    mechanisms: their names. say: is called with each step. The keys of the result contain the unit.
    """
    device = bench.device
    unit = device.unit
    say(f"{device.name}: heap")
    heap = bench.heap(replace(case, d=max(100, case.d), k=1))
    say("a report, and where its time goes")
    report = bench.report(case, MAIN_ITERATIONS)

    # On a client that was just made: what many reports leave in the heap slows a draw by a fifth.
    bench.prepare(case)
    coordinate = {}
    plain_coordinate = {}
    for name in mechanisms:
        say(f"a coordinate: {name}")
        card = Case(name, case.epsilon).card
        coordinate[name] = bench.units(card, "sample")
        plain_coordinate[name] = bench.units(card, "plain")

    say("the same with the sampler in C, if this board can run it")
    native_coordinate = None
    if device.use_native():
        native_coordinate = {}
        for name in mechanisms:
            native_coordinate[name] = bench.units(Case(name, case.epsilon).card, "sample")

    card = case.card
    case_figures = {
        "name": case.label,
        **asdict(case),
        "card_bytes": len(card),
        "symbols": cards.decode(card).symbols,
    }
    return {
        "device": device.name,
        "chip": device.chip,
        "unit": unit,
        "case": case_figures,
        f"{unit}_per_coordinate": coordinate,
        f"{unit}_per_coordinate_plain_float": plain_coordinate,
        f"{unit}_per_coordinate_native_c": native_coordinate,
        f"entropy_{unit}_per_byte": bench.units(card, "entropy"),
        f"{unit}_per_report": report,
        "us_per_report_at_least": at_least(report) if unit == INSTRUCTIONS else None,
        "heap_bytes_peak": heap["peak"],
        "heap": heap,
    }


def at_least(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the least microseconds that a report's instructions take, by clock.

    A chip ends at most one instruction a cycle. SHA-256 and AES, which are hardware on an ESP32,
    are left out.
    """
    instructions = 0.0
    for part, value in report["breakdown"].items():
        if part not in _HARDWARE:
            instructions += value
    return {f"{mhz} MHz": instructions / mhz for mhz in CLOCKS_MHZ}


def _cases(case: Case, mechanisms: Sequence[str]) -> list[Case]:
    """Return the reports to compare with each other: variations of `case`, and two sums."""
    cases = []
    for name in (case.mechanism, *mechanisms):
        if name != projections.NAME:
            cases += [replace(case, mechanism=name, k=k) for k in (1, case.d)]
    with contextlib.suppress(UsageError):  # the least epsilons have no projection
        projections.design(DeviceClass(parse_epsilon(case.epsilon)), case.d)
        cases.append(replace(case, mechanism=projections.NAME, k=1))
    cases += [replace(case, d=coordinates, k=1) for coordinates in DIMENSIONS]
    cases += [replace(case, k=1, model=name) for name in LINEAR_MODELS]
    return list(dict.fromkeys((*cases, *SUMS)))


def _reports(bench: Bench, case: Case, mechanisms: Sequence[str], say: Say) -> list[dict[str, Any]]:
    """Measure the reports that are compared with each other."""
    figures = []
    for compared_case in _cases(case, mechanisms):
        say(f"a report: {compared_case.label}")
        figures.append(bench.figures(compared_case))
    return figures
