"""Asks a fleet of boards a few questions, one round after the other: what commands need that do not train.

What a run needs to go on is in its store: its options, the answers to the questions that are done, the round under way
and its reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ternhost.mechanisms.accounting import Account
from ternhost.aggregate.aggregator import Aggregator, Counts, Question, RoundResult
from ternhost.drivers.boards import AllRefused, Collector, Progress
from ternhost.errors import InterruptedByUser, UsageError
from ternhost.fleet import FleetSpec
from ternhost.fleet.opening import open_boards
from ternhost.runs.directory import finished, moved, pack_boards, require_no_run, save_result, store_path
from ternhost.runs.session import Status, Watcher
from ternhost.aggregate.store import Store


@dataclass(frozen=True)
class Terms:
    """How a round of boards ends: by a quorum (share of the reports) or a deadline (s); the number of the first."""

    quorum: float = 1.0
    deadline: float | None = 120.0
    first_round: int | None = None


@dataclass(frozen=True)
class Answer:
    """What came of a question. `counts` is empty if they were not to be kept."""

    number: int
    asked: int
    reports: int
    refusals: int
    ended: str
    counts: list[list[int]]


class Run(Protocol):
    """What a command asks of a fleet, and what it makes of the answers."""

    options: Any  # a dataclass
    spec: FleetSpec

    def provision(self, store: Store) -> None:
        """Make the emulated boards."""

    def simulate(self) -> Any:
        """What a simulated fleet answers."""

    def ask(self, asking: Asking) -> Any:
        """What boards answer, in the same shape."""

    def conclude(self, found: Any) -> dict[str, Any]:
        """The result."""


# Makes a run of options, for a directory.
Make = Callable[[Any, Path, Watcher], Run]


def begin(
    name: str,
    make: Make,
    options: Any,
    path: str | Path,
    watcher: Watcher | None = None,
    anew: bool = False,
) -> dict[str, Any]:
    """Run the command `name` with the store at `path`; returns the result, also written to result.json.

    anew: give up a run of the store that has not finished. Raises TernError.
    """
    watcher = watcher or Watcher()
    directory = Path(path).parent
    run = make(options, directory, watcher)
    if run.spec.kind == "simulated":
        result = run.conclude(run.simulate())
        save_result(directory, result, "make room, and say it again")
        return result
    with Store(path) as store:
        asking = Asking.begin(store, name, asdict(options), watcher, anew)
        if run.spec.is_emulated:
            run.provision(store)
        asking.opened()
        return asking.conclude(run)


def resume(
    name: str,
    make: Make,
    options: Callable[..., Any],
    path: str | Path,
    watcher: Watcher | None = None,
    ports: str | None = None,
) -> dict[str, Any]:
    """Take up the run whose store is at `path` (or in that directory), its options made by `options`.

    ports: the fleet, if its boards are at other ports by now. Raises TernError.
    """
    watcher = watcher or Watcher()
    with Store(store_path(path), create=False) as store:
        asking = Asking.resume(store, name, watcher)
        asking.options["fleet"] = moved(asking.options["fleet"], ports)
        return asking.conclude(make(options(**asking.options), store.path.parent, watcher))


class Asking:
    """A run of the command `name`, whose options are `options`, over a store. Make it with `begin` or `resume`."""

    def __init__(
        self, store: Store, name: str, options: dict[str, Any], answers: Sequence[Answer], watcher: Watcher
    ):
        self.store = store
        self._name = name
        self._options = options
        self._answers = list(answers)
        self._watcher = watcher
        self._started = time.monotonic()
        self._rounds = 1

    @classmethod
    def begin(
        cls, store: Store, name: str, options: dict[str, Any], watcher: Watcher, anew: bool = False
    ) -> Asking:
        """Begin a run; call `opened` once the fleet is there.

        anew: give up one that has not finished; else it raises UsageError.
        """
        require_no_run(store, anew)
        return cls(store, name, options, (), watcher)

    @classmethod
    def resume(cls, store: Store, name: str, watcher: Watcher) -> Asking:
        """Take up the run in a store. Raises UsageError."""
        saved = store.state(name)
        if not saved:
            raise UsageError(
                f"{store.path} holds no run of tern {name}", hint=f"begin one: tern {name} --help"
            )
        if saved["finished"]:
            raise finished(name, store.path)
        return cls(store, name, saved["options"], [Answer(**answer) for answer in saved["answers"]], watcher)

    @property
    def options(self) -> dict[str, Any]:
        return self._options

    def opened(self) -> None:
        """The fleet is made: from now on the run can be resumed."""
        self.store.save_state(self._state(finished=False))

    def _state(self, finished: bool) -> dict[str, Any]:
        answers = [asdict(answer) for answer in self._answers]
        return {self._name: {"options": self._options, "answers": answers, "finished": finished}}

    def ask(
        self,
        spec: FleetSpec,
        directories: Sequence[Path],
        modules: Sequence[str],
        questions: Sequence[Question],
        devices: int | None,
        terms: Terms,
        account: Account,
        keep_counts: bool = True,
    ) -> list[Answer]:
        """Ask the first so many `devices` (None: all) of the boards every question that has not been answered.

        account: what that costs each of them, to be told before it begins.
        modules: what the questions need on a board (mpy.ON_DEMAND). Raises TernError; InterruptedByUser where Ctrl-C
        ended it.
        """
        self._rounds = len(questions)
        aggregator = Aggregator(self.store)
        try:
            with (
                open_boards(spec, directories, modules) as boards,
                Collector(aggregator, boards, self._watcher.warn) as collector,
            ):
                members = collector.devices[:devices]
                if devices is not None and len(members) < devices:
                    raise UsageError(
                        f"{devices} clients are to be asked, and the fleet has {len(members)}",
                        hint=f"ask {len(members)} or fewer",
                    )
                if not self._answers:
                    self._watcher.note(account.words())
                under_way = aggregator.resume(time.monotonic())
                while len(self._answers) < len(questions):
                    question = questions[len(self._answers)]
                    number = under_way[0] if under_way else self._open(aggregator, question, members, terms)
                    under_way = []
                    self._finish(collector.collect(number, self._tell), keep_counts)
        except KeyboardInterrupt:
            raise InterruptedByUser(
                "interrupted; the reports so far are safe",
                hint=f"go on with: tern {self._name} --resume {self.store.path}",
            ) from None
        except AllRefused as error:  # nobody will say anything else when asked again
            self.store.end_round(error.result.number, error.result.ended, self._state(finished=True))
            raise
        return self._answers

    def conclude(self, run: Run) -> dict[str, Any]:
        """Ask what `run` asks. The run has finished when its result is written: until then it can be resumed."""
        result = run.conclude(run.ask(self))
        directory = self.store.path.parent
        save_result(directory, result)
        self.store.save_state(self._state(finished=True))
        if run.spec.is_emulated:
            pack_boards(directory, self._watcher.warn)
        return result

    def _open(self, aggregator: Aggregator, question: Question, members: list[int], terms: Terms) -> int:
        number = max(self.store.last_round() + 1, terms.first_round or 1)
        quorum = max(1, round(terms.quorum * len(members)))
        aggregator.open(number, [(question, members)], time.monotonic(), quorum, terms.deadline)
        return number

    def _finish(self, result: RoundResult, keep_counts: bool) -> None:
        counts: Counts = result.cohorts[0].counts
        self._answers.append(
            Answer(
                result.number,
                result.asked,
                result.reports,
                len(result.refusals),
                result.ended,
                counts.tolist() if keep_counts else [],
            )
        )
        self.store.end_round(result.number, result.ended, self._state(finished=False))

    def _tell(self, progress: Progress) -> None:
        before = sum(answer.reports for answer in self._answers)
        self._watcher.status(
            Status(
                round=len(self._answers) + 1,
                rounds=self._rounds,
                reports=progress.reports,
                asked=progress.asked,
                total_reports=before + progress.reports,
                wanted_reports=self._rounds * progress.asked,
                accuracy=None,
                seconds=time.monotonic() - self._started,
                ended=progress.reports == progress.asked,
            )
        )
