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
from tern import frames, host_frames, ledger, storage, wire
from tern.fixed import ONE
from ternhost.errors import UsageError
from ternhost.learn import projections
from ternhost.learn.designs import DeviceClass
from ternhost.learn.observations import DIRECTION
from ternhost.learn.parameters import LINEAR_MODELS
from ternhost.privacy import mechanisms, projection, sums
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_files, fleet_file
from ternhost.reach import fleet
from terntools.bench.subjects import INSTRUCTIONS, MICROSECONDS, Subject, subject
from terntools.boards import mpy
from terntools.emulators.fleets import OnFirmware

Tell = Callable[[str], None]

DEVICE = 1
WINDOWS, ITERATIONS, WARM_UP = 5, 10, 3
MAIN_ITERATIONS = 80  # of the main case at a port: garbage is collected after 250 reports
MECHANISMS = ("three-outputs", "duchi", "pm-sub")
DIMENSIONS = (28, 100)
OVERHEAD: int = (
    frames.end_of(wire.REPORT_FIELDS) + wire.TAG_BYTES
)  # bytes of a REPORT's header and tag
_BUDGET = 1_000_000_000
_RENEWAL = 12  # reports of k = 1 from one new key of the generator to the next, which makes garbage

# The parts of an answer as they are shown, in order, and the timed calls that each adds and
# subtracts. What remains of an answer are the steps between them.
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "tag": (("question", "tag"), ()),
    "decode": (("decode", "certify"), ()),  # a card is certified in its first report alone
    "gradient": (("gradient",), ()),
    "coordinates": (("coordinates",), ()),
    "entropy": (("refill", "end of report"), ()),
    "sampling": (("sample",), ("refill",)),
    "packing": (("encode",), ("tag",)),
    "ledger": (("ledger load", "ledger pay"), ()),
}


