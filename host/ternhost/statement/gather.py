"""Collects the facts of a privacy statement: from the store of a run, from a whole store, from the
options of a run that has not begun, or from a board.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from tern import card as cards
from tern import frames, wire
from tern.ledger import EPSILON, RHO
from ternhost import datasets
from ternhost.count.disclosures import Disclosures, ReportCounts
from ternhost.count.members import integers
from ternhost.count.questions import decode_body, report_bytes
from ternhost.datasets.base import CONSTANT
from ternhost.errors import TernError, UsageError
from ternhost.extensions import EXTENSIONS, StatementPart
from ternhost.learn.base import ALGORITHMS, Learner
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import for_steps
from ternhost.privacy.guarantee import REPLACED, Bounds, Guarantee, Span
from ternhost.reach import fleet
from ternhost.reach.driver import BoardBudget
from ternhost.reach.fleet import Fleet
from ternhost.reach.links import open_link
from ternhost.run import begin, costs, guarantees, payments
from ternhost.run import directory as run_directory
from ternhost.run.directory import RunFiles
from ternhost.run.guarantees import OfClass
from ternhost.run.options import RunOptions
from ternhost.statement.facts import Facts, Held, Kind, Reported
from ternhost.store.runs import StoredRun, status_now
from ternhost.store.store import Store

_DELTA = 1e-6  # of what a board or a store says, for which nobody has named one
_MOST_BUDGETS = 3  # different ones in a statement
_MOST_NAMES = 3  # of features
_SIMULATED = (
    "The clients are simulated by the host, which has all their data: nobody is protected from it. This page says what "
    "the same run would promise to devices."
)
_EMULATED = (
    "A board is emulated on a computer, whose owner has all its records: nobody is protected from them. This page says "
    "what the same reports promise to devices that other people hold."
)
_MADE = (
    "The devices are emulated boards on the host's own machine, which also holds their records. This page says what "
    "the same run promises to devices that other people hold."
)


# A run


def of_run(files: RunFiles) -> Facts:
    """The facts of a run that has begun, from its store. Raises TernError."""
    with Store(files.store, create=False, beside=True) as store:
        run = store.run(files.name)
        if run is None:
            raise UsageError(
                f"{files.store} holds no run {files.name}", hint="'tern runs' lists them"
            )
        if run.state.get("guarantees") is None:
            raise UsageError(
                f"the run {files.name} has asked no device yet",
                hint="try again after its first round",
            )
        options = RunOptions.stored(run.asked)
        kind, simulated = fleet.parse(options.fleet), bool(run.asked.get("simulated"))
        learner = ALGORITHMS.named(options.algorithm)
        delta = float(options.delta)
        asked = costs.asked_of(store, simulated, files.name)
        accounts = asked.report_counts()
        promised = guarantees.classes_of(run.state)
        endless = run.asked["schedule"] is not None
        if endless and accounts:  # there were more rounds since it began
            promised = [_of_rounds(store, accounts, simulated, delta)]
        unit = promised[0].run.unit if promised else 0
        parts = _parts(store, kind, options)
        return Facts(
            kind=Kind.RUN,
            name=files.name,
            made=time.time(),
            unit=unit,
            delta=delta,
            held=_held(run.asked["learning"], _some_device(asked), _features(files.directory)),
            promised=[each for of_class in promised for each in _spans(of_class)],
            budgets=_budgets_of_run(store, kind, options, accounts),
            parts=parts,
            link=kind.word,
            not_real=_not_real(kind) or _reason_of(parts) or _not_real_boards(store),
            reported=_reported_in(store, simulated, files.name),
            asked=max((sum(account.values()) for account in accounts), default=None),
            endless=endless,
            together=_together(accounts, unit, run.asked["learning"].get("records"), delta),
            results=learner.command == "infer",
            about=_about_run(run, files, options),
        )


def _of_rounds(
    store: Store, accounts: Sequence[ReportCounts], simulated: bool, delta: float
) -> OfClass:
    """What the rounds so far tell of the device of which they tell most, and what all rounds of the
    store do.
    """
    reports = {report for account in accounts for report in account}
    every = costs.asked_of(store, simulated).report_counts()
    return OfClass(
        _worst(Guarantee.of(Span.REPORT, {report: 1}, delta) for report in reports),
        _worst(Guarantee.of(Span.RUN, account, delta, fixed=False) for account in accounts),
        _worst(Guarantee.of(Span.LIFE, account, delta) for account in every),
    )


def _worst(found: Iterable[Guarantee]) -> Guarantee:
    return max(found, key=lambda each: each.bounds.epsilon)


def _spans(of_class: OfClass) -> list[Guarantee]:
    return [of_class.report, of_class.run, of_class.life]


def _not_real(kind: Fleet) -> str:
    if kind.simulated:
        return _SIMULATED
    return _MADE if kind.provisions else ""


def _not_real_in(runs: Sequence[StoredRun]) -> str:
    """The same of the runs of a store."""
    found = [_not_real(fleet.parse(run.asked["fleet"])) for run in runs]
    texts = sorted({text for text in found if text})
    if not texts or all(found):
        return " ".join(texts)
    return f"Some runs of this store had no devices of other people. {' '.join(texts)}"


def _not_real_boards(store: Store) -> str:
    """The same of the boards of a store."""
    return (
        _EMULATED if any(_is_emulated(board.hello.get("text")) for board in store.boards()) else ""
    )


def _is_emulated(text: str | None) -> bool:
    """Whether the text of a HELLO is that of an emulated board."""
    return text is not None and "emulated" in text.split()


def _held(learning: Mapping[str, Any], device: int | None, features: Sequence[str]) -> Held:
    """What devices hold, by the options of a learner."""
    data = "" if learning.get("dimension") else str(learning.get("dataset") or "")
    return Held(device, learning.get("records"), data, features)


def _features(directory: Path) -> Sequence[str]:
    """The names of some features in the result of a run, if there is one that names them."""
    with suppress(OSError, ValueError):
        result = json.loads((directory / run_directory.RESULT_NAME).read_text())
        names = result.get("features")
        if not isinstance(names, list):  # an inference has their number alone
            names = [each["name"] for each in result.get("attributes", ())]
        return [str(name) for name in names if name != CONSTANT][:_MOST_NAMES]
    return ()


def _some_device(asked: Disclosures) -> int | None:
    devices = asked.devices
    return int(devices[0]) if len(devices) else None


def _reported_in(store: Store, simulated: bool, run: str | None) -> list[Reported]:
    """The kinds of reports in the rounds of a store, or of one run of it."""
    found: dict[tuple[bytes, int], Reported] = {}
    for round_ in store.rounds(simulated):
        if run is None or round_.run == run:
            for cohort in round_.cohorts:
                request = decode_body(cohort.body)
                data, k = bytes(request.card), int(request.k)
                if (data, k) not in found:
                    found[data, k] = _reported(data, k)
    return list(found.values())


def _reported(data: bytes, k: int) -> Reported:
    symbols = cards.decode(data).symbols
    return Reported(data, k, report_bytes(frames.packed_size(symbols, k)))


def _together(
    accounts: Sequence[ReportCounts], unit: int, records: int | None, delta: float
) -> Bounds | None:
    """What is proved of all records of a device, where a run of records is protected and their
    number is known.
    """
    if not unit or not records or not accounts:
        return None
    runs = min(
        records, (records - 1) // unit + 2
    )  # a program's newest records may begin within a run
    steps = REPLACED * runs
    return max(
        (Bounds.of(for_steps(account, steps), delta) for account in accounts),
        key=lambda each: each.epsilon,
    )


def _parts(store: Store, kind: Fleet, options: RunOptions) -> list[StatementPart]:
    """What extensions say of what the rounds of the store have disclosed."""
    return [each.statement_part(store, kind, options) for each in EXTENSIONS.available()]


def _reason_of(parts: Sequence[StatementPart]) -> str:
    """Why no person's data is in it, by the first extension that knows a reason."""
    return next((each.not_real for each in parts if each.not_real), "")


