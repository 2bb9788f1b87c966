"""The result of a run: the common part, its file, its report, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternhost.errors import OK, REFUSED, SHORT, InterruptedByUser, StorageError, UsageError
from ternhost.extensions import EXTENSIONS
from ternhost.files import read_object
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import protected
from ternhost.provision.boards import epsilon_spent
from ternhost.run import directory as run_directory
from ternhost.run import guarantees

if TYPE_CHECKING:
    from ternhost.run.run import Run


def result_of(run: Run, boards: Sequence[Path]) -> dict[str, Any]:
    """Return the result of a run, for JSON.

    boards: the directories of the emulated boards that tern made for it; empty for other fleets.
    """
    algorithm, files, state = run.algorithm, run.files, run.state
    history = run.store.history(files.name)
    result: dict[str, Any] = {
        "run": files.name,
        "algorithm": algorithm.name,
        "reason": run.options.reason or None,  # for the algorithm, where nobody named it
        **algorithm.result(history),
    }
    if run.accounts:
        result["epsilon_paid"] = max(account.epsilon for account in run.accounts)
    result |= {
        "reports": state.reports,
        "asked": state.asked,
        "refusals": state.refusals,
        "missing": state.missing,
        "rounds": state.rounds,
        "seconds": round(state.seconds, 3),
        "reports_per_second": round(state.reports / max(state.seconds, 1e-9), 1),
        "epsilon_spent": epsilon_spent(boards, algorithm.delta) if boards else [],
        "protects": protected(algorithm.unit) if run.accounts else None,
        "epsilon_before": state.spent_before / MICRO,
        "guarantees": state.guarantees or [],
    }
    for extension in EXTENSIONS.available():
        result |= extension.result(run)
    result |= {
        "accounting": [account.summary() for account in run.accounts],
        "options": replace(run.options, learning=algorithm.options).flat(),
        "directory": str(files.directory),
        "store": str(files.store),
        "history": history,
    }
    return result


def privacy_words(result: Mapping[str, Any]) -> list[str]:
    """Return the sentences on the privacy of a run: its guarantees, and those of extensions."""
    lines = guarantees.words_of(guarantees.classes_of(result))
    for extension in EXTENSIONS.available():
        lines += extension.sentences(result)
    return lines


def load(run: str | Path, parent: Path) -> dict[str, Any]:
    """Load the result of a finished run.

    run: its name in `parent` (a directory or a store), its own directory, or its result.json.
    Raises UsageError if there is none, StorageError if it cannot be read.
    """
    for place in _places(str(run), parent):
        path = place if place.suffix == ".json" else place / run_directory.RESULT_NAME
        if path.is_file():
            return {**_read(path), "directory": str(path.parent)}
    raise UsageError(f"there is no result of a run {str(run)!r}", hint="'tern runs' lists the runs")


def _read(path: Path) -> dict[str, Any]:
    """Read a result from a JSON file.

    Raises UsageError if the file holds none, or one that an earlier version of tern wrote.
    """
    result = read_object(path, "name the run: 'tern runs' lists the runs")
    if "algorithm" not in result:
        raise UsageError(f"{path} is not the result of a run: it names no algorithm")
    if result.get("measure") and "measures" not in result:
        raise UsageError(f"{path} was made by an earlier version of tern", hint="run it again")
    return result


def _places(run: str, parent: Path) -> Iterator[Path]:
    """Yield where the result of a run may be, the quickest to look at first."""
    yield Path(run)
    yield parent / run
    for entry in run_directory.list_runs(parent):  # which opens every store there
        if entry["run"] == run:
            yield Path(entry["directory"])


def draw(result: Mapping[str, Any]) -> dict[str, Any]:
    """Write the report of a result and its pictures into the run's directory.

    Return the paths of the report and of its pictures, for JSON. Raises StorageError.
    """
    from ternhost.run.report import page, page_of  # matplotlib takes a second

    directory = Path(result["directory"])
    report = page_of(result)
    try:
        path = page.write(report, directory)
    except StorageError as error:
        hint = f"make room, then draw it: tern runs --draw {directory}"
        raise StorageError(error.message, hint=hint) from error
    except KeyboardInterrupt:
        result_path = directory / run_directory.RESULT_NAME
        text = f"interrupted while drawing its report; the run has finished: see {result_path}"
        hint = f"draw it: tern runs --draw {directory}"
        raise InterruptedByUser(text, hint=hint) from None
    pictures = [str(directory / f"{name}.png") for name in report.pictures]
    return {"report": str(path), "pictures": pictures}


def exit_code(result: Mapping[str, Any]) -> int:
    """Return the exit code of a run: OK if no report is missing.

    REFUSED if devices refused at least half of the missing reports, otherwise SHORT.
    """
    if not result["missing"]:
        return OK
    if 2 * result["refusals"] >= result["missing"]:
        return REFUSED
    return SHORT


def missing_words(result: Mapping[str, Any]) -> str | None:
    """Say how many reports are missing, and why; None if no report is missing."""
    if not result["missing"]:
        return None
    refused = min(result["refusals"], result["missing"])
    silent = result["missing"] - refused
    reasons = []
    if refused:
        reasons.append(f"{refused:,} were refused")
    if silent:
        reasons.append(f"{silent:,} did not come")
    of_all = f"{result['missing']:,} of {result['asked']:,} reports"
    return f"{of_all} that were asked for are missing: {', '.join(reasons)}"
