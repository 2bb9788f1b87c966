"""Collects the facts of a privacy statement.

They come from the store of a run, from a whole store, from the options of a run that has not begun,
or from a board.
"""

from __future__ import annotations

import itertools
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
from tern.host_frames import Hello
from tern.ledger import EPSILON, RHO
from ternhost import datasets
from ternhost.count.disclosures import Disclosures, ReportCounts
from ternhost.count.members import integers
from ternhost.count.questions import decode_body, report_bytes
from ternhost.datasets.base import CONSTANT
from ternhost.errors import TernError, UsageError
from ternhost.extensions import EXTENSIONS, StatementPart
from ternhost.learn.base import ALGORITHMS, Learner
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import for_steps
from ternhost.privacy.guarantee import REPLACED, Bounds, Guarantee, Span
from ternhost.privacy.units import DEVICE
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

_DELTA = 1e-6  # of a board or a store, for which nobody has named one
_MOST_BUDGETS = 3  # of those in a statement
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
    """Collect the facts of a run that has begun, from its store. Raises TernError."""
    with Store(files.store, create=False, beside=True) as store:
        run = _begun_run(store, files)
        options = RunOptions.stored(run.asked)
        kind = fleet.parse(options.fleet)
        simulated = bool(run.asked.get("simulated"))
        delta = float(options.delta)
        records = run.asked["learning"].get("records")
        disclosures = costs.asked_disclosures(store, simulated, files.name)
        accounts = disclosures.report_counts()
        endless = run.asked["schedule"] is not None

        promised = guarantees.classes_of(run.state)
        if endless and accounts:  # there were more rounds since it began
            promised = [_of_rounds(store, accounts, simulated, delta)]
        unit = 0
        if promised:
            unit = promised[0].run.unit
        parts = _parts(store, kind, options)
        learning = run.asked["learning"]
        features = _features_in_result(files.directory)
        return Facts(
            kind=Kind.RUN,
            name=files.name,
            made=time.time(),
            unit=unit,
            delta=delta,
            held=_held(learning, _some_device(disclosures), features),
            promised=_flat(promised),
            budgets=_budgets_of_run(store, kind, options, accounts),
            parts=parts,
            link=kind.word,
            not_real=_not_real(kind) or _reason_of(parts) or _not_real_boards(store),
            reported=_reported_in(store, simulated, files.name),
            most_reports=_most_reports(accounts),
            endless=endless,
            together=bounds_of_all_records(accounts, unit, records, delta),
            results=ALGORITHMS.named(options.algorithm).command == "infer",
            about=_about_run(run, files, options),
        )


def _begun_run(store: Store, files: RunFiles) -> StoredRun:
    """Return the run that the store holds for these files.

    Raises UsageError if it is missing or has asked no device yet, so that nothing is promised.
    """
    run = store.run(files.name)
    if run is None:
        text = f"{files.store} holds no run {files.name}"
        raise UsageError(text, hint="'tern runs' lists them")
    if run.state.get("guarantees") is None:
        text = f"the run {files.name} has asked no device yet"
        raise UsageError(text, hint="try again after its first round")
    return run


def _of_rounds(
    store: Store, accounts: Sequence[ReportCounts], simulated: bool, delta: float
) -> OfClass:
    """Return the worst guarantees over all devices, for the rounds so far.

    accounts: how many reports of each kind every device of the run has made. The guarantee for life
    counts all rounds of the store instead.
    """
    kinds = set(itertools.chain(*accounts))
    accounts_for_life = costs.asked_disclosures(store, simulated).report_counts()
    of_reports = [Guarantee.of(Span.REPORT, {kind: 1}, delta) for kind in kinds]
    of_run = [Guarantee.of(Span.RUN, account, delta, fixed=False) for account in accounts]
    of_life = [Guarantee.of(Span.LIFE, account, delta) for account in accounts_for_life]
    return OfClass(report=_worst(of_reports), run=_worst(of_run), life=_worst(of_life))