def _about_run(run: StoredRun, files: RunFiles, options: RunOptions) -> dict[str, str]:
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
    return {
        "run": run.name,
        "began": began,
        "status": status_now(run.status, files.store),
        "rounds": f"{run.state['rounds']:,}, with {run.state['reports']:,} reports",
        "store": str(files.store),
        **_options(options),
    }


def _options(options: RunOptions) -> dict[str, str]:
    learning = {
        name: value
        for name, value in vars(options.learning).items()
        if value not in (None, "", {}, [])
    }
    return {
        "fleet": options.fleet,
        "algorithm": options.algorithm,
        "options": ", ".join(
            f"{name} {value}" for name, value in learning.items() if name != "card"
        ),
    }


# Budgets


def _budgets_of_run(
    store: Store, kind: Fleet, options: RunOptions, accounts: Sequence[ReportCounts]
) -> list[Guarantee]:
    """What ledgers allow for life, as boards say it; of simulated clients, what the run allows.
    accounts: of the run.
    """
    delta = float(options.delta)
    if not kind.simulated:
        return _budgets_of_store(store, delta)
    if options.budget_micro is None:
        return []
    measure = EPSILON
    if any(report.gaussian for account in accounts for report in account):
        measure = RHO
    budget = costs.in_measure(options.budget_micro, measure, delta)
    return [Guarantee.of_budget(budget, measure, _unit_of(accounts), delta)]


