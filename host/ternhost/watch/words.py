"""Texts about a snapshot of a store, for the page and the terminal."""

import time

from tern import wire
from ternhost.datasets import on_devices
from ternhost.privacy.guarantee import rounded
from ternhost.privacy.units import parse_unit, protected
from ternhost.store.runs import FINISHED, PREPARING, RUNNING, STOPPED
from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.text import counted
from ternhost.watch import curves
from ternhost.watch.fleet_view import (
    allowance,
    budget,
    delta_of,
    heard_within_a_day,
    poorest,
    states,
)

Tile = tuple[str, str, str]  # name, value, explanation
REFUSALS = "refusals"
EPSILON_SPENT = "epsilon spent"
EPSILON_LEFT = "epsilon left"
ENDLESS = "the run has no planned end: a device that reports in more rounds loses more"
_SILENT = "nothing written for {}: the run may have been killed; the figures are from before"
_SPENT = (
    "They have told as much as they may for life, and keep this promise by refusing. Devices with "
    "budget left may go on: see Fleet, or 'tern keys list'."
)


# The run


def title(now: Snapshot) -> str:
    """Return the name of the run, as the title of the page."""
    return now.run.name if now.run else "no run yet"


def lead(snapshot: Snapshot) -> str:
    """Return a sentence about the run under its name: its algorithm, data and fleet."""
    if snapshot.run is None:
        return (
            f"{snapshot.store}: begin a run with 'tern train' or 'tern serve', and it is shown here"
        )
    run = snapshot.run
    data = on_devices.in_words(run.options.get("data"))
    return f"{run.algorithm} on {data}, fleet {run.fleet}"


def rounds_of_epsilon_run(run: RunView) -> str:
    """Return for which rounds the epsilon of a run was computed, such as "in 40 rounds".

    They are the rounds that were planned at its start. If it still plans as many, this is "in the
    run"; for a run without an end it is "a round".
    """
    rounds = run.references.get("rounds")
    if rounds is None:
        return "a round"
    if rounds == run.planned:
        return "in the run"
    return f"in {counted(rounds, 'round')}"


def epsilon_of(run: RunView) -> str:
    """Return in words what an epsilon of a run is about: what it protects, and at which delta.

    An example is "epsilon of one record of a device, that it was there, at delta 1e-06".
    """
    unit = parse_unit(run.options.get("unit") or "device")
    text = f"epsilon of {protected(unit)}"
    if unit:
        text += ", that it was there"
    if curves.in_rho(run):
        text += f", at delta {float(run.options['delta']):g}, as ledgers count it"
    return text


def scope_of(run: RunView) -> str:
    """Return what the epsilons of a run are about, as short as a tile needs it.

    An example is "one record of a device, that it was there, at delta 1e-06".
    """
    unit = parse_unit(run.options.get("unit") or "device")
    delta = 0.0
    if curves.in_rho(run):
        delta = float(run.options["delta"])
    return scope(unit, delta)


def scope(unit: int, delta: float) -> str:
    """Return what an epsilon is about: what it protects, and at which delta it holds.

    unit: how many records are protected together; 0 stands for all records of a device.
    """
    text = protected(unit)
    if unit:
        text += ", that it was there"
    return f"{text}, at delta\u00a0{delta:g}"


def of_rounds(count: int, rounds: int | None) -> str:
    """Return which round of a run it is, such as "round 9 of 40".

    rounds: how many are planned, or None for a run without an end, which gives "round 9".
    """
    text = f"round {count:,}"
    if rounds:
        text += f" of {rounds:,}"
    return text


def status(now: Snapshot) -> str:
    """Return the status of the run, as the text of a badge."""
    if now.run is None:
        return "waiting"
    return now.run.status + _if_silent(now)


