"""Texts of the page and of the terminal about a snapshot."""

import time

from tern import wire
from ternhost.privacy.guarantee import rounded
from ternhost.privacy.units import parse_unit, protected
from ternhost.store.runs import FINISHED, PREPARING, RUNNING, STOPPED
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.watch import curves
from ternhost.watch.fleet_view import states

Tile = tuple[str, str, str]  # name, value, explanation
REFUSALS = "refusals"
_SILENT = "nothing written for {}: the run may have been killed; the figures are from before"
_SPENT = (
    "They have told as much as they may for life, and keep this promise by refusing. Devices with "
    "budget left may go on: see Fleet, or 'tern device list'."
)


# The run


def title(now: Snapshot) -> str:
    """The name of the run."""
    return now.run.name if now.run else "no run yet"


def lead(now: Snapshot) -> str:
    """Algorithm, data and fleet of the run."""
    if now.run is None:
        return f"{now.store}: begin a run with 'tern train' or 'tern serve', and it is shown here"
    data = None
    if now.run.options.get("dimension") is None:
        data = now.run.options.get("dataset")
    return f"{now.run.algorithm} on {data or 'records of the devices'}, fleet {now.run.fleet}"


def reckoned(run: RunView) -> str:
    """The rounds that `epsilon_run` of its classes covers, such as "in 40 rounds".

    They are those planned at its start; there may be more by now.
    """
    rounds = run.references.get("rounds")
    if rounds is None:
        return "a round"
    return "in the run" if rounds == run.planned else f"in {rounds:,} rounds"


def epsilon_of(run: RunView) -> str:
    """What the epsilons of a run are about.

    Such as "epsilon of one record of a device, that it was there, at delta 1e-06".
    """
    unit = parse_unit(run.options.get("unit") or "device")
    text = f"epsilon of {protected(unit)}"
    if unit:
        text += ", that it was there"
    delta = run.options.get("delta")
    if delta:
        text += f", at delta {float(delta):g}, as ledgers count it"
    return text


def of_rounds(count: int, rounds: int | None) -> str:
    """Which round of a run it is: "round 9 of 40"; without an end "round 9"."""
    text = f"round {count:,}"
    if rounds:
        text += f" of {rounds:,}"
    return text


def status(now: Snapshot) -> str:
    """The status of the run, for a badge."""
    return "waiting" if now.run is None else now.run.status + _if_silent(now)


def tone(now: Snapshot) -> str:
    """The class of the badge.

    "good" for a run under way, "warn" for one that has stopped before its end.
    """
    if now.run is None or now.run.status == FINISHED:
        return ""
    under_way = now.run.status in (PREPARING, RUNNING)
    return "good" if under_way and not _if_silent(now) else "warn"


def _if_silent(now: Snapshot) -> str:
    """What follows a state that may have changed since the run last wrote it."""
    return "" if now.silent(time.time()) is None else " when last written"


# The figures at the top


def tiles(now: Snapshot) -> list[Tile]:
    """The figures at the top."""
    run = now.run
    if run is None:
        return [("devices with a key", f"{now.devices:,}", "")]
    planned = f"of {run.planned:,}" if run.planned else "no end planned"
    arriving = f"{now.coming:,} of them in the round under way" if now.open else "each counted once"
    return [
        ("rounds ended", f"{run.rounds:,}", planned),
        ("reports accepted", f"{now.accepted:,}", arriving),
        *_figure_tile(now),
        *_epsilon_tile(now, run),
        *_devices_tile(now),
        *_extension_tiles(now),
        (REFUSALS, f"{run.refusals:,}", "by devices, see Round"),
    ]


def _figure_tile(now: Snapshot) -> list[Tile]:
    measures = curves.measures(now.run, now.history)
    if not measures:
        return []
    name = measures[0]
    last = now.history[-1] if now.history else {}
    value = f"{last[name]:.4f}" if name in last else "–"
    optimum, _ = curves.compared_with(now.run, name)
    comparison = "" if optimum is None else f"without privacy {optimum:.4f}"
    return [(curves.word(name), value, comparison)]


def _epsilon_tile(now: Snapshot, run: RunView) -> list[Tile]:
    spent = curves.spent(now)
    if spent is None:
        return []
    costs = {device_class["epsilon_per_report"] for device_class in run.classes}
    each = " to ".join(rounded(cost) for cost in sorted({min(costs), max(costs)}))
    explanation = f"{epsilon_of(run)}; by accepted reports, {each} each"
    return [("epsilon spent, mean of devices", rounded(spent), explanation)]


def _devices_tile(now: Snapshot) -> list[Tile]:
    if now.boards:
        online = states(now.boards)["online"]
        return [
            (f"boards online{_if_silent(now)}", f"{online:,}", f"of {len(now.boards):,} ever seen")
        ]
    devices = curves.devices_of(now.run, now.devices)
    if devices:
        return [
            ("devices", f"{devices:,}", "registered" if now.devices else "simulated or emulated")
        ]
    return []


def _extension_tiles(now: Snapshot) -> list[Tile]:
    tiles = [view.tile(_if_silent(now)) for view in now.views.values()]
    return [tile for tile in tiles if tile is not None]


# What is wrong


def refusing(now: Snapshot) -> str | None:
    """Why the last ended round had only refusals, mostly, with a remedy; else None."""
    last = now.history[-1] if now.history else {}
    if last.get("reports") or not last.get("reasons"):
        return None
    reason, count = next(iter(last["reasons"].items()))
    asked = last["asked"]
    who = "every device refuses" if count >= asked else f"{count:,} of {asked:,} devices refuse"
    if reason != wire.error_name(wire.ERR_BUDGET):
        return f"{who}: {reason}; the section Round counts the reasons"
    return f"{who}: budget spent. {_SPENT}"


def old(now: Snapshot) -> str | None:
    """The note above everything, or None.

    A snapshot may be out of date, a run silent or without a process, or a fleet may refuse.
    """
    if now.note is not None:
        if not now.read:
            return f"{now.note}: nothing has been read yet"
        age = max(0.0, time.time() - now.read)
        return f"{now.note}: the figures are {duration(age)} old"
    if now.run is not None and now.run.status == STOPPED:
        return "the process of this run is gone: 'tern runs' shows the command that goes on with it"
    silence = now.silent(time.time())
    return refusing(now) if silence is None else _SILENT.format(duration(silence))


# Time


def time_of(opened: OpenRound, now: float) -> str:
    """How long a round has been open, and the time left to its deadline. now: seconds since 1970."""
    if opened.began is None:
        return ""
    gone = max(0.0, now - opened.began)
    text = f"for {duration(gone)}"
    if opened.deadline is None:
        return text
    left = opened.deadline - gone
    return f"{text}, {duration(left)} left" if left > 0 else f"{text}, past its deadline"


def ago(when: float | None) -> str:
    """The time since a moment (seconds since 1970)."""
    return "–" if when is None else f"{duration(max(0.0, time.time() - when))} ago"


def duration(seconds: float) -> str:
    """A duration with a unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else "1 s"
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def moment(when: float | None) -> str:
    """A moment in local time."""
    return "–" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
