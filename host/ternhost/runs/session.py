"""A training run from beginning to end: a data set, a fleet, rounds, a model; and how to go on after a crash.

All that a run needs to go on is in its store: the options, the state of training, the round under way and its
reports. An emulated fleet lives beside it, in `fleet/`: the boards' files and ledgers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import frames, ledger, wire
from ternhost.algorithms import base as algorithms, averaging as fedavg, levels as hiera, training
from ternhost.mechanisms import certify
from ternhost import datasets, fleet, mechanisms
from ternhost.aggregate.aggregator import Aggregator, Question, RoundResult, report_bytes, request_bytes
from ternhost.algorithms.base import ReportDesign
from ternhost.drivers.boards import AllRefused, Collector, Progress
from ternhost.datasets import Dataset
from ternhost.errors import InterruptedByUser, UsageError
from ternhost.fleet.opening import open_boards
from ternhost.fleet.provision import Policy, epsilon_spent, new_keys, provision_board
from ternhost.drivers.simulated import SimulatedFleet
from ternhost.mechanisms.base import MICRO, parse_epsilon, single_valued
from ternhost.runs.directory import board_directories, finished, moved, pack_boards, require_no_run, save_result, store_path
from ternhost.aggregate.store import Store

_GROUP = 500
_EMULATED = "emulated"  # state of a store: the devices 1 to this one are emulated

# How many of d coordinates a device reports, each at epsilon / k. "wide" loses least at the worst value, and is the
# default for collecting means; gradients are mostly near 0, where fewer coordinates are better, so that
# training defaults to "paper" (`tern experiment coordinates` measures both).
K_RULES = ("wide", "paper")

# Where a card is designed for an objective: what is reported is a gradient, few coordinates of it, mostly near 0.
_FOR_GRADIENTS = {"objective": "mean-second-moment", "prior": "small"}


def coordinates_by_rule(rule: str, epsilon: int, d: int) -> int:
    """k for an epsilon in micro-epsilon: floor(epsilon / 2.5 + 0.6), or the paper's floor(epsilon / 2.5), in 1..d."""
    if rule not in K_RULES:
        raise UsageError(f"there is no rule {rule!r} for k", hint=f"one of: {', '.join(K_RULES)}")
    return max(1, min(d, (epsilon + (1_500_000 if rule == "wide" else 0)) // 2_500_000))


@dataclass(frozen=True)
class Options:
    """What was asked for. `epsilon` is that of a whole report, in decimal; `card` (hex) replaces the mechanism's."""

    dataset: str = "flights"
    model: str = "logistic"
    mechanism: str = "three-outputs"
    epsilon: str = "2"
    levels: int | None = None
    card: str | None = None
    fleet: str = "emulated:8"
    reports: int = 20_000
    group: int = 0  # 0 becomes 500, or all of the reports where they are fewer
    seed: int = 1
    k: int | None = None
    k_rule: str = "paper"
    batch: int = 0
    deadline: float | None = 120.0
    quorum: float = 1.0
    learning_rate: float | None = None
    regularisation: float = 1e-4
    first_round: int | None = None
    algorithm: str = algorithms.FEDSGD
    epsilons: str | None = None  # personalised budgets, E:SHARE,...
    budget: str | None = None  # of a client, for life
    # of FedAvg
    clients: int = 0  # 0: all that the records are enough for, at most 1000 on boards
    records: int = 8  # of a client
    rounds: int = 20
    share: float = 0.1
    local_epochs: int = 2
    rate: int = 2
    tau: float = 0.25
    choices: str | None = None  # TAU:E:SHARE,..., or a mode of the paper by its name
    weights: str = fedavg.CLIENTS
    # of HierA
    budgets: str = "5,4,3,2,1"  # of the levels, in these proportions
    mu: float = 0.0

    def __post_init__(self) -> None:
        if not self.group:
            object.__setattr__(self, "group", min(_GROUP, self.reports))
        if not 0 < self.quorum <= 1:
            raise UsageError(f"a quorum of {self.quorum} is no share", hint="give more than 0 and at most 1")
        if self.deadline is not None and not 0 < self.deadline <= 0xFFFF:
            raise UsageError(f"a deadline of {self.deadline} s cannot be", hint="give 1 to 65535 seconds")
        if self.model not in training.MODELS:
            raise UsageError(
                f"there is no model {self.model!r}", hint=f"one of: {', '.join(training.MODELS)}"
            )
        if not 0 <= self.batch <= wire.MAX_BATCH:
            raise UsageError(
                f"a batch of {self.batch} cannot be", hint=f"0 (all) to {wire.MAX_BATCH} records"
            )
        if self.seed < 0:
            raise UsageError(f"a seed of {self.seed} cannot be", hint="give 0 or more")
        if self.first_round is not None and not 1 <= self.first_round <= wire.MAX_ROUND:
            raise UsageError(
                f"a round cannot have the number {self.first_round}", hint=f"give 1 to {wire.MAX_ROUND}"
            )
        if self.algorithm not in algorithms.ALGORITHMS:
            raise UsageError(
                f"there is no algorithm {self.algorithm!r}",
                hint=f"one of: {', '.join(algorithms.ALGORITHMS)}",
            )
        if not 0 <= self.mu <= 1:
            raise UsageError(f"a share mu of {self.mu} cannot be", hint="give 0 to 1")
        if self.clients < 0 or self.records < 1:
            raise UsageError("a number of clients is 0 (all) or more, and each has a record or more")
        fleet.parse(self.fleet)


@dataclass(frozen=True)
class Status:
    """Where a run is. `accuracy` is that of the model after the last round that has ended."""

    round: int
    rounds: int
    reports: int
    asked: int
    total_reports: int
    wanted_reports: int
    accuracy: float | None
    seconds: float
    ended: bool  # whether this tells the end of a round


@dataclass
class Watcher:
    """What to call while a run goes on; by default nothing."""

    status: Callable[[Status], None] = lambda status: None
    warn: Callable[[str], None] = lambda message: None
    note: Callable[[str], None] = lambda message: None


@dataclass
class _Saved:
    """What the store keeps of a run beside the trainer's state."""

    devices: list[list[int]] = field(default_factory=list)  # first and last id of each board's clients
    first_round: int = 1
    seconds: float = 0.0
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)
    gradient: dict[str, Any] | None = None  # the last round's estimate


class Session:
    """One run. Make it with `begin` or `resume`, then `run()`; a context manager that closes its store."""

    def __init__(
        self, store: Store, options: Options, saved: _Saved, state: dict[str, Any] | None, watcher: Watcher
    ) -> None:
        self.store = store
        self.options = options
        self.directory = store.path.parent
        self._saved = saved
        self._watcher = watcher
        self._dataset = datasets.load(options.dataset)
        self._spec = fleet.parse(options.fleet)
        self._designs = designs_of(options, self._dataset.dimension)
        simulated = self._spec.count if self._spec.kind == "simulated" else None
        self._algorithm = algorithms.make(options, self._dataset, self._designs, simulated, state)
        self._budget = None if options.budget is None else parse_epsilon(options.budget, ledger.MAX_BUDGET)
        self._accounts = algorithms.accounts(self._algorithm, self._budget)
        if self._spec.kind != "simulated" and self._spec.count > self._clients:
            raise UsageError(
                f"{self._spec.count} boards for {self._clients} clients leave boards without one",
                hint="ask for fewer boards, or more reports or clients",
            )

    @property
    def trainer(self) -> algorithms.Learner:
        """What has the model."""
        return self._algorithm.learner

    @property
    def _clients(self) -> int:
        """How many clients a fleet of boards needs."""
        return len(self._algorithm.of_class)

    @classmethod
    def begin(
        cls, options: Options, path: str | Path, watcher: Watcher | None = None, anew: bool = False
    ) -> Session:
        """Begin a run with the store at `path`, made if it is not there.

        anew: give up a run of the store that has not finished. Raises TernError.
        """
        store = Store(path)
        try:
            require_no_run(store, anew)
            session = cls(store, options, _Saved(), None, watcher or Watcher())
            session._prepare()
        except BaseException:
            store.close()
            raise
        return session

    @classmethod
    def resume(cls, path: str | Path, watcher: Watcher | None = None, ports: str | None = None) -> Session:
        """Take up the run whose store is at `path` (or in that directory).

        ports: its fleet, if the boards are at other ports by now. Raises TernError.
        """
        path = Path(path)
        store = Store(store_path(path), create=False)
        try:
            options, saved = store.state("options"), store.state("run")
            if options is None or saved is None:
                raise UsageError(f"{store.path} holds no run", hint="begin one: tern train --help")
            if saved["finished"]:
                raise finished("train", store.path)
            options["fleet"] = moved(options["fleet"], ports)
            known = {option.name for option in fields(Options)}
            session = cls(
                store,
                Options(**{name: value for name, value in options.items() if name in known}),
                _Saved(**saved),
                store.state("trainer"),
                watcher or Watcher(),
            )
            if ports:
                store.save_state({"options": options})
        except BaseException:
            store.close()
            raise
        return session

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    # Setting up

    def _prepare(self) -> None:
        self._saved.first_round = max(self.store.last_round() + 1, self.options.first_round or 1)
        last = self._saved.first_round + self._algorithm.rounds - 1
        if last > wire.MAX_ROUND:
            raise UsageError(
                f"{self._algorithm.rounds} rounds from {self._saved.first_round} on would go beyond {wire.MAX_ROUND}",
                hint="a smaller --first-round, or larger groups",
            )
        if self._spec.is_emulated:
            self._watcher.note(f"provisioning {self._clients} clients on {self._spec.count} emulated boards")
            self._provision()
        # Last, so that a run which died before this has not begun.
        self.store.save_state({"options": asdict(self.options), "run": vars(self._saved), "trainer": None})

    @property
    def _boards(self) -> list[Path]:
        return board_directories(self.directory, self._spec.count)

    def _provision(self) -> None:
        policies = algorithms.policies(self._algorithm, self._budget)
        provision_fleet(self.store, self._boards, self._algorithm.records, policies, self._algorithm.each)

    def _members(self, devices: Sequence[int]) -> npt.NDArray[np.int64]:
        """The device that each client of the run is."""
        if self._spec.is_emulated:
            return np.arange(1, self._clients + 1)
        if len(devices) < self._clients:
            option = "--clients" if self.options.algorithm == algorithms.FEDAVG else "--reports"
            raise UsageError(
                f"the fleet has {len(devices)} devices, and the run needs {self._clients}",
                hint=f"ask for {option} {len(devices)}",
            )
        return training.groups(devices, self._clients, self.options.seed)[0]

    # Running

    def run(self) -> dict[str, Any]:
        """Train until the trainer stops, and return the result (also written to result.json).

        Raises TernError; InterruptedByUser where Ctrl-C ended it. The run can then be resumed.
        """
        self._started = time.monotonic() - self._saved.seconds
        try:
            if self._spec.kind == "simulated":
                self._run_simulated()
            else:
                self._run_boards()
        except KeyboardInterrupt:
            raise self._interrupted() from None
        return self._conclude()

    def _run_boards(self) -> None:
        modules = algorithms.MODULES[self.options.algorithm]
        with open_boards(self._spec, self._boards, modules) as boards:
            aggregator = Aggregator(self.store)
            with Collector(aggregator, boards, self._watcher.warn) as collector:
                members = self._members(self._remember(collector.devices))
                self._watcher.note(
                    f"{len(collector.boards)} boards with {len(collector.devices)} clients are there"
                )
                self._tell_costs()
                for number in aggregator.resume(time.monotonic()):
                    self._finish_round(number, collector)
                while not self.trainer.stopped:
                    self._finish_round(self._open_round(aggregator, members), collector)

    def _tell_costs(self) -> None:
        if not self.trainer.round:
            for account in self._accounts:
                self._watcher.note(account.words())

    def _run_simulated(self) -> None:
        self._tell_costs()
        simulated = SimulatedFleet(self._algorithm.records, self.options.seed, self._algorithm.each)
        while not self.trainer.stopped:
            number = self._saved.first_round + self.trainer.round
            before = self._reports

            def tell(progress: Progress, before: int = before) -> None:
                self._watcher.status(self._status(progress, before + progress.reports, ended=False))

            result = simulated.collect(number, self._algorithm.cohorts(), tell)
            self._learn(result)
            self.store.save_state({"trainer": self.trainer.state(), "run": vars(self._saved)})
            progress = Progress(number, result.reports, result.asked)
            self._watcher.status(self._status(progress, before + result.reports, ended=True))

    def _interrupted(self) -> InterruptedByUser:
        under_way = sum(len(self.store.reports(asked.number)) for asked in self.store.open_rounds())
        return InterruptedByUser(
            f"interrupted in round {self.trainer.round + 1} of {self._algorithm.rounds}; "
            f"the {self._reports + under_way:,} reports so far are safe",
            hint=f"go on with: tern train --resume {self.store.path}",
        )

    def _remember(self, devices: list[int]) -> list[int]:
        # The devices of a run are those that were there when it began.
        if not self._saved.devices:
            self._saved.devices = _ranges(devices)
            self.store.save_state({"run": vars(self._saved)})
        return [device for first, last in self._saved.devices for device in range(first, last + 1)]

    def _open_round(self, aggregator: Aggregator, members: npt.NDArray[np.int64]) -> int:
        number = self._saved.first_round + self.trainer.round
        cohorts = [(question, members[clients].tolist()) for question, clients in self._algorithm.cohorts()]
        quorum = max(1, round(self.options.quorum * sum(len(devices) for _, devices in cohorts)))
        aggregator.open(number, cohorts, time.monotonic(), quorum, self.options.deadline)
        return number

    def _finish_round(self, number: int, collector: Collector) -> None:
        before = self._reports

        def tell(progress: Progress) -> None:
            self._watcher.status(self._status(progress, before + progress.reports, ended=False))

        try:
            result = collector.collect(number, tell)
        except AllRefused as error:
            asked = sum(entry["asked"] for entry in self._saved.history) + error.result.asked
            if not before and asked >= self._clients:  # nothing has come of this run yet, and nothing will
                self._saved.finished = True
                self.store.end_round(number, error.result.ended, {"run": vars(self._saved)})
                raise
            self._watcher.warn(f"round {number}: {error.message}")
            result = error.result
        self._learn(result)
        self.store.end_round(
            number,
            result.ended,
            {"trainer": self.trainer.state(), "run": vars(self._saved)},
            self.trainer.model.astype("<f8").tobytes(),
        )
        progress = Progress(number, result.reports, result.asked)
        self._watcher.status(self._status(progress, before + result.reports, ended=True))

    def _learn(self, result: RoundResult) -> None:
        if result.reports:
            told = self._algorithm.learn(result)
            self._saved.gradient = told and {"round": result.number, **told}
        else:
            self.trainer.fail()
        self._saved.history.append(self._entry(result))
        self._saved.seconds = time.monotonic() - self._started

    @property
    def _reports(self) -> int:
        """Reports of this run in the rounds that have ended."""
        return sum(entry["reports"] for entry in self._saved.history)

    def _entry(self, result: RoundResult) -> dict[str, Any]:
        return {
            "round": result.number,
            "ended": result.ended,
            "asked": result.asked,
            "reports": result.reports,
            "refusals": len(result.refusals),
            "accuracy": training.judge(self._dataset, self.trainer.model),
        }

    def _status(self, progress: Progress, total: int, ended: bool) -> Status:
        history = self._saved.history
        return Status(
            progress.round - self._saved.first_round + 1,
            self._algorithm.rounds,
            progress.reports,
            progress.asked,
            total,
            self._algorithm.reports,
            history[-1]["accuracy"] if history else None,
            time.monotonic() - self._started,
            ended,
        )

    # The end

    @property
    def _request_bytes(self) -> int:
        parameters = [0] * self._dataset.dimension
        local = (1, 1, 1) if self.options.algorithm == algorithms.FEDAVG else ()
        model = training.MODELS[self.options.model] + (wire.LOCAL if local else 0)
        own = self._designs[0]
        return request_bytes(Question(model, parameters, -12, own.card.data, own.k, 0, local))

    def _conclude(self) -> dict[str, Any]:
        exact: list[float] = []
        nonprivate = self._algorithm.exact(lambda model: exact.append(training.judge(self._dataset, model)))
        history = self._saved.history
        for entry, judged in zip(history, exact, strict=False):
            entry["accuracy_nonprivate"] = judged
        reports = self._reports
        design, d = self._designs[0], self._dataset.dimension
        card, k = design.card, design.k
        times = self._algorithm.times
        sizes = [int(np.count_nonzero(self._algorithm.of_class == i)) for i in range(len(self._designs))]
        result = {
            "accuracy": training.judge(self._dataset, self.trainer.model),
            "accuracy_interval": list(training.judge_interval(self._dataset, self.trainer.model)),
            "accuracy_nonprivate": training.judge(self._dataset, nonprivate),
            "accuracy_baseline": training.baseline(self._dataset),
            "task": self._dataset.task,
            "reports": reports,
            "bytes_per_report": report_bytes(frames.packed_size(card.symbols, k)),
            "bytes_per_request": self._request_bytes,
            "bytes_per_report_float32": report_bytes(4 * d),
            "epsilon_per_client": max(own.cost for own in self._designs) * times / MICRO,
            "epsilon_spent": epsilon_spent(self._boards) if self._spec.is_emulated else [],
            "classes": [own.summary(size, times) for own, size in zip(self._designs, sizes, strict=True)],
            "accounting": [account.summary() for account in self._accounts],
            "rounds": len(history),
            "seconds": round(self._saved.seconds, 3),
            "reports_per_second": round(reports / max(self._saved.seconds, 1e-9), 1),
            "stopped": self.trainer.stopped,
            "mechanism": design.mechanism,
            "card": card.data.hex(),
            "card_hash": cards.card_hash(card.data).hex(),
            "levels": card.symbols,
            "k": k,
            "d": d,
            "features": list(self._dataset.feature_names),
            "weights": self.trainer.model.tolist(),
            "options": asdict(self.options),
            "directory": str(self.directory),
            "last_gradient": self._saved.gradient,
            "history": history,
            **self._algorithm.told(),
        }
        self._saved.finished = True
        save_result(self.directory, result)
        self.store.save_state({"run": vars(self._saved)})
        if self._spec.is_emulated:
            pack_boards(self.directory, self._watcher.warn)
        return result


def provision_from(
    path: Path, boards: Sequence[Path], dataset: Dataset, clients: int, seed: int, policy: Policy
) -> None:
    """Make boards whose clients hold a record each of `dataset`, and a store with their keys at `path`."""
    (positions,) = training.choose_groups(dataset, clients, clients, seed)
    with Store(path) as store:
        provision_fleet(store, boards, dataset.records(np.sort(positions)), policy)


def provision_fleet(
    store: Store, directories: Sequence[Path], rows: Any, policy: Policy | Sequence[Policy], each: int = 1
) -> None:
    """Make boards for `rows` (int16, records with labels), one client for `each` of them, with keys in the store.

    policy: of all clients, or one a client. Raises UsageError where the store holds the keys of other devices.
    """
    clients = len(rows) // each
    made = store.state(_EMULATED) or 0
    if max(store.keys(), default=0) > made:
        raise UsageError(
            f"{store.path} holds keys of devices that are not emulated, and they would be lost",
            hint="name another --store",
        )
    keys = new_keys(range(1, clients + 1))
    bounds = [clients * board // len(directories) for board in range(len(directories) + 1)]
    for directory, start, end in zip(directories, bounds, bounds[1:], strict=False):
        of_board = [keys[device] for device in range(start + 1, end + 1)]
        own = policy if isinstance(policy, Policy) else policy[start:end]
        provision_board(directory, start + 1, of_board, rows[start * each : end * each], own)
    store.save_state({_EMULATED: max(made, clients)})
    store.add_devices(keys)  # last: where there are boards already, theirs stay


def designs_of(options: Options, d: int) -> list[ReportDesign]:
    """The reports of each class of clients that `options` ask for, of d coordinates. Raises UsageError."""
    if options.algorithm == algorithms.HIERA:
        epsilon = parse_epsilon(options.epsilon)
        levels = hiera.design(epsilon, hiera.proportions_of(options.budgets))
        return [ReportDesign(levels.card, 1, float(levels.values.max()) ** 2, "lhp", epsilon)]
    classes = [(options.epsilon, 1.0, options.tau)]
    if options.epsilons is not None:
        classes = [(epsilon, share, options.tau) for epsilon, share in algorithms.shares(options.epsilons)]
    if options.choices is not None:
        classes = [(choice.epsilon, choice.share, choice.tau) for choice in _choices(options.choices)]
    if len(classes) > 1 and options.card is not None:
        raise UsageError("a card is for one epsilon, and there are several", hint="name a mechanism instead")
    least = min(parse_epsilon(epsilon) for epsilon, _, _ in classes)
    k = options.k if options.k is not None else coordinates_by_rule(options.k_rule, least, d)
    local = options.algorithm == algorithms.FEDAVG
    return [
        replace(
            design_report(replace(options, epsilon=epsilon, k=k), d), share=share, tau=tau if local else None
        )
        for epsilon, share, tau in classes
    ]


def _choices(text: str) -> Sequence[fedavg.Choice]:
    if text in fedavg.MODES:
        return fedavg.MODES[text]
    found = []
    for what, share in algorithms.shares(text):
        tau, _, epsilon = what.partition(":")
        try:
            parse_epsilon(epsilon)
            found.append(fedavg.Choice(float(tau), epsilon, share))
        except (ValueError, UsageError):
            raise UsageError(
                f"{what!r} is no choice of a safe range and an epsilon",
                hint=f"such as 0.25:2:0.5,0.5:8:0.5, or one of: {', '.join(fedavg.MODES)}",
            ) from None
    return found


def design_report(options: Options, d: int) -> ReportDesign:
    """The report that `options` ask for, of d coordinates. Raises UsageError."""
    epsilon = parse_epsilon(options.epsilon)
    k = options.k if options.k is not None else coordinates_by_rule(options.k_rule, epsilon, d)
    if not 1 <= k <= d:
        raise UsageError(f"{k} of {d} coordinates cannot be reported", hint=f"give a k of 1 to {d}")
    if options.card is not None:
        try:
            card = cards.decode(bytes.fromhex(options.card))
        except ValueError as error:
            raise UsageError(f"this is no card: {error}", hint="make one with 'tern card design'") from error
        single_valued(card, "this card")
        mechanism = "card"
        if k * card.epsilon > epsilon:
            raise UsageError(
                f"{k} coordinates of this card cost an epsilon of {k * card.epsilon / MICRO:g}, "
                f"more than the {epsilon / MICRO:g} of a whole report",
                hint="ask for that with --epsilon, or use a card of a smaller one",
            )
    else:
        mechanism = options.mechanism
        objective = _FOR_GRADIENTS if mechanism in ("optimal", "auto") else {}
        card = mechanisms.design(
            mechanism, levels=options.levels, epsilon_micro=epsilon // k, **objective
        ).decode()
    try:
        variance = float(certify.moments(card).variance(Fraction(0)))
    except certify.Biased as error:
        raise UsageError(f"this card cannot be averaged: {error}", hint="see 'tern card show'") from error
    return ReportDesign(card, k, variance, mechanism, epsilon)


def _ranges(devices: Sequence[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for device in devices:
        if ranges and ranges[-1][1] == device - 1:
            ranges[-1][1] = device
        else:
            ranges.append([device, device])
    return ranges