def _budgets_of_store(store: Store, delta: float = _DELTA) -> list[Guarantee]:
    """What the ledgers of all boards of a store allow for life, as the boards have said it."""
    said = set()
    for board in store.boards():
        hello = board.hello
        whole = int(hello.get("budget") or 0) + int(hello.get("spent") or 0)
        said.add((whole, board.measure, board.unit))
    for extension in store.extensions():
        for budget in extension.budgets(store):
            if budget.unit is not None:
                said.add((budget.left + budget.spent, budget.measure, budget.unit))
    found = [
        Guarantee.of_budget(whole, measure, unit, delta) for whole, measure, unit in said if whole
    ]
    return sorted(found, key=lambda each: -each.bounds.epsilon)[:_MOST_BUDGETS]


# A store


def of_store(path: Path) -> Facts:
    """The facts of all runs of a store. Raises TernError."""
    with Store(path, create=False, beside=True) as store:
        runs = store.runs()
        simulated = bool(runs) and all(run.asked.get("simulated") for run in runs)
        asked = costs.asked_of(store, simulated)
        boards = store.boards()
        accounts = (
            _with_payments(store, asked).report_counts() if not simulated else asked.report_counts()
        )
        unit = _unit_of(accounts, [board.unit for board in boards])
        life = (
            [_worst(Guarantee.of(Span.LIFE, account, _DELTA) for account in accounts)]
            if accounts
            else []
        )
        last = runs[-1] if runs else None
        kind = None if last is None else fleet.parse(last.asked["fleet"])
        learning = {} if last is None else last.asked["learning"]
        parts: list[StatementPart] = []
        if last is not None and kind is not None:
            parts = _parts(store, kind, RunOptions.stored(last.asked))
        return Facts(
            kind=Kind.STORE,
            name=path.name,
            made=time.time(),
            unit=unit,
            delta=_DELTA,
            held=_held(learning, _some_device(asked), ()),
            promised=life,
            budgets=_budgets_of_store(store),
            parts=parts,
            link="" if kind is None else kind.word,
            not_real=_not_real_in(runs) or _reason_of(parts) or _not_real_boards(store),
            reported=_reported_in(store, simulated, None),
            asked=max((sum(account.values()) for account in accounts), default=None),
            together=_together(accounts, unit, learning.get("records"), _DELTA),
            about={
                "store": str(path),
                "runs": ", ".join(run.name for run in runs) or "none",
                "boards": f"{len(boards):,} that ever connected",
                "devices": f"{store.device_count():,} with a key",
            },
        )


def _with_payments(store: Store, asked: Disclosures) -> Disclosures:
    """What the devices were asked to tell, and what their boards have paid beyond that."""
    budgets = [
        BoardBudget(
            range(board.first, board.first + board.clients),
            board.clients,
            board.measure,
            board.budget_left or 0,
            board.paid or 0,
            board.first,
        )
        for board in store.boards()
        if board.paid is not None
    ]
    found = payments.unknown_payments(store, budgets, asked)
    rows = [vars(payment) for payment in found]
    devices = np.unique(
        np.concatenate([asked.devices, *(integers(each.devices) for each in budgets)])
    )
    return payments.with_payments(asked, rows, devices, _unit_of(asked.report_counts()))


def _unit_of(accounts: Sequence[ReportCounts], boards: Sequence[int] = ()) -> int:
    """The unit that a store's reports protect; without reports, that of its boards."""
    units = [report.unit for account in accounts for report in account]
    return min((unit for unit in (units or boards) if unit), default=0)


# A plan


