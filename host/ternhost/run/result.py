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
from ternhost.store.restored import unheard_boards
from ternhost.text import counted

if TYPE_CHECKING:
    from ternhost.run.run import Run


def result_of(run: Run, boards: Sequence[Path]) -> dict[str, Any]:
    """Return the result of a run, as a dict for JSON.

    boards: the directories of the emulated boards that tern made for the run; their ledgers tell
    what devices have spent. Empty for other fleets.
    """
    algorithm, files = run.algorithm, run.files
    history = run.store.history(files.name)
    result: dict[str, Any] = {
        "run": files.name,
        "algorithm": algorithm.name,
        "reason": run.options.reason or None,  # why this algorithm; None: the user named it
        **algorithm.result(history),
    }
    if run.accounts:  # otherwise reports are not protected, and cost nothing
        result["epsilon_paid"] = max(account.epsilon for account in run.accounts)
    result |= _progress(run)
    result |= _privacy(run, boards)
    for extension in EXTENSIONS.available():
        result |= extension.result(run)
    result |= {
        "accounting": [account.summary() for account in run.accounts],
        "data_findings": [finding.summary() for finding in run.data_findings],
        "options": replace(run.options, learning=algorithm.options).flat(),
        "directory": str(files.directory),
        "store": str(files.store),
        "history": history,
    }
    return result


def _progress(run: Run) -> dict[str, Any]:
    """Return the part of a result that says how many reports there were, and how fast.

    `asked` is how many reports the run asked for; `missing` is how many its rounds needed, but did
    not get.
    """
    state = run.state
    seconds = max(state.seconds, 1e-9)  # against division by 0
    return {
        "reports": state.reports,
        "asked": state.asked,
        "refusals": state.refusals,
        "missing": state.missing,
        "rounds": state.rounds,
        "seconds": round(state.seconds, 3),
        "reports_per_second": round(state.reports / seconds, 1),
    }


def _privacy(run: Run, boards: Sequence[Path]) -> dict[str, Any]:
    """Return the part of a result about privacy: what was spent, and what is guaranteed.

    boards: the directories of the emulated boards that tern made for the run; empty for others.
    """
    spent: list[list[float]] = []
    if boards:
        spent = epsilon_spent(boards, run.algorithm.delta)
    protects = None
    if run.accounts:
        protects = protected(run.algorithm.unit)
    return {
        "epsilon_spent": spent,
        "protects": protects,
        "epsilon_before": run.state.spent_before / MICRO,
        "boards_unheard_since_restore": len(unheard_boards(run.store)),
        "guarantees": run.state.guarantees or [],
    }


def privacy_words(result: Mapping[str, Any]) -> list[str]:
    """Return sentences on the privacy of a run: its guarantees, and what extensions add."""
    lines = guarantees.words_of(guarantees.classes_of(result))
    unheard = result.get("boards_unheard_since_restore", 0)
    if unheard:
        lines.append(unheard_words(unheard))
    for extension in EXTENSIONS.available():
        lines += extension.sentences(result)
    return lines


def unheard_words(boards: int) -> str:
    """Say that of so many boards, at least one, nobody knows what they have spent."""
    return (
        f"the store was restored from a copy, and {counted(boards, 'board')} did not connect since: "
        "what their devices have spent after the copy was made is unknown, and not counted here"
    )


def load(run: str | Path, parent: Path) -> dict[str, Any]:
    """Load the result of a finished run from its result.json.

    run: the run's name in `parent` (a directory or a store), its directory, or its result.json.
    Raises UsageError if there is none, StorageError if it cannot be read.
    """
    for place in _places(str(run), parent):
        path = place
        if path.suffix != ".json":
            path = place / run_directory.RESULT_NAME
        if path.is_file():
            # The directory may have been moved since.
            return {**_read(path), "directory": str(path.parent)}
    raise UsageError(f"there is no result of a run {str(run)!r}", hint="'tern runs' lists the runs")


def _read(path: Path) -> dict[str, Any]:
    """Read a result from a JSON file.

    Raises UsageError if the file holds something else, or was written by an earlier version of tern
    in another format.
    """
    result = read_object(path, "name the run: 'tern runs' lists the runs")
    if "algorithm" not in result:
        raise UsageError(f"{path} is not the result of a run: it names no algorithm")
    has_old_format = "dataset" in result.get("options", {})
    if has_old_format:
        raise UsageError(f"{path} was made by an earlier version of tern", hint="run it again")
    return result


def _places(run: str, parent: Path) -> Iterator[Path]:
    """Yield the paths at which the result of a run may be: a directory, or the file itself.

    run: the run's name in `parent` (a directory or a store), its directory, or its result.json.
    Paths that need no search come first.
    """
    yield Path(run)
    yield parent / run
    for entry in run_directory.list_runs(parent):  # slow: it opens every store there
        if entry["run"] == run:
            yield Path(entry["directory"])


def draw(result: Mapping[str, Any]) -> dict[str, Any]:
    """Write the report of a result and its pictures into the run's directory.

    Return the paths of the report and of its pictures, for JSON. Raises StorageError;
    InterruptedByUser after Ctrl-C.
    """
    from ternhost.run.report import page, page_of  # here, since importing matplotlib takes a second

    directory = Path(result["directory"])
    report = page_of(result)
    try:
        path = page.write(report, directory)
    except StorageError as error:
        hint = f"{error.hint}; then draw it: tern runs --draw {directory}"
        raise StorageError(error.message, hint=hint) from error
    except KeyboardInterrupt:
        result_path = directory / run_directory.RESULT_NAME
        text = f"interrupted while drawing its report; the run has finished: see {result_path}"
        hint = f"draw it: tern runs --draw {directory}"
        raise InterruptedByUser(text, hint=hint) from None
    pictures = [str(directory / f"{name}.png") for name in report.pictures]
    return {"report": str(path), "pictures": pictures}


def exit_code(result: Mapping[str, Any]) -> int:
    """Return the exit code of the command that made this result.

    OK if no report is missing, REFUSED if at least half of the missing reports were refused by
    their devices, otherwise SHORT.
    """
    if not result["missing"]:
        return OK
    refused_share = result["refusals"] / result["missing"]
    if refused_share >= 0.5:
        return REFUSED
    return SHORT


def missing_words(result: Mapping[str, Any]) -> str | None:
    """Say how many reports are missing, and why; return None if no report is missing."""
    missing = result["missing"]
    if not missing:
        return None
    refused = min(result["refusals"], missing)
    silent = missing - refused
    reasons = []
    if refused:
        reasons.append(f"{refused:,} were refused")
    if silent:
        reasons.append(f"{silent:,} did not come")
    of_all = f"{missing:,} of {result['asked']:,} reports"
    return f"{of_all} that were asked for are missing: {', '.join(reasons)}"