def _worst(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Return the guarantee with the largest epsilon."""
    return max(guarantees, key=lambda guarantee: guarantee.bounds.epsilon)


def _flat(classes: Sequence[OfClass]) -> list[Guarantee]:
    """Return the guarantees of each class in turn: of a report, of the run, and for life."""
    flat = []
    for of_class in classes:
        flat += [of_class.report, of_class.run, of_class.life]
    return flat


def _most_reports(accounts: Sequence[ReportCounts]) -> int | None:
    """The most reports of one device; None where there are none."""
    return max((sum(account.values()) for account in accounts), default=None)


def _not_real(kind: Fleet) -> str:
    """Why no person's data is in a fleet of this kind, or an empty text."""
    if kind.simulated:
        return _SIMULATED
    if kind.provisions:
        return _MADE
    return ""


def _not_real_in(runs: Sequence[StoredRun]) -> str:
    """Why no person's data is in some runs of a store, or an empty text."""
    reasons = [_not_real(fleet.parse(run.asked["fleet"])) for run in runs]
    texts = sorted(set(reasons) - {""})
    if not texts or all(reasons):
        return " ".join(texts)
    return f"Some runs of this store had no devices of other people. {' '.join(texts)}"


def _not_real_boards(store: Store) -> str:
    """Why no person's data is on the boards of a store, or an empty text."""
    for board in store.boards():
        if _is_emulated(board.hello.get("text")):
            return _EMULATED
    return ""


def _is_emulated(text: str | None) -> bool:
    """Whether the text of a HELLO is that of an emulated board."""
    return text is not None and "emulated" in text.split()


def _held(learning: Mapping[str, Any], device: int | None, features: Sequence[str]) -> Held:
    """Describe what devices hold. learning: the options of a learner, by name.

    device: one of them, as an example. features: the names of some.
    """
    data = ""  # a learner with a dimension learns from records that the host does not know
    if not learning.get("dimension"):
        data = str(learning.get("dataset") or "")
    return Held(device, learning.get("records"), data, features)


def _features_in_result(directory: Path) -> Sequence[str]:
    """Return the names of a few features in the result of a run; none if it names none.

    directory: of the run. Its result may not be there yet.
    """
    with suppress(OSError, ValueError):
        result = json.loads((directory / run_directory.RESULT_NAME).read_text())
        names = result.get("features")
        if not isinstance(names, list):  # an inference has their number alone
            names = [attribute["name"] for attribute in result.get("attributes", ())]
        return _some_features(str(name) for name in names)
    return ()


def _some_features(names: Iterable[str]) -> list[str]:
    """Return the first few names, without that of the constant."""
    return [name for name in names if name != CONSTANT][:_MOST_NAMES]


def _some_device(disclosures: Disclosures) -> int | None:
    """The first device that has reported; None where none has."""
    devices = disclosures.devices
    if not len(devices):
        return None
    return int(devices[0])


def _reported_in(store: Store, simulated: bool, run: str | None = None) -> list[Reported]:
    """Return the kinds of reports that the rounds of a store asked for, each once.

    run: only of the rounds of the run with this name.
    """
    kinds: dict[tuple[bytes, int], Reported] = {}
    for round_ in store.rounds(simulated):
        if run is not None and round_.run != run:
            continue
        for cohort in round_.cohorts:
            request = decode_body(cohort.body)
            card, values = bytes(request.card), int(request.k)
            if (card, values) not in kinds:
                kinds[card, values] = _reported(card, values)
    return list(kinds.values())


def _reported(card: bytes, values: int) -> Reported:
    """Describe a report with so many values, each drawn by the card."""
    symbols = cards.decode(card).symbols
    return Reported(card, values, report_bytes(frames.packed_size(symbols, values)))


def bounds_of_all_records(
    accounts: Sequence[ReportCounts], unit: int, records: int | None, delta: float
) -> Bounds | None:
    """Return the worst bounds for all records of a device together.

    accounts: the reports of each device. unit: how many consecutive records are protected; 0: the
    device. records: the most that a device holds; None: not known. Returns None if the device is
    protected already, or if records or accounts are missing.
    """
    if not unit or not records or not accounts:
        return None
    # The records lie in so many runs of `unit` records; the first and the last may be cut.
    runs = min(records, (records - 1) // unit + 2)
    bounds = [Bounds.of(for_steps(account, REPLACED * runs), delta) for account in accounts]
    return max(bounds, key=lambda bound: bound.epsilon)


def _parts(store: Store, kind: Fleet, options: RunOptions) -> list[StatementPart]:
    """What extensions say about the rounds of the store."""
    return [extension.statement_part(store, kind, options) for extension in EXTENSIONS.available()]


def _reason_of(parts: Sequence[StatementPart]) -> str:
    """Why no person's data is in it, by the first extension that knows a reason."""
    for part in parts:
        if part.not_real:
            return part.not_real
    return ""


def _about_run(run: StoredRun, files: RunFiles, options: RunOptions) -> dict[str, str]:
    """Return what identifies a run, for the table of particulars."""
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
    return {
        "run": run.name,
        "began": began,
        "status": status_now(run.status, files.store),
        "rounds": f"{run.state['rounds']:,}, with {run.state['reports']:,} reports",
        "store": str(files.store),
        **_about_options(options),
    }


def _about_options(options: RunOptions) -> dict[str, str]:
    """Return the fleet, the algorithm and the given options of a run, as texts."""
    learning = []
    for name, value in vars(options.learning).items():
        if name != "card" and value not in (None, "", {}, []):
            learning.append(f"{name} {value}")
    return {
        "fleet": options.fleet,
        "algorithm": options.algorithm,
        "options": ", ".join(learning),
    }


# Budgets


def _budgets_of_run(
    store: Store, kind: Fleet, options: RunOptions, accounts: Sequence[ReportCounts]
) -> list[Guarantee]:
    """Return the guarantees of the budgets for life that hold in a run.

    They are what boards report, or the run's --budget if its clients are simulated. accounts: how
    many reports of each kind every device of the run has made.
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
    """Return the guarantees of the largest budgets for life that a store's boards report."""
    budgets = set()  # (amount, measure, unit)
    for board in store.boards():
        left, spent = board.hello.get("budget"), board.hello.get("spent")
        budgets.add((int(left or 0) + int(spent or 0), board.measure, board.unit))
    for extension in store.extensions():
        for budget in extension.budgets(store):
            if budget.unit is not None:
                budgets.add((budget.left + budget.spent, budget.measure, budget.unit))

    allowed = []
    for amount, measure, unit in budgets:
        if amount:
            allowed.append(Guarantee.of_budget(amount, measure, unit, delta))
    return _largest(allowed)


def _largest(budgets: Iterable[Guarantee]) -> list[Guarantee]:
    """The few largest budgets, in descending order."""
    descending = sorted(budgets, key=lambda budget: -budget.bounds.epsilon)
    return descending[:_MOST_BUDGETS]


# A store


def of_store(path: Path) -> Facts:
    """Collect the facts of all runs of a store. Raises TernError."""
    with Store(path, create=False, beside=True) as store:
        runs = store.runs()
        boards = store.boards()
        simulated = bool(runs) and all(run.asked.get("simulated") for run in runs)
        disclosures = costs.asked_disclosures(store, simulated)
        device = _some_device(disclosures)
        if not simulated:
            disclosures = _with_payments(store, disclosures)
        accounts = disclosures.report_counts()
        unit = _unit_of(accounts, [board.unit for board in boards])

        life = []
        if accounts:
            life = [_worst(Guarantee.of(Span.LIFE, account, _DELTA) for account in accounts)]

        # What devices hold and how they are reached is taken from the last run.
        link = ""
        learning: dict[str, Any] = {}
        parts: list[StatementPart] = []
        if runs:
            last_run = runs[-1].asked
            kind = fleet.parse(last_run["fleet"])
            link = kind.word
            learning = last_run["learning"]
            parts = _parts(store, kind, RunOptions.stored(last_run))
        return Facts(
            kind=Kind.STORE,
            name=path.name,
            made=time.time(),
            unit=unit,
            delta=_DELTA,
            held=_held(learning, device, ()),
            promised=life,
            budgets=_budgets_of_store(store),
            parts=parts,
            link=link,
            not_real=_not_real_in(runs) or _reason_of(parts) or _not_real_boards(store),
            reported=_reported_in(store, simulated),
            most_reports=_most_reports(accounts),
            together=bounds_of_all_records(accounts, unit, learning.get("records"), _DELTA),
            about={
                "store": str(path),
                "runs": ", ".join(run.name for run in runs) or "none",
                "boards": f"{len(boards):,} that ever connected",
                "devices": f"{store.device_count():,} with a key",
            },
        )


def _with_payments(store: Store, disclosures: Disclosures) -> Disclosures:
    """Add to the disclosures of a store's rounds what its boards have paid beyond them."""
    budgets = []
    for board in store.boards():
        if board.paid is None:
            continue
        budget = BoardBudget(
            devices=range(board.first, board.first + board.clients),
            count=board.clients,
            measure=board.measure,
            left=board.budget_left or 0,
            spent=board.paid,
            first=board.first,
        )
        budgets.append(budget)

    unknown = payments.unknown_payments(store, budgets, disclosures)
    rows = [vars(payment) for payment in unknown]
    device_ids = [disclosures.devices, *(integers(budget.devices) for budget in budgets)]
    devices = np.unique(np.concatenate(device_ids))
    unit = _unit_of(disclosures.report_counts())
    return payments.with_payments(disclosures, rows, devices, unit)


def _unit_of(accounts: Sequence[ReportCounts], boards: Sequence[int] = ()) -> int:
    """Return the shortest run of records that reports protect; 0 if they protect devices.

    accounts: the reports of each device. boards: the units of boards, which count if there are no
    reports.
    """
    units = [report.unit for account in accounts for report in account]
    if not units:
        units = list(boards)
    lengths_of_runs = [unit for unit in units if unit != DEVICE]
    return min(lengths_of_runs, default=DEVICE)


# A plan


def of_plan(options: RunOptions, store: Path | None, words: Sequence[str]) -> Facts:
    """Collect the facts of a run that has not begun.

    options: of the run. store: its path, if it is given. words: the command line. Raises TernError
    as the run would.
    """
    plan = begin.plan_run(options, store)
    options, learner, disclosures = plan.options, plan.learner, plan.disclosures
    kind = fleet.parse(options.fleet)
    delta = float(options.delta)
    records = getattr(learner.options, "records", None)
    accounts = [design.report_counts(learner.times) for design in learner.designs]
    endless = learner.rounds is None and not learner.once

    classes = guarantees.of_classes(learner, disclosures, disclosures.devices, delta)
    if endless:  # only a report has a guarantee that does not depend on the number of rounds
        promised = [of_class.report for of_class in classes]
        most_reports = together = None
    else:
        promised = _flat(classes)
        most_reports = learner.times
        together = bounds_of_all_records(accounts, learner.unit, records, delta)
    device = 1
    if disclosures:
        device = int(disclosures.devices[0])
    command = f"tern {' '.join(words)}"
    return Facts(
        kind=Kind.PLAN,
        name=command,
        made=time.time(),
        unit=learner.unit,
        delta=delta,
        held=_held(vars(learner.options), device, _features_of(learner)),
        promised=promised,
        budgets=_planned_budgets(options, store, learner),
        parts=plan.statement_parts,
        link=kind.word,
        not_real=_not_real(kind),
        reported=[_reported(design.card.data, design.k) for design in learner.designs],
        most_reports=most_reports,
        endless=endless,
        together=together,
        results=learner.command == "infer",
        about={"command": command, **_about_options(options)},
    )


def _planned_budgets(options: RunOptions, store: Path | None, learner: Learner) -> list[Guarantee]:
    """Return the guarantees of the budgets for life that will hold in a run.

    Boards that are made for the run get budgets for it, and simulated clients have that of the run.
    Other boards have those that they last reported. store: the path of the run's store, if given.
    """
    kind = fleet.parse(options.fleet)
    delta = float(options.delta)
    budget = costs.ledger_budget(learner, options.budget_micro)
    if budget is not None and (kind.simulated or kind.provisions):
        return [Guarantee.of_budget(budget, costs.measure(learner), learner.unit, delta)]
    if kind.provisions:
        # Without --budget, boards that are made for a run get what it costs.
        budgets = []
        for design, cost in zip(learner.designs, costs.costs(learner), strict=True):
            budget = max(design.policy.budget, cost)
            measure = design.policy.measure
            budgets.append(Guarantee.of_budget(budget, measure, learner.unit, delta))
        return _largest(budgets)
    path = store or kind.default_store
    if path is None or not path.is_file():
        return []
    with Store(path, create=False, beside=True) as opened:
        return _budgets_of_store(opened)


def _features_of(learner: Learner) -> Sequence[str]:
    """Return the names of a few features of a learner's data set; none if it has no data set."""
    name = getattr(learner.options, "dataset", None)
    if not name or getattr(learner.options, "dimension", None):
        return ()
    with suppress(TernError):
        return _some_features(datasets.load(name).feature_names)
    return ()


# A board


def of_board(name: str) -> Facts:
    """Collect the facts that a board reports itself.

    name: of the board, as `--fleet port:NAME` takes it. Raises TernError.
    """
    hello = _hello_of(name)
    measure = hello.measure or 0
    unit = hello.unit or 0
    left = hello.budget or 0
    spent = hello.spent or 0
    total = left + spent
    if not total:
        text = "the board cannot read its ledger, or it is not provisioned"
        raise UsageError(text, hint=f"see: tern device info {name}")

    life = []
    if spent:
        life = [Guarantee.of_budget(spent, measure, unit, _DELTA, Span.LIFE)]
    first = hello.first or 0
    clients = hello.clients or 0
    devices = f"{first}"
    if clients != 1:
        devices = f"{first} to {first + clients - 1}"
    measure_name = MEASURES[measure]
    not_real = ""
    if _is_emulated(hello.text):
        not_real = _EMULATED
    entropy = "passed its tests"
    if hello.entropy == wire.FAILED:
        entropy = "failed"
    return Facts(
        kind=Kind.BOARD,
        name=name,
        made=time.time(),
        unit=unit,
        delta=_DELTA,
        held=Held(first, hello.records or None),
        promised=life,
        budgets=[Guarantee.of_budget(total, measure, unit, _DELTA)],
        link="port",
        not_real=not_real,
        about={
            "board": str(hello.text),
            "devices": devices,
            "ledger": f"{left / MICRO:g} of {total / MICRO:g} left, in {measure_name}",
            "wire schema": hello.schema.hex(),
            "entropy": entropy,
        },
    )


def _hello_of(name: str) -> Hello:
    """Connect to the only board of this name and return its greeting. Raises TernError."""
    with fleet.parse(f"port:{name}").boards(()) as boards:
        port, *others = boards.ports
        if others:
            raise UsageError(f"{name} are several boards", hint="name one of them")
        with closing(open_link(port, SimpleQueue())) as link:
            return link.hello()