def tone(snapshot: Snapshot) -> str:
    """Return the CSS class of the badge with the status.

    It is "good" for a run under way, "warn" for one that has stopped before its end, and "" for one
    that has finished or not begun.
    """
    if snapshot.run is None or snapshot.run.status == FINISHED:
        return ""
    is_under_way = snapshot.run.status in (PREPARING, RUNNING)
    is_silent = snapshot.silent(time.time()) is not None
    return "good" if is_under_way and not is_silent else "warn"


def _if_silent(now: Snapshot) -> str:
    """Return " when last written" if the run is overdue, to be put after a status; otherwise "".

    The status of an overdue run may be out of date, since its process may have been killed.
    """
    is_silent = now.silent(time.time()) is not None
    return " when last written" if is_silent else ""


# The figures at the top


def tiles(snapshot: Snapshot) -> list[Tile]:
    """Return the figures at the top of the page, each with a name, a value and an explanation."""
    run = snapshot.run
    if run is None:
        registered = ("devices", f"{snapshot.devices:,}", "have a key in this store")
        boards = _boards_tile(snapshot) if snapshot.boards else []
        return [registered, *boards, *_left_tile(snapshot), *_extension_tiles(snapshot)]
    planned_rounds = f"of {run.planned:,} planned" if run.planned else "no end planned"
    about_reports = "accepted, each counted once"
    if snapshot.open:
        about_reports = f"accepted, {snapshot.coming:,} of them in the round under way"
    return [
        ("rounds ended", f"{run.rounds:,}", planned_rounds),
        ("reports", f"{snapshot.accepted:,}", about_reports),
        *_figure_tile(snapshot),
        *_epsilon_tile(snapshot, run),
        *_left_tile(snapshot),
        *_devices_tile(snapshot),
        *_extension_tiles(snapshot),
        (REFUSALS, f"{run.refusals:,}", "reasons: see Round"),
    ]


def _figure_tile(snapshot: Snapshot) -> list[Tile]:
    """Return the tile with the main figure of the model after the last round, such as its accuracy.

    The list is empty if the run has no figure.
    """
    measures = curves.measures(snapshot.run, snapshot.history)
    if not measures:
        return []
    measure = measures[0]
    last_entry = snapshot.history[-1] if snapshot.history else {}
    value = "–"
    if measure in last_entry:
        value = f"{last_entry[measure]:.4f}"
    comparison = "of the model so far"
    optimum, _baseline = curves.compared_with(snapshot.run, measure)
    if optimum is not None:
        comparison = f"{optimum:.4f} without privacy"
    return [(curves.word(measure), value, comparison)]


def _epsilon_tile(snapshot: Snapshot, run: RunView) -> list[Tile]:
    """Return the tile with the mean epsilon that devices have spent; none if it is not known."""
    spent = curves.spent(snapshot)
    if spent is None:
        return []
    costs = [device_class["epsilon_per_report"] for device_class in run.classes]
    least, most = min(costs), max(costs)
    cost_of_report = rounded(least)
    if least != most:
        cost_of_report += f" to {rounded(most)}"
    explanation = f"mean of devices, {cost_of_report} a report; protects {scope_of(run)}"
    return [(EPSILON_SPENT, rounded(spent), explanation)]


def _left_tile(snapshot: Snapshot) -> list[Tile]:
    """Return the tile with the least epsilon that a board has left; none if no board tells it."""
    heard = heard_within_a_day(snapshot.boards, snapshot.read)
    board = poorest(heard)
    if board is None:
        return []
    left = budget(board)
    assert left is not None
    whose = "on the board with the least"
    if len(snapshot.boards) == 1:
        whose = "on the board"
    total = allowance(board)
    if total is not None:
        whose += f", of an allowance of {total:.4g}"
    explanation = f"{whose}; protects {scope(board.unit, delta_of(board))}"
    return [(EPSILON_LEFT, f"{left:.4g}", explanation)]


