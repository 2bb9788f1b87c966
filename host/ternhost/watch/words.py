"""What the page says in words and tables, as text and as HTML in which everything from a store is escaped."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ternhost.store.snapshot import OpenRound, RunView, Snapshot
from ternhost.watch import curves
from ternhost.watch.fleet_view import states

_AMOUNT = re.compile(r"[\d.,]+( (to [\d.,]+|%|ms|s|min|h|d))?")

Tile = tuple[str, str, str]  # name, value, and what is to be known of it


def title(now: Snapshot) -> str:
    """Which run is shown."""
    return now.run.name if now.run else "no run yet"


def lead(now: Snapshot) -> str:
    """What the run learns, where."""
    if now.run is None:
        return f"{now.store}: begin a run with 'tern train' or 'tern serve', and it is shown here"
    what = now.run.options.get("dataset") if now.run.options.get("dimension") is None else None
    return f"{now.run.algorithm} on {what or 'records of the devices'}, fleet {now.run.fleet}"


def reckoned(run: RunView) -> str:
    """Of how many rounds the `epsilon_run` of its classes is: of those it began with, and it may have more by now."""
    rounds = run.references.get("rounds")
    if rounds is None:
        return "a round"
    return "in the run" if rounds == run.planned else f"in {rounds:,} rounds"


def quiet(seconds: float) -> str:
    """That a run which should have written has not."""
    return (
        f"nothing written for {duration(seconds)}: the run may have been killed; what is shown is of before"
    )


def status(now: Snapshot) -> str:
    """Where it is, for a badge."""
    if now.run is None:
        return "waiting"
    return now.run.status + _when(now)


def _when(now: Snapshot) -> str:
    return "" if now.silent(time.time()) is None else " when last written"


def tiles(now: Snapshot) -> list[Tile]:
    """The figures at the top."""
    run = now.run
    if run is None:
        return [("devices with a key", f"{now.devices:,}", "")]
    found = [
        ("rounds ended", f"{run.rounds:,}", f"of {run.planned:,}" if run.planned else "no end planned"),
        (
            "reports accepted",
            f"{now.accepted:,}",
            f"{now.coming:,} of them in the round under way" if now.open else "each counted once",
        ),
    ]
    last = now.history[-1] if now.history else {}
    for name in curves.measures(run, now.history)[:1]:
        best = run.references.get("optimum", {}).get(name)
        known = "" if best is None else f"without privacy {best:.4f}"
        found.append((curves.word(name), f"{last[name]:.4f}" if name in last else "–", known))
    devices = curves.devices_of(run, now.devices)
    if (spent := curves.spent(now)) is not None:
        costs = [own["epsilon_per_report"] for own in run.classes]
        each = " to ".join(f"{cost:.4g}" for cost in sorted({min(costs), max(costs)}))
        known = f"by accepted reports, {each} each"
        found.append(("epsilon spent, mean of a device", f"{spent:.4g}", known))
    if now.boards:
        online, known = states(now.boards)["online"], f"of {len(now.boards):,} ever seen"
        found.append((f"boards online{_when(now)}", f"{online:,}", known))
    elif devices:
        found.append(("devices", f"{devices:,}", "registered" if now.devices else "simulated or emulated"))
    if now.gateways:
        online = states(now.gateways)["online"]
        found.append((f"gateways online{_when(now)}", f"{online:,}", f"of {len(now.gateways):,}"))
    found.append(("refusals", f"{run.refusals:,}", "by devices, see Round"))
    return found


def old(now: Snapshot) -> str | None:
    """That what is shown is old, and why; or that the run should have written by now."""
    if now.note is None:
        silent = now.silent(time.time())
        return None if silent is None else quiet(silent)
    if not now.read:
        return f"{now.note}: nothing has been read yet"
    return f"{now.note}: what is shown is {_since(now.read)} old"


def time_of(opened: OpenRound, now: float) -> str:
    """How long a round has been under way at a time (seconds since 1970), and what is left of its deadline."""
    if opened.began is None:
        return ""
    gone = max(0.0, now - opened.began)
    if opened.deadline is None:
        return f"for {duration(gone)}"
    left = opened.deadline - gone
    return f"for {duration(gone)}, " + (f"{duration(left)} left" if left > 0 else "past its deadline")


def ago(when: float | None) -> str:
    """How long ago a moment (seconds since 1970) was."""
    return "–" if when is None else f"{_since(when)} ago"


def _since(when: float) -> str:
    return duration(max(0.0, time.time() - when))


def duration(seconds: float) -> str:
    """A duration with a unit that suits it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else "1 s"
    for unit, size in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def moment(when: float | None) -> str:
    """A moment, by the clock of this machine."""
    return "–" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table; numbers and amounts are put to the right."""
    lines = [[_cell(value) for value in row] for row in rows]
    right = [
        any(number for _, number in column) and all(number or text in ("–", "") for text, number in column)
        for column in zip(*lines, strict=True)
    ]
    right = right or [False] * len(head)
    tags = [" class=number" if own else "" for own in right]
    header = "".join(f"<th scope=col{tag}>{text(name)}" for name, tag in zip(head, tags, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{tag}>{text(cell)}" for (cell, _), tag in zip(line, tags, strict=True))
        for line in lines
    )
    return (
        f"<div class=scroll tabindex=0><table><thead><tr>{header}</thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: Any) -> tuple[str, bool]:
    if value is None:
        return "–", False
    if isinstance(value, float):
        return f"{value:.4g}", True
    if isinstance(value, int):
        return f"{value:,}", True
    return str(value), _AMOUNT.fullmatch(str(value)) is not None


def tile_html(shown: Iterable[Tile]) -> str:
    """Tiles as HTML."""
    return "".join(
        f"<div class=tile><div class=name>{text(name)}</div><div class=value>{text(value)}</div>"
        f"<div class=more>{text(more)}</div></div>"
        for name, value, more in shown
    )


def first(now: Snapshot) -> str:
    """What is seen before the page's program has been loaded: the same head and tiles, without it."""
    return (
        f"<div id=first class=tern><div class=tern-head><h1>{text(title(now))}</h1>"
        f"<span class=badge>{text(status(now))}</span><span class=soft>{text(lead(now))}</span></div>"
        f"<div class=tiles>{tile_html(tiles(now))}</div></div>"
    )


def empty(message: str) -> str:
    """Why there is nothing to see, and what to do; what stands between backquotes is a command."""
    parts = text(message).split("`")
    return (
        "<p class=empty>" + "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(parts)) + "</p>"
    )


def text(value: Any) -> str:
    """As HTML."""
    return html.escape(str(value), quote=True)
