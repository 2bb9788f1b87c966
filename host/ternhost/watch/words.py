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


def lead(snapshot: Snapshot) -> str:
    """Return a sentence about the run under its name: its algorithm, data and fleet."""
    if snapshot.run is None:
        return (
            f"{snapshot.store}: begin a run with 'tern train' or 'tern serve', and it is shown here"
        )
    data = None
    if snapshot.run.options.get("dimension") is None:
        data = snapshot.run.options.get("dataset")
    return f"{snapshot.run.algorithm} on {data or 'records of the devices'}, fleet {snapshot.run.fleet}"


def reckoned(run: RunView) -> str:
    """Return for which rounds `epsilon_run` was computed, such as "in 40 rounds" or "in the run".

    They are those planned at its start; there may be more by now.
    """
    rounds = run.references.get("rounds")
    if rounds is None:
        return "a round"
    return "in the run" if rounds == run.planned else f"in {rounds:,} rounds"


def epsilon_of(run: RunView) -> str:
    """Return what the epsilons of a run protect.

    An example is "epsilon of one record of a device, that it was there, at delta 1e-06".
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


def tone(snapshot: Snapshot) -> str:
    """Return the CSS class of the badge with the status.

    It is "good" for a run under way, "warn" for one that has stopped before its end, else "".
    """
    if snapshot.run is None or snapshot.run.status == FINISHED:
        return ""
    under_way = snapshot.run.status in (PREPARING, RUNNING)
    return "good" if under_way and not _if_silent(snapshot) else "warn"


def _if_silent(now: Snapshot) -> str:
    """What follows a state that may have changed since the run last wrote it."""
    return "" if now.silent(time.time()) is None else " when last written"


# The figures at the top


def tiles(snapshot: Snapshot) -> list[Tile]:
    """Return the figures at the top of the page, each with a name, a value and an explanation."""
    run = snapshot.run
    if run is None:
        return [("devices with a key", f"{snapshot.devices:,}", "")]
    planned = f"of {run.planned:,}" if run.planned else "no end planned"
    arriving = (
        f"{snapshot.coming:,} of them in the round under way"
        if snapshot.open
        else "each counted once"
    )
    return [
        ("rounds ended", f"{run.rounds:,}", planned),
        ("reports accepted", f"{snapshot.accepted:,}", arriving),
        *_figure_tile(snapshot),
        *_epsilon_tile(snapshot, run),
        *_devices_tile(snapshot),
        *_extension_tiles(snapshot),
        (REFUSALS, f"{run.refusals:,}", "by devices, see Round"),
    ]


def _figure_tile(snapshot: Snapshot) -> list[Tile]:
    """Return the tile of the run's main figure, after the last round; none if it has no figure."""
    measures = curves.measures(snapshot.run, snapshot.history)
    if not measures:
        return []
    measure = measures[0]
    last = snapshot.history[-1] if snapshot.history else {}
    value = f"{last[measure]:.4f}" if measure in last else "–"
    optimum, _ = curves.compared_with(snapshot.run, measure)
    comparison = "" if optimum is None else f"without privacy {optimum:.4f}"
    return [(curves.word(measure), value, comparison)]


def _epsilon_tile(snapshot: Snapshot, run: RunView) -> list[Tile]:
    """Return the tile of the epsilon that devices have spent; none where it is not known."""
    spent = curves.spent(snapshot)
    if spent is None:
        return []
    costs = {device_class["epsilon_per_report"] for device_class in run.classes}
    cost_of_report = " to ".join(rounded(cost) for cost in sorted({min(costs), max(costs)}))
    explanation = f"{epsilon_of(run)}; by accepted reports, {cost_of_report} each"
    return [("epsilon spent, mean of devices", rounded(spent), explanation)]


def _devices_tile(snapshot: Snapshot) -> list[Tile]:
    """Return the tile of the boards that are online, or else of the devices; none without devices."""
    if snapshot.boards:
        online = states(snapshot.boards)["online"]
        name = f"boards online{_if_silent(snapshot)}"
        return [(name, f"{online:,}", f"of {len(snapshot.boards):,} ever seen")]
    devices = curves.devices_of(snapshot.run, snapshot.devices)
    if devices:
        origin = "registered" if snapshot.devices else "simulated or emulated"
        return [("devices", f"{devices:,}", origin)]
    return []


def _extension_tiles(now: Snapshot) -> list[Tile]:
    tiles = [view.tile(_if_silent(now)) for view in now.views.values()]
    return [tile for tile in tiles if tile is not None]


# What is wrong


def refusing(snapshot: Snapshot) -> str | None:
    """Return why the last ended round had no report, with a remedy; None if it had one."""
    last_entry = snapshot.history[-1] if snapshot.history else {}
    if last_entry.get("reports") or not last_entry.get("reasons"):
        return None
    reason, count = next(iter(last_entry["reasons"].items()))
    asked = last_entry["asked"]
    who_refuses = (
        "every device refuses" if count >= asked else f"{count:,} of {asked:,} devices refuse"
    )
    if reason != wire.error_name(wire.ERR_BUDGET):
        return f"{who_refuses}: {reason}; the section Round counts the reasons"
    return f"{who_refuses}: budget spent. {_SPENT}"


def old(snapshot: Snapshot) -> str | None:
    """Return the note above everything, or None if all is well.

    It says that a snapshot is out of date, that a run is silent or has no process, or that a fleet
    refuses.
    """
    if snapshot.note is not None:
        if not snapshot.read:
            return f"{snapshot.note}: nothing has been read yet"
        age = max(0.0, time.time() - snapshot.read)
        return f"{snapshot.note}: the figures are {duration(age)} old"
    if snapshot.run is not None and snapshot.run.status == STOPPED:
        return "the process of this run is gone: 'tern runs' shows the command that goes on with it"
    silence = snapshot.silent(time.time())
    return refusing(snapshot) if silence is None else _SILENT.format(duration(silence))


# Time


def time_of(open_round: OpenRound, now: float) -> str:
    """Return how long a round has been open, and the time left to its deadline, as a text.

    now: seconds since 1970. The text is "" if the start of the round is not known.
    """
    if open_round.began is None:
        return ""
    elapsed = max(0.0, now - open_round.began)
    text = f"for {duration(elapsed)}"
    if open_round.deadline is None:
        return text
    remaining = open_round.deadline - elapsed
    return f"{text}, {duration(remaining)} left" if remaining > 0 else f"{text}, past its deadline"


def ago(when: float | None) -> str:
    """The time since a moment (seconds since 1970)."""
    return "–" if when is None else f"{duration(max(0.0, time.time() - when))} ago"


def duration(seconds: float) -> str:
    """Return a duration for people, with a unit that suits it: "20 ms", "3.5 s", "2 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else "1 s"
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def moment(when: float | None) -> str:
    """A moment in local time."""
    return "–" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