def _devices_tile(snapshot: Snapshot) -> list[Tile]:
    """Return the tile with the number of boards online, or of devices if no board was ever seen.

    The list is empty if there are no devices either.
    """
    if snapshot.boards:
        return _boards_tile(snapshot)
    devices = curves.devices_of(snapshot.run, snapshot.devices)
    if devices:
        origin = "registered" if snapshot.devices else "simulated or emulated"
        return [("devices", f"{devices:,}", origin)]
    return []


def _boards_tile(snapshot: Snapshot) -> list[Tile]:
    """Return the tile with the number of boards online."""
    online = states(snapshot.boards)["online"]
    name = f"boards online{_if_silent(snapshot)}"
    return [(name, f"{online:,}", f"of {len(snapshot.boards):,} ever seen")]


def _extension_tiles(now: Snapshot) -> list[Tile]:
    """Return the tiles of those extensions that have one."""
    tiles = []
    for view in now.views.values():
        tile = view.tile(_if_silent(now))
        if tile is not None:
            tiles.append(tile)
    return tiles


# What is wrong


def refusing(snapshot: Snapshot) -> str | None:
    """Return why the last ended round had no report, with a remedy; None if it had one.

    The reason is the first one that the history names for the round. A round in which nobody
    refused gives None, too.
    """
    last_entry = snapshot.history[-1] if snapshot.history else {}
    refusals_by_reason = last_entry.get("reasons")
    if last_entry.get("reports") or not refusals_by_reason:
        return None
    reason, count = next(iter(refusals_by_reason.items()))
    asked = last_entry["asked"]
    who_refuses = f"{count:,} of {counted(asked, 'device')} refuse"
    if count >= asked:
        who_refuses = "every device refuses"
    if reason == wire.error_name(wire.ERR_BUDGET):
        return f"{who_refuses}: budget spent. {_SPENT}"
    return f"{who_refuses}: {reason}; the section Round counts the reasons"


def problem(snapshot: Snapshot) -> str | None:
    """Return what is wrong, as the note at the top of the page, or None if all is well.

    The snapshot may be out of date, the run may be overdue or without a process, or the devices may
    refuse.
    """
    now = time.time()
    if snapshot.note is not None:
        was_never_read = snapshot.read == 0
        if was_never_read:
            return f"{snapshot.note}: nothing has been read yet"
        age = max(0.0, now - snapshot.read)
        return f"{snapshot.note}: the figures are {duration(age)} old"
    if snapshot.run is not None and snapshot.run.status == STOPPED:
        return "the process of this run is gone: 'tern runs' shows the command that goes on with it"
    silence = snapshot.silent(now)
    if silence is not None:
        return _SILENT.format(duration(silence))
    return refusing(snapshot)


# Time


def time_of(open_round: OpenRound, now: float) -> str:
    """Return how long a round has been open and is still to go, such as "for 20 s, 40 s left".

    now: seconds since 1970. The text is "" if the start of the round is not known.
    """
    if open_round.began is None:
        return ""
    elapsed = max(0.0, now - open_round.began)
    text = f"for {duration(elapsed)}"
    if open_round.deadline is None:
        return text
    remaining = open_round.deadline - elapsed
    if remaining <= 0:
        return f"{text}, past its deadline"
    return f"{text}, {duration(remaining)} left"


def ago(when: float | None) -> str:
    """Return how long ago a moment was, such as "20 s ago"; "–" if it is not known.

    when: seconds since 1970. A moment in the future counts as now.
    """
    if when is None:
        return "–"
    elapsed = max(0.0, time.time() - when)
    return f"{duration(elapsed)} ago"


def duration(seconds: float) -> str:
    """Return a duration for people, with a unit that suits it: "20 ms", "3.5 s", "2 h"."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 1:
        return "1 s"  # it would be rounded to "1000 ms"
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def moment(when: float | None) -> str:
    """Return a moment (seconds since 1970) as local date and time; "–" if it is not known."""
    if when is None:
        return "–"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
