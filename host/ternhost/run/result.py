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


def whole(run: Run, boards: Sequence[Path]) -> dict[str, Any]:
    """The result of a run, for JSON. boards: those that tern made for it."""
    algorithm, files, state = run.algorithm, run.files, run.state
    history = run.store.history(files.name)
    paid: dict[str, float] = {}
    if run.accounts:
        paid["epsilon_paid"] = max(account.epsilon for account in run.accounts)
    of_extensions: dict[str, Any] = {}
    for extension in EXTENSIONS.available():
        of_extensions |= extension.result(run)
    return {
        "run": files.name,
        "algorithm": algorithm.name,
        "reason": run.options.reason or None,  # for the algorithm, where nobody named it
        **algorithm.result(history),
        **paid,
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
        **of_extensions,
        "accounting": [account.summary() for account in run.accounts],
        "options": replace(run.options, learning=algorithm.options).flat(),
        "directory": str(files.directory),
        "store": str(files.store),
        "history": history,
    }


def privacy_words(result: Mapping[str, Any]) -> list[str]:
    """What a run has disclosed about a device, by class, and what extensions say, for people."""
    lines = guarantees.words_of(guarantees.classes_of(result))
    for extension in EXTENSIONS.available():
        lines += extension.sentences(result)
    return lines


def load(run: str | Path, parent: Path) -> dict[str, Any]:
    """The result of a finished run.

    run: its name in `parent` (a directory or a store), its own directory, or its result.json.
    Raises UsageError if there is none, StorageError if it cannot be read.
    """
    for place in _places(str(run), parent):
        path = place if place.suffix == ".json" else place / run_directory.RESULT_NAME
        if path.is_file():
            return {**_read(path), "directory": str(path.parent)}
    raise UsageError(f"there is no result of a run {str(run)!r}", hint="'tern runs' lists the runs")


def _read(path: Path) -> dict[str, Any]:
    """The result in a file. Raises UsageError if it is not one, or of an earlier version."""
    result = read_object(path, "name the run: 'tern runs' lists the runs")
    if "algorithm" not in result:
        raise UsageError(f"{path} is not the result of a run: it names no algorithm")
    if result.get("measure") and "measures" not in result:
        raise UsageError(f"{path} was made by an earlier version of tern", hint="run it again")
    return result


def _places(run: str, parent: Path) -> Iterator[Path]:
    yield Path(run)
    yield parent / run
    for line in run_directory.listed(parent):  # which opens every store there
        if line["run"] == run:
            yield Path(line["directory"])


def draw(result: Mapping[str, Any]) -> dict[str, Any]:
    """Write the report of a result, and its pictures, into the run's directory; where they are.

    Raises StorageError.
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
        raise InterruptedByUser(
            f"interrupted while drawing its report; the run has finished: see {directory / run_directory.RESULT_NAME}",
            hint=f"draw it: tern runs --draw {directory}",
        ) from None
    pictures = [str(directory / f"{name}.png") for name in report.pictures]
    return {"report": str(path), "pictures": pictures}


def exit_code(result: Mapping[str, Any]) -> int:
    """0, or the code for missing reports: REFUSED where devices refused most of them, else SHORT."""
    if not result["missing"]:
        return OK
    return REFUSED if 2 * result["refusals"] >= result["missing"] else SHORT


def missing_words(result: Mapping[str, Any]) -> str | None:
    """The number of missing reports and the reasons, for people; None where no report is missing."""
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