@dataclass(frozen=True)
class Case:
    """A mechanism at an epsilon of the whole report, a model, k of d coordinates; or a sum of
    `records`, at a rho.
    """

    mechanism: str = "three-outputs"
    epsilon: str = "2"
    d: int = 28
    k: int = 1
    model: str = "logistic"
    records: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.d <= wire.MAX_DIMENSION:
            text = f"--k must be 1 to --d, and --d at most {wire.MAX_DIMENSION}, not {self.k} and {self.d}"
            hint = "--d is how many coordinates there are, --k how many of them a device reports"
            raise UsageError(text, hint)
        if self.mechanism == projections.NAME and self.k > 1:
            text = f"a projection tells one direction of all --d coordinates: --k must be 1, not {self.k}"
            raise UsageError(text, "leave out --k")

    @property
    def label(self) -> str:
        over = f" sum of {self.records} records" if self.records else ""
        return f"{self.mechanism}{over}, {projections.part(self.mechanism, self.k)} {self.d}, {self.model}"

    @property
    def values(self) -> int:
        return self.k + bool(self.records)

    @property
    def report_bytes(self) -> int:
        """The bytes of a REPORT, before COBS."""
        return OVERHEAD + int(frames.packed_size(cards.decode(self.card).symbols, self.values))

    @property
    def range(self) -> int:
        """Of the question."""
        if self.mechanism == projections.NAME:
            return self._projection().range
        return 4 if self.records else 0

    def _projection(self) -> projection.ProjectionDesign:
        return projection.design(mechanisms.parse_epsilon(self.epsilon), self.d, DIRECTION)

    @property
    def card(self) -> bytes:
        if self.mechanism == projections.NAME:
            return self._projection().card
        micro = mechanisms.parse_epsilon(self.epsilon)
        if self.records:
            more = {
                "unit": 1,
                "units": self.records,
                "values": self.values,
                "clipped": 92,
                "kept": -36,
            }
            return sums.design(cost=micro, radius=0.5, **more).card
        levels = 255 if self.mechanism.startswith("pm") else None
        return mechanisms.design(self.mechanism, levels=levels, epsilon_micro=micro // self.k).card


SUMS = tuple(Case("gaussian", "0.02", 28, 28, records=records) for records in (32, 500))

# Clocks of the ESP32-C3 and C6, and of the ESP32, S2 and S3. None of them ends more than one
# instruction a cycle.
CLOCKS_MHZ = (160, 240)
# SHA-256 and AES are hardware on those chips, and software here.
_HARDWARE = ("tag", "entropy", "coordinates")


class Bench:
    def __init__(self, on: Subject) -> None:
        self.device = on
        self._key = bytes(range(wire.KEY_BYTES))  # of a device that is none: the same in every run
        self._round = 0

    def prepare(self, case: Case) -> None:
        """Provision the device for a case, in a folder of its own with a budget of its own."""
        shape = max(1, case.records), case.d + 1
        rows = (
            (7919 * np.arange(math.prod(shape)) % (2 * ONE) - ONE).astype(np.int16).reshape(shape)
        )
        policy = Policy(_BUDGET, _BUDGET, ledger.RHO if case.records else ledger.EPSILON)
        protects = (
            {storage.FLEET: fleet_file(bytes(wire.KEY_BYTES), unit=1)} if case.records else {}
        )
        self.device.install({**board_files(DEVICE, [self._key], rows, policy), **protects})
        self._round = 0
        self.device.call(f"answer({self.messages(case, WARM_UP)!r})")

    def messages(self, case: Case, n: int) -> list[bytes]:
        rounds = []
        out = bytearray(wire.MAX_FRAME)
        card = case.card
        parameters = [(4801 * j) % 65536 - 32768 for j in range(case.d)]
        for _ in range(n):
            self._round += 1
            size = host_frames.encode_round(
                out,
                self._key,
                DEVICE,
                self._round,
                LINEAR_MODELS[case.model],
                parameters,
                card,
                case.values,
                -14,
                case.range,
            )
            rounds.append(bytes(out[:size]))
        return rounds

    def report(self, case: Case, iterations: int = ITERATIONS) -> dict[str, Any]:
        """Times of whole reports and their parts; iterations: in a window, at a port."""
        self.prepare(case)
        link = {}
        if self.device.has_port:
            served = [self.device.serve(self.messages(case, iterations)) for _ in range(WINDOWS)]
            windows = [[sum(times) for times in window] for window in served]
            times = zip(*itertools.chain.from_iterable(served), strict=True)
            receive, answer, send = map(median, times)
            link = {"receive": receive, "send": send}
        else:
            windows = [self.answers(case)[0] for _ in range(WINDOWS)]
            answer = median(time for window in windows for time in window)
        totals = [time for window in windows for time in window]
        parts = self._parts(case)
        parts["steps"] = max(0.0, answer - sum(parts.values()))
        parts |= {"link": sum(link.values())} if link else {}
        means = [fmean(window) for window in windows]
        return {
            "answer": answer,
            **link,
            "median": median(totals),
            "slowest": max(totals),
            "mean": median(means),
            "windows": means,
            "breakdown": {name: round(value, 1) for name, value in parts.items()},
        }

    def figures(self, case: Case) -> dict[str, Any]:
        """report() with the case, the noise of a value, and bytes: of ROUND, REPORT, and a report
        of float32.
        """
        iterations = 2 if case.records > 100 else ITERATIONS
        report = {"name": case.label, **asdict(case), **self.report(case, iterations)}
        noise = (report["breakdown"]["sampling"] + report["breakdown"]["entropy"]) / case.values
        sizes = {"bytes_in": len(self.messages(case, 1)[0]), "bytes_out": case.report_bytes}
        return {**report, **sizes, "bytes_float32": OVERHEAD + 4 * case.d, "noise": noise}

    def answers(self, case: Case) -> tuple[list[int], dict[str, list[int]]]:
        """How long each of ITERATIONS reports took on a prepared device, and each call of the
        watched parts.
        """
        times, parts = self.device.call(f"answer({self.messages(case, ITERATIONS)!r})")
        return times, parts

    def _parts(self, case: Case) -> dict[str, float]:
        inside, outside = self.device.call("overhead()")
        self.prepare(case)
        self.device.call("watch()")
        _, timed = self.answers(case)
        calls = {label: len(times) / ITERATIONS for label, times in timed.items()}
        mean = {
            label: median(times) * calls[label] - inside * calls[label]
            for label, times in timed.items()
        }
        # Nested parts were timed with their wrappers.
        parts = {}
        for name, (plus, minus) in PARTS.items():
            value = sum(mean.get(label, 0.0) for label in plus) - sum(
                mean.get(label, 0.0) for label in minus
            )
            wrapped = [*minus, "pack"] if name == "packing" else minus
            parts[name] = max(
                0.0, value - outside * sum(calls.get(label, 0.0) for label in wrapped)
            )
        return parts

    def burst(self, case: Case, n: int) -> float:
        """Make n reports, each with the marker set; the seconds that they took."""
        (message,) = self.messages(case, 1)
        return (
            float(sum(self.device.call(f"answer(rounds({message!r}, {self._key!r}, {n}))")[0]))
            / 1e6
        )

    def units(self, card: bytes, name: str) -> float:
        """The median time of a case of tern.bench, a unit."""
        return float(median(self.device.call(f"case({name!r}, {WINDOWS}, {card!r})")))

    def heap(self, case: Case) -> dict[str, int]:
        """Bytes of heap: free before and with the client, garbage of a report on average, and the
        most in use.
        """
        self.prepare(case)
        before, free = self.device.call("heap")
        made = [self.device.call(f"garbage({self.messages(case, _RENEWAL)!r})") for _ in range(2)]
        garbage = math.ceil(sum(garbage for garbage, _ in made) / (2 * _RENEWAL))
        used = max(used for _, used in made)
        return {
            "free_before": before,
            "free": free,
            "garbage_per_report": garbage,
            "peak": used + garbage,
        }


def measure(spec: str, case: Case, say: Tell, names: Sequence[str] = MECHANISMS) -> dict[str, Any]:
    """All figures of `tern bench latency`.

    On an emulated board the main ones come from two boots, which must agree to the microsecond, or
    in instructions within `runs_differ_by`, a share. Raises UsageError without mpy-cross.
    """
    library = mpy.compile_set(mpy.BOARDS["pico"])  # first, since the compiler may be missing
    with subject(spec) as on:
        bench = Bench(on)
        result = _main_figures(bench, case, names, say)
        result["reports"] = _reports(bench, case, names, say)
    result["identical_runs"] = result["runs_differ_by"] = None
    if isinstance(fleet.parse(spec), OnFirmware):
        say("booting once more: the figures must be the same")
        with subject(spec) as on:
            again = _main_figures(Bench(on), case, names, say)
        if result["unit"] == MICROSECONDS:
            result["identical_runs"] = all(result[name] == again[name] for name in again)
        else:
            name = f"{INSTRUCTIONS}_per_report"
            result["runs_differ_by"] = abs(again[name]["median"] / result[name]["median"] - 1)
    result["mpy_bytes"] = sum(map(len, library.values()))
    result["method"] = {
        "windows": WINDOWS,
        "iterations": ITERATIONS,
        "warm_up": WARM_UP,
        "counts": "median",
        "main_iterations": MAIN_ITERATIONS,
    }
    return result


def plan(spec: str, case: Case, names: Sequence[str] = MECHANISMS) -> list[float]:
    """The relative durations of the steps that measure() tells, as they are on an emulated Pico."""
    main = [2, 10, *[1] * len(names), 1]
    again = [9, *main] if isinstance(fleet.parse(spec), OnFirmware) else []
    return [*main, *[5 + one.records // 10 for one in _cases(case, names)], *again]


def _main_figures(bench: Bench, case: Case, names: Sequence[str], say: Tell) -> dict[str, Any]:
    say(f"{bench.device.name}: heap")
    heap = bench.heap(replace(case, d=max(100, case.d), k=1))
    say("a report, and where its time goes")
    report = bench.report(case, MAIN_ITERATIONS)
    coordinate, plain = {}, {}
    for name in names:
        say(f"a coordinate: {name}")
        card = Case(name, case.epsilon).card
        coordinate[name] = bench.units(card, "sample")
        plain[name] = bench.units(card, "plain")
    in_c = None
    say("the same with the sampler in C, if this board can run it")
    if bench.device.use_native():
        in_c = {name: bench.units(Case(name, case.epsilon).card, "sample") for name in names}
    card = case.card
    unit = bench.device.unit
    return {
        "device": bench.device.name,
        "chip": bench.device.chip,
        "unit": unit,
        "case": {
            "name": case.label,
            **asdict(case),
            "card_bytes": len(card),
            "symbols": cards.decode(card).symbols,
        },
        f"{unit}_per_coordinate": coordinate,
        f"{unit}_per_coordinate_plain_float": plain,
        f"{unit}_per_coordinate_native_c": in_c,
        f"entropy_{unit}_per_byte": bench.units(card, "entropy"),
        f"{unit}_per_report": report,
        "us_per_report_at_least": at_least(report) if unit == INSTRUCTIONS else None,
        "heap_bytes_peak": heap["peak"],
        "heap": heap,
    }


def at_least(report: Mapping[str, Any]) -> dict[str, float]:
    """Least microseconds for a report's instructions, by clock.

    SHA-256 and AES, hardware on an ESP32, are left out.
    """
    counted = sum(value for part, value in report["breakdown"].items() if part not in _HARDWARE)
    return {f"{mhz} MHz": counted / mhz for mhz in CLOCKS_MHZ}


def _cases(case: Case, names: Sequence[str]) -> list[Case]:
    of_coordinates = [name for name in (case.mechanism, *names) if name != projections.NAME]
    cases = [replace(case, mechanism=name, k=k) for name in of_coordinates for k in (1, case.d)]
    with contextlib.suppress(UsageError):  # there is none at the least epsilons
        projections.design(DeviceClass(mechanisms.parse_epsilon(case.epsilon)), case.d)
        cases.append(replace(case, mechanism=projections.NAME, k=1))
    cases += [replace(case, d=d, k=1) for d in DIMENSIONS]
    cases += [replace(case, k=1, model=name) for name in LINEAR_MODELS]
    return list(dict.fromkeys((*cases, *SUMS)))


def _reports(bench: Bench, case: Case, names: Sequence[str], say: Tell) -> list[dict[str, Any]]:
    figures = []
    for one in _cases(case, names):
        say(f"a report: {one.label}")
        figures.append(bench.figures(one))
    return figures
