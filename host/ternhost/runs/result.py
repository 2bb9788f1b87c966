"""What every result of a run says, whatever the run has learned; and what a run costs the devices' privacy."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import frames, wire
from ternhost.aggregate.questions import decode_body
from ternhost.aggregate.store import Store
from ternhost.algorithms.base import ALGORITHMS, Algorithm
from ternhost.errors import OK, REFUSED, SHORT, StorageError, UsageError
from ternhost.fleet.provision import epsilon_spent
from ternhost.mechanisms.accounting import Account
from ternhost.mechanisms.base import MICRO
from ternhost.runs.directory import RESULT_NAME, Place


def whole(
    algorithm: Algorithm,
    place: Place,
    options: Mapping[str, Any],
    state: Mapping[str, Any],
    accounts: Sequence[Account],
    history: list[dict[str, Any]],
    boards: Sequence[Path],
) -> dict[str, Any]:
    """The result of a run, for JSON."""
    return {
        "run": place.name,
        "algorithm": algorithm.name,
        **algorithm.result(history),
        "reports": state["reports"],
        "asked": state["asked"],
        "refusals": state["refusals"],
        "missing": state["missing"],
        "rounds": state["rounds"],
        "seconds": round(state["seconds"], 3),
        "reports_per_second": round(state["reports"] / max(state["seconds"], 1e-9), 1),
        "epsilon_spent": epsilon_spent(boards) if boards else [],
        "epsilon_before": state["spent_before"] / MICRO,
        "accounting": [account.summary() for account in accounts],
        "options": dict(options),
        "directory": str(place.directory),
        "store": str(place.store),
        "history": history,
    }


def load(run: str | Path, parent: Path) -> dict[str, Any]:
    """The result of a run that has finished: its name in `parent`, or its own directory, or its result.json.

    Raises UsageError where there is none, StorageError where it cannot be read.
    """
    for place in (Path(run), parent / run):
        path = place if place.is_file() else place / RESULT_NAME
        if path.is_file():
            try:
                found: dict[str, Any] = json.loads(path.read_text())
            except OSError as error:
                raise StorageError(f"{path} cannot be read: {error.strerror}") from error
            except ValueError as error:
                raise UsageError(f"{path} is no result of a run: {error}") from error
            return {**found, "directory": str(path.parent)}
    raise UsageError(f"there is no result of a run {str(run)!r}", hint="'tern runs' lists the runs")


def draw(result: Mapping[str, Any]) -> dict[str, Any]:
    """Write the report of a result, and its pictures, into the run's directory; where they are. Raises StorageError."""
    from ternhost.report import page  # matplotlib takes a second

    directory = Path(result["directory"])
    what = ALGORITHMS.named(result["algorithm"]).page(result)
    try:
        path = page.write(what, directory)
    except StorageError as error:
        hint = f"make room, then draw it: tern runs --draw {directory}"
        raise StorageError(error.message, hint=hint) from error
    return {"report": str(path), "pictures": [str(directory / f"{name}.png") for name in what.pictures]}


def exit_code(result: Mapping[str, Any]) -> int:
    """0, or what tells that reports are missing that were asked for: the devices' refusals, or their silence."""
    if not result["missing"]:
        return OK
    return REFUSED if 2 * result["refusals"] >= result["missing"] else SHORT


def missing_words(result: Mapping[str, Any]) -> str | None:
    """How many reports are missing and why, for people; None where none is."""
    if not result["missing"]:
        return None
    refused = min(result["refusals"], result["missing"])
    silent = result["missing"] - refused
    why = [f"{refused:,} were refused"] * bool(refused) + [f"{silent:,} did not come"] * bool(silent)
    return (
        f"{result['missing']:,} of {result['asked']:,} reports that were asked for are missing: "
        + ", ".join(why)
    )


def spent_before(store: Store, devices: Sequence[int] | npt.NDArray[np.int64], run: str) -> int:
    """The most that any of these devices has spent in the rounds of this store that `run` did not ask, micro-epsilon.

    By the reports that the host has accepted: a device may have spent more on reports that were lost.
    """
    spent: dict[int, int] = {}
    for asked in store.rounds():
        if asked.run == run:
            continue
        cost = [_cost(decode_body(cohort.body)) for cohort in asked.cohorts]
        of = {
            device: own for cohort, own in zip(asked.cohorts, cost, strict=True) for device in cohort.devices
        }
        for device in store.reporters(asked.number):
            spent[device] = spent.get(device, 0) + of.get(device, 0)
    if not spent:
        return 0
    wanted = set(np.asarray(devices).tolist())
    return max((micro for device, micro in spent.items() if device in wanted), default=0)


def most_asked(store: Store, run: str) -> int:
    """How many rounds of a run have asked one device: the most of any. 0 where its rounds are not in the store."""
    asked: Counter[int] = Counter()
    for of_run in store.rounds():
        if of_run.run == run:
            for cohort in of_run.cohorts:
                asked.update(cohort.devices)
    return max(asked.values(), default=0)


def _cost(asked: frames.Round) -> int:
    epsilon: int = cards.decode(asked.card).epsilon
    return epsilon if asked.model == wire.SOFTMAX else epsilon * int(asked.k)


def cost_words(account: Account, before: int, left: int | None, endless: bool = False) -> str:
    """What a run costs a device, before it starts: in the run, and for its life.

    before, left: the most that a device has spent, and the least that a board says it may still spend, micro-epsilon.
    endless: the account is of a round.
    """
    words = f"every round {account.words()}" if endless else account.words()
    if before:
        total = (before + account.user_level) / MICRO
        words += f"; {before / MICRO:g} was spent before" + ("" if endless else f", {total:g} for life")
        if account.budget is not None:
            words += f", of a budget of {account.budget / MICRO:g}"
    if left is not None:
        words += f"; the boards say that {left / MICRO:g} is left"
        words += ": they will refuse the rest" if left < account.user_level else ""
    return words