def of_plan(options: RunOptions, store: Path | None, words: Sequence[str]) -> Facts:
    """The facts of a run that has not begun. words: its command line.

    Raises TernError as the run would.
    """
    plan = begin.planned(options, store)
    options, learner, disclosures = plan.options, plan.learner, plan.disclosures
    kind, delta = fleet.parse(options.fleet), float(options.delta)
    promised = guarantees.of_classes(learner, disclosures, disclosures.devices, delta)
    records = getattr(learner.options, "records", None)
    endless = learner.rounds is None and not learner.once
    held = _held(
        vars(learner.options),
        int(disclosures.devices[0]) if disclosures else 1,
        _features_of(learner),
    )
    accounts = [design.report_counts(learner.times) for design in learner.designs]
    spans = [[each.report] if endless else _spans(each) for each in promised]
    return Facts(
        kind=Kind.PLAN,
        name=f"tern {' '.join(words)}",
        made=time.time(),
        unit=learner.unit,
        delta=delta,
        held=held,
        promised=[each for of_class in spans for each in of_class],
        budgets=_planned_budgets(options, store, learner),
        parts=plan.statement_parts,
        link=kind.word,
        not_real=_not_real(kind),
        reported=[_reported(design.card.data, design.k) for design in learner.designs],
        asked=None if endless else learner.times,
        endless=endless,
        together=None if endless else _together(accounts, learner.unit, records, delta),
        results=learner.command == "infer",
        about={"command": f"tern {' '.join(words)}", **_options(options)},
    )


def _planned_budgets(options: RunOptions, store: Path | None, learner: Learner) -> list[Guarantee]:
    """What ledgers allow for life, as they will be made for the run or are; of simulated clients,
    what it allows.
    """
    kind, delta = fleet.parse(options.fleet), float(options.delta)
    named = costs.ledger_budget(learner, options.budget_micro)
    if named is not None and (kind.simulated or kind.provisions):
        return [Guarantee.of_budget(named, costs.measure(learner), learner.unit, delta)]
    if kind.provisions:  # boards that are made for a run get what it costs
        policies = zip(learner.designs, costs.costs(learner), strict=True)
        found = [
            Guarantee.of_budget(
                max(each.policy.budget, cost), each.policy.measure, learner.unit, delta
            )
            for each, cost in policies
        ]
        return sorted(found, key=lambda each: -each.bounds.epsilon)[:_MOST_BUDGETS]
    path = store or kind.default_store
    if path is None or not path.is_file():
        return []
    with Store(path, create=False, beside=True) as opened:
        return _budgets_of_store(opened)


def _features_of(learner: Learner) -> Sequence[str]:
    name = getattr(learner.options, "dataset", None)
    if not name or getattr(learner.options, "dimension", None):
        return ()
    with suppress(TernError):
        names = datasets.load(name).feature_names
        return [each for each in names if each != CONSTANT][:_MOST_NAMES]
    return ()


# A board


def of_board(name: str) -> Facts:
    """The facts that the board of this name tells, as `--fleet port:NAME` finds it.

    Raises TernError.
    """
    with fleet.parse(f"port:{name}").boards(()) as boards:
        (port, *others) = boards.ports
        if others:
            raise UsageError(f"{name} are several boards", hint="name one of them")
        with closing(open_link(port, SimpleQueue())) as link:
            hello = link.hello()
    measure, unit = hello.measure or 0, hello.unit or 0
    left, spent = hello.budget or 0, hello.spent or 0
    if not left + spent:
        text = "the board cannot read its ledger, or it is not provisioned"
        raise UsageError(text, hint=f"see: tern device info {name}")
    life = [Guarantee.of_budget(spent, measure, unit, _DELTA, Span.LIFE)] if spent else []
    first, clients = hello.first or 0, hello.clients or 0
    devices = f"{first}" if clients == 1 else f"{first} to {first + clients - 1}"
    return Facts(
        kind=Kind.BOARD,
        name=name,
        made=time.time(),
        unit=unit,
        delta=_DELTA,
        held=Held(first, hello.records or None),
        promised=life,
        budgets=[Guarantee.of_budget(left + spent, measure, unit, _DELTA)],
        link="port",
        not_real=_EMULATED if _is_emulated(hello.text) else "",
        about={
            "board": str(hello.text),
            "devices": devices,
            "ledger": f"{left / MICRO:g} of {(left + spent) / MICRO:g} left, in {('epsilon', 'rho')[measure]}",
            "wire schema": hello.schema.hex(),
            "entropy": "failed" if hello.entropy == wire.FAILED else "passed its tests",
        },
    )
