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

from tern import card as cards
from tern import frames, wire
from tern.host_frames import Hello
from tern.ledger import EPSILON, RHO
from ternhost import datasets
from ternhost.count.disclosures import Disclosures, ReportCounts
from ternhost.count.members import distinct
from ternhost.count.questions import decode_body, report_bytes
from ternhost.datasets import on_devices
from ternhost.datasets.base import CONSTANT
from ternhost.datasets.schemas import findings
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
from ternhost.run.guarantees import ClassGuarantees
from ternhost.run.options import RunOptions
from ternhost.statement.facts import Facts, Holdings, Kind, ReportFormat
from ternhost.store.restored import unheard_boards
from ternhost.store.runs import StoredRun, status_now
from ternhost.store.store import Store

_DELTA = 1e-6  # for statements about boards and stores, for which nobody has named a delta
_MOST_BUDGETS = 3  # that a statement lists
_MOST_NAMES = 3  # names of features in the example
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
    """Collect the facts for the privacy statement of a run, from the store that the run writes to.

    The statement is a page for people whose devices take part: what is protected, and how well. The
    run must have asked some device already. Raises TernError.
    """
    with Store(files.store, create=False, beside=True) as store:
        run = _begun_run(store, files)
        options = RunOptions.stored(run.asked)
        fleet_of_run = fleet.parse(options.fleet)
        is_simulated = bool(run.asked.get("simulated"))
        delta = float(options.delta)
        learning = run.asked["learning"]  # the options of the learning algorithm, by name
        algorithm = ALGORITHMS.named(options.algorithm)

        # What devices have reported, and what guarantees they have.
        disclosures = costs.asked_disclosures(store, is_simulated, files.name)
        report_counts = disclosures.report_counts()  # of each device, by the kind of report
        is_endless = run.asked["schedule"] is not None
        classes = guarantees.classes_of(run.state)  # stored when the run began
        if is_endless and report_counts:
            # There may have been more rounds since then.
            classes = [_guarantees_so_far(store, report_counts, is_simulated, delta)]
        unit = DEVICE
        if classes:
            unit = classes[0].run.unit  # all classes of devices have the same

        parts = _parts_of_extensions(store, fleet_of_run, options)
        features = _features_in_result(files.directory)
        return Facts(
            # What the statement is about.
            kind=Kind.RUN,
            name=files.name,
            made=time.time(),
            unit=unit,
            delta=delta,
            # What devices hold, and how they are reached.
            holdings=_holdings(learning, _first_device(disclosures), features),
            fleet_kind=fleet_of_run.word,
            why_not_real=_why_run_not_real(store, fleet_of_run, parts),
            # How well it is protected.
            promised=_in_one_list(classes),
            unheard_boards=len(unheard_boards(store)),
            budgets=_budgets_of_run(store, fleet_of_run, options, report_counts),
            all_records=bounds_of_all_records(
                report_counts, unit=unit, records=learning.get("records"), delta=delta
            ),
            parts=parts,
            # What devices send, and why.
            report_formats=_report_formats(store, is_simulated, files.name),
            most_reports=_most_reports(report_counts),
            is_endless=is_endless,
            reports_answers=algorithm.command == "infer",
            collects=algorithm.collects,
            attributes=[entry["name"] for entry in run.state.get("estimates", ())],
            has_computed_bounds=_has_computed_bounds([run]),
            shows_record_counts=_shows_record_counts([run]),
            particulars=_particulars_of_run(run, files, options),
        )


def _has_computed_bounds(runs: Iterable[StoredRun]) -> bool:
    """Return whether the data of a run had bounds that were computed from the records."""
    for run in runs:
        for finding in run.asked.get("data_findings", ()):
            if finding["kind"] == findings.COMPUTED:
                return True
    return False


def _shows_record_counts(runs: Iterable[StoredRun]) -> bool:
    """Return whether the questions of a run differed by how many records a device has."""
    return any(run.asked["learning"].get("ask_by_records") for run in runs)


def _plans_computed_bounds(options: RunOptions) -> bool:
    """Return whether the data of a planned run have bounds that were computed from the records."""
    found = findings.of_run(options.learning.data, options.learning.selection)
    return any(finding.kind == findings.COMPUTED for finding in found)


def _begun_run(store: Store, files: RunFiles) -> StoredRun:
    """Return the stored run with the name of these files.

    Raises UsageError if the store does not hold it, or if it has asked no device yet: then there
    are no guarantees to state.
    """
    run = store.run(files.name)
    if run is None:
        text = f"{files.store} holds no run {files.name}"
        raise UsageError(text, hint="'tern runs' lists the runs")
    if run.state.get("guarantees") is None:
        text = f"the run {files.name} has asked no device yet"
        raise UsageError(text, hint="try again after its first round")
    return run


def _guarantees_so_far(
    store: Store, report_counts: Sequence[ReportCounts], is_simulated: bool, delta: float
) -> ClassGuarantees:
    """Return the guarantees for the device that has lost most privacy in the rounds so far.

    They are for one report, for the run, and for the device's life, which counts the rounds of all
    runs in the store.

    A guarantee says how much privacy is lost at most, and `fixed` whether the number of reports was
    fixed before the first one.

    report_counts: for each device of the run, how many reports of each kind it has made.
    is_simulated: whether the run's devices are simulated clients. delta: at which the guarantees
    hold.
    """
    of_reports = []
    for kind in set(itertools.chain(*report_counts)):
        of_reports.append(Guarantee.of(Span.REPORT, {kind: 1}, delta))
    of_run = []
    for counts in report_counts:
        of_run.append(Guarantee.of(Span.RUN, counts, delta, fixed=False))
    of_life = []
    for counts in costs.asked_disclosures(store, is_simulated).report_counts():
        of_life.append(Guarantee.of(Span.LIFE, counts, delta))
    return ClassGuarantees(
        report=_weakest(of_reports), run=_weakest(of_run), life=_weakest(of_life)
    )


def _weakest(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Return the guarantee with the largest epsilon."""
    return max(guarantees, key=lambda guarantee: guarantee.bounds.epsilon)


def _in_one_list(classes: Sequence[ClassGuarantees]) -> list[Guarantee]:
    """Return the guarantees of all classes of devices in one list.

    Each class has three: for one report, for all reports of the run, and for a device's life.
    """
    flat = []
    for of_class in classes:
        flat += [of_class.report, of_class.run, of_class.life]
    return flat


def _most_reports(report_counts: Sequence[ReportCounts]) -> int | None:
    """Return the number of reports of the device that made most; None if there are no devices."""
    totals = [sum(counts.values()) for counts in report_counts]
    return max(totals, default=None)


def _why_fleet_not_real(kind: Fleet) -> str:
    """Return why a fleet of this kind has no data of real people, or an empty text if it may."""
    if kind.simulated:
        return _SIMULATED
    if kind.provisions:
        return _MADE
    return ""


def _why_runs_not_real(runs: Sequence[StoredRun]) -> str:
    """Return why some runs have no data of real people, or an empty text if all may have some."""
    reasons = [_why_fleet_not_real(fleet.parse(run.asked["fleet"])) for run in runs]
    known_reasons = sorted(set(reasons) - {""})
    text = " ".join(known_reasons)
    some_may_be_real = "" in reasons
    if known_reasons and some_may_be_real:
        return f"Some runs of this store had no devices of other people. {text}"
    return text


def _why_boards_not_real(store: Store) -> str:
    """Return why the boards of a store have no data of real people, or an empty text."""
    for board in store.boards():
        if _is_emulated(board.hello.get("text")):
            return _EMULATED
    return ""


def _why_run_not_real(store: Store, kind: Fleet, parts: Sequence[StatementPart]) -> str:
    """Return why a run has no data of real people, by the first reason that is known, or "".

    kind: the run's fleet. parts: what extensions say about the rounds of the store.
    """
    reason = _why_fleet_not_real(kind)
    if not reason:
        reason = _reason_of_extensions(parts)
    if not reason:
        reason = _why_boards_not_real(store)
    return reason


def _is_emulated(text: str | None) -> bool:
    """Whether a board is emulated, by the text of its HELLO (the greeting when it connects)."""
    return text is not None and "emulated" in text.split()


def _holdings(learning: Mapping[str, Any], device: int | None, features: Sequence[str]) -> Holdings:
    """Describe what devices hold.

    learning: the options of a learner, by name. device: the number of one device, as an example.
    features: the names of a few features.
    """
    data = str(learning.get("data") or "")
    if on_devices.parse(data) is not None:  # the host does not know the records
        data = ""
    elif data:
        data = on_devices.in_words(data)
    return Holdings(device, learning.get("records"), data, features)


def _features_in_result(directory: Path) -> Sequence[str]:
    """Return the names of a few features from the result of a run; none if it names none.

    directory: the run's folder. Its result may not be there yet.
    """
    try:
        result = json.loads((directory / run_directory.RESULT_NAME).read_text())
    except (OSError, ValueError):
        return ()
    names = result.get("features")
    if not isinstance(names, list):  # the result of an inference has only their number
        names = [attribute["name"] for attribute in result.get("attributes", ())]
    return _first_features(str(name) for name in names)


def _first_features(names: Iterable[str]) -> list[str]:
    """Return the first few feature names, without that of the constant feature."""
    return [name for name in names if name != CONSTANT][:_MOST_NAMES]


def _first_device(disclosures: Disclosures) -> int | None:
    """Return the number of the first device that has reported; None if none has."""
    devices = disclosures.devices
    if not len(devices):
        return None
    return int(devices[0])


def _report_formats(store: Store, simulated: bool, run: str | None = None) -> list[ReportFormat]:
    """Return the formats of the reports that the rounds of a store asked for, each once.

    simulated: whether the rounds of simulated fleets are meant, or those of real ones. run: the
    name of the only run whose rounds count; None if those of all runs do.
    """
    # A format by the card, a table from which a device draws values, and their number in a report.
    formats: dict[tuple[bytes, int], ReportFormat] = {}
    for round_ in store.rounds(simulated):
        if run is not None and round_.run != run:
            continue
        for cohort in round_.cohorts:  # the devices that got the same request
            request = decode_body(cohort.body)
            card = bytes(request.card)
            values = int(request.k)
            if (card, values) not in formats:
                formats[card, values] = _report_format(card, values)
    return list(formats.values())


def _report_format(card: bytes, values: int) -> ReportFormat:
    """Return the format of reports with this many values, each drawn from the card."""
    symbols = cards.decode(card).symbols
    size = report_bytes(frames.packed_size(symbols, values))
    return ReportFormat(card=card, values=values, size=size)


def bounds_of_all_records(
    report_counts: Sequence[ReportCounts], unit: int, records: int | None, delta: float
) -> Bounds | None:
    """Return what is proved for all records of a device together, where only a few are the unit.

    That is group privacy: it compares data sets that differ in every record. The device that loses
    most counts.

    report_counts: for each device, how many reports of each kind it makes. unit: how many
    consecutive records are protected; 0: the whole device. records: the most that a device holds;
    None: not known. Returns None if the whole device is protected already, or if records or report
    counts are missing.
    """
    if not unit or not records or not report_counts:
        return None
    # All records lie in this many runs of `unit` records. The first and the last run may be cut, so
    # there is up to one run more than records / unit, rounded up.
    runs = min(records, (records - 1) // unit + 2)
    steps = REPLACED * runs  # in each step a run of records is taken out or put in
    bounds = [Bounds.of(for_steps(counts, steps), delta) for counts in report_counts]
    return max(bounds, key=lambda bound: bound.epsilon)  # the largest epsilon protects least


def _parts_of_extensions(store: Store, kind: Fleet, options: RunOptions) -> list[StatementPart]:
    """Return what each installed extension says about the rounds of the store."""
    return [extension.statement_part(store, kind, options) for extension in EXTENSIONS.available()]


def _reason_of_extensions(parts: Sequence[StatementPart]) -> str:
    """Return why there is no data of real people, by the first extension that knows a reason."""
    for part in parts:
        if part.not_real:
            return part.not_real
    return ""


def _particulars_of_run(run: StoredRun, files: RunFiles, options: RunOptions) -> dict[str, str]:
    """Return the rows that identify a run in the table of particulars, by their heading."""
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
    return {
        "run": run.name,
        "began": began,
        "status": status_now(run.status, files.store),
        "rounds": f"{run.state['rounds']:,}, with {run.state['reports']:,} reports",
        "store": str(files.store),
        **_particulars_of_options(options),
    }


def _particulars_of_options(options: RunOptions) -> dict[str, str]:
    """Return the fleet, the algorithm and the given options of a run, as rows of a table."""
    given = []
    for name, value in vars(options.learning).items():
        was_given = value not in (None, "", {}, [])
        # A card is given as hexadecimal digits; the statement describes it in a table of its own.
        if was_given and name != "card":
            given.append(f"{name} {value}")
    return {
        "fleet": options.fleet,
        "algorithm": options.algorithm,
        "options": ", ".join(given),
    }


# Budgets


def _budgets_of_run(
    store: Store, kind: Fleet, options: RunOptions, report_counts: Sequence[ReportCounts]
) -> list[Guarantee]:
    """Return what the budgets of a run's devices guarantee for life.

    Boards report their budgets to the store. Simulated clients have none but the run's --budget,
    which the user gave as an epsilon, in millionths.

    report_counts: for each device of the run, how many reports of each kind it has made.
    """
    delta = float(options.delta)
    if not kind.simulated:
        return _budgets_of_store(store, delta)
    if options.budget_micro is None:
        return []
    # A ledger counts rho, as of zCDP, if some report has Gaussian noise, and otherwise epsilon.
    kinds = set(itertools.chain(*report_counts))
    measure = RHO if any(report.gaussian for report in kinds) else EPSILON
    budget = costs.in_measure(options.budget_micro, measure, delta)
    return [Guarantee.of_budget(budget, measure, _protected_unit(report_counts), delta)]


def _budgets_of_store(store: Store, delta: float = _DELTA) -> list[Guarantee]:
    """Return what the largest budgets guarantee that the boards of a store have reported.

    A board reports a budget for life in its greeting (HELLO): what is left of it, and what it has
    spent. Extensions may know the budgets of boards that the host does not talk to itself.
    """
    # (amount, measure, unit): how much, of epsilon or of rho, and how many records it protects.
    budgets = set()
    for board in store.boards():
        left = int(board.hello.get("budget") or 0)
        spent = int(board.hello.get("spent") or 0)
        budgets.add((left + spent, board.measure, board.unit))
    for extension in store.extensions():
        for budget in extension.budgets(store):
            if budget.unit is not None:
                budgets.add((budget.left + budget.spent, budget.measure, budget.unit))

    guarantees_of_budgets = []
    for amount, measure, unit in budgets:
        if amount:
            guarantees_of_budgets.append(Guarantee.of_budget(amount, measure, unit, delta))
    return _largest(guarantees_of_budgets)


def _largest(budgets: Iterable[Guarantee]) -> list[Guarantee]:
    """Return the few largest budgets, in descending order."""
    descending = sorted(budgets, key=lambda budget: -budget.bounds.epsilon)
    return descending[:_MOST_BUDGETS]


# A store


def of_store(path: Path) -> Facts:
    """Collect the facts for a privacy statement about all runs of a store.

    A store is the host's file with keys, rounds and reports. Raises TernError.
    """
    with Store(path, create=False, beside=True) as store:
        runs = store.runs()
        boards = store.boards()

        # What devices have disclosed, in rounds and beyond what the store knows of.
        is_simulated = bool(runs) and all(run.asked.get("simulated") for run in runs)
        disclosures = costs.asked_disclosures(store, is_simulated)
        example_device = _first_device(disclosures)
        if not is_simulated:
            disclosures = _with_payments(store, disclosures)
        report_counts = disclosures.report_counts()  # of each device, by the kind of report

        unit = _protected_unit(report_counts, [board.unit for board in boards])
        life = []
        if report_counts:
            of_devices = [Guarantee.of(Span.LIFE, counts, _DELTA) for counts in report_counts]
            life = [_weakest(of_devices)]

        # What devices hold and how they are reached is taken from the last run.
        fleet_kind = ""
        learning: dict[str, Any] = {}
        parts: list[StatementPart] = []
        if runs:
            last_run = runs[-1].asked
            fleet_of_last_run = fleet.parse(last_run["fleet"])
            fleet_kind = fleet_of_last_run.word
            learning = last_run["learning"]
            parts = _parts_of_extensions(store, fleet_of_last_run, RunOptions.stored(last_run))
        return Facts(
            # What the statement is about.
            kind=Kind.STORE,
            name=path.name,
            made=time.time(),
            unit=unit,
            delta=_DELTA,
            # What devices hold, and how they are reached.
            holdings=_holdings(learning, example_device, features=()),
            fleet_kind=fleet_kind,
            why_not_real=_why_store_not_real(store, runs, parts),
            # How well it is protected.
            promised=life,
            budgets=_budgets_of_store(store),
            unheard_boards=len(unheard_boards(store)),
            all_records=bounds_of_all_records(
                report_counts, unit=unit, records=learning.get("records"), delta=_DELTA
            ),
            parts=parts,
            # What devices send.
            report_formats=_report_formats(store, is_simulated),
            most_reports=_most_reports(report_counts),
            has_computed_bounds=_has_computed_bounds(runs),
            shows_record_counts=_shows_record_counts(runs),
            particulars=_particulars_of_store(store, path),
        )


def _why_store_not_real(
    store: Store, runs: Sequence[StoredRun], parts: Sequence[StatementPart]
) -> str:
    """Return why a store has no data of real people, by the first reason that is known, or "".

    parts: what extensions say about the rounds of the store.
    """
    reason = _why_runs_not_real(runs)
    if not reason:
        reason = _reason_of_extensions(parts)
    if not reason:
        reason = _why_boards_not_real(store)
    return reason


def _particulars_of_store(store: Store, path: Path) -> dict[str, str]:
    """Return the rows that identify a store in the table of particulars, by their heading."""
    names_of_runs = ", ".join(run.name for run in store.runs())
    return {
        "store": str(path),
        "runs": names_of_runs or "none",
        "boards": f"{len(store.boards()):,} that ever connected",
        "devices": f"{store.device_count():,} with a key",
    }


def _with_payments(store: Store, disclosures: Disclosures) -> Disclosures:
    """Add to a store's disclosures what its boards have paid for reports to other hosts.

    A board's ledger counts what its devices have paid in total. Where that is more than the rounds
    of the store explain, another host must have asked them; what they paid then counts as
    disclosed, too.
    """
    budgets = []  # as the boards report them
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

    # What the rounds of the store do not explain.
    unknown = payments.unknown_payments(store, budgets, disclosures)
    rows = [vars(payment) for payment in unknown]
    all_devices = distinct([disclosures.devices, *(budget.devices for budget in budgets)])
    unit = _protected_unit(disclosures.report_counts())
    return payments.with_payments(disclosures, rows, all_devices, unit)


def _protected_unit(
    report_counts: Sequence[ReportCounts], units_of_boards: Sequence[int] = ()
) -> int:
    """Return how many consecutive records are protected: the fewest that any report protects.

    report_counts: for each device, its reports by kind. units_of_boards: what the ledgers of boards
    protect; they count if there are no reports. Returns 0 if reports protect whole devices.
    """
    units = [report.unit for counts in report_counts for report in counts]
    if not units:
        units = list(units_of_boards)
    lengths_of_runs = [unit for unit in units if unit != DEVICE]
    return min(lengths_of_runs, default=DEVICE)


# A plan


def of_plan(options: RunOptions, store: Path | None, words: Sequence[str]) -> Facts:
    """Collect the facts for the privacy statement of a run that has not begun.

    options: those of the run. store: the path of its store, if it is given. words: the command
    line, which the statement names. Raises TernError where the run itself would.
    """
    plan = begin.plan_run(options, store)
    options, learner, disclosures = plan.options, plan.learner, plan.disclosures
    fleet_of_run = fleet.parse(options.fleet)
    delta = float(options.delta)
    classes = guarantees.of_classes(learner, disclosures, disclosures.devices, delta)

    # Without a number of rounds, only a single report has a guarantee that will stay true.
    is_endless = learner.rounds is None and not learner.once
    if is_endless:
        promised = [of_class.report for of_class in classes]
        most_reports = None
        all_records = None
    else:
        promised = _in_one_list(classes)
        most_reports = learner.times
        all_records = bounds_of_all_records(
            [design.report_counts(learner.times) for design in learner.designs],
            unit=learner.unit,
            records=getattr(learner.options, "records", None),
            delta=delta,
        )

    example_device = 1
    if disclosures:
        example_device = int(disclosures.devices[0])
    command = f"tern {' '.join(words)}"
    return Facts(
        # What the statement is about.
        kind=Kind.PLAN,
        name=command,
        made=time.time(),
        unit=learner.unit,
        delta=delta,
        # What devices hold, and how they are reached.
        holdings=_holdings(vars(learner.options), example_device, _features_of(learner)),
        fleet_kind=fleet_of_run.word,
        why_not_real=_why_fleet_not_real(fleet_of_run),
        # How well it is protected.
        promised=promised,
        budgets=_planned_budgets(options, store, learner),
        all_records=all_records,
        parts=plan.statement_parts,
        # What devices send, and why.
        report_formats=[_report_format(design.card.data, design.k) for design in learner.designs],
        most_reports=most_reports,
        is_endless=is_endless,
        reports_answers=learner.command == "infer",
        collects=learner.collects,
        has_computed_bounds=_plans_computed_bounds(options),
        shows_record_counts=bool(getattr(learner.options, "ask_by_records", False)),
        particulars={"command": command, **_particulars_of_options(options)},
    )


def _planned_budgets(options: RunOptions, store: Path | None, learner: Learner) -> list[Guarantee]:
    """Return what the devices' budgets for life will guarantee in a run that has not begun.

    store: the path of the run's store, if it is given.
    """
    fleet_of_run = fleet.parse(options.fleet)
    delta = float(options.delta)

    # Simulated clients, and boards that the run itself makes, get the budget of --budget.
    budget = costs.ledger_budget(learner, options.budget_micro)
    if budget is not None and (fleet_of_run.simulated or fleet_of_run.provisions):
        return [Guarantee.of_budget(budget, costs.measure(learner), learner.unit, delta)]

    # Without --budget, boards that the run makes get at least what the run costs them. The classes
    # of devices have a design of reports, and so a cost, each.
    if fleet_of_run.provisions:
        budgets = []
        for design, cost in zip(learner.designs, costs.costs(learner), strict=True):
            budget = max(design.policy.budget, cost)
            measure = design.policy.measure
            budgets.append(Guarantee.of_budget(budget, measure, learner.unit, delta))
        return _largest(budgets)

    # Boards that exist already have the budget that they last reported to the store.
    path = store or fleet_of_run.default_store
    if path is None or not path.is_file():
        return []
    with Store(path, create=False, beside=True) as opened:
        return _budgets_of_store(opened)


def _features_of(learner: Learner) -> Sequence[str]:
    """Return the names of a few features of a learner's data set; none if it has no data set."""
    name = getattr(learner.options, "data", None)
    if not name or on_devices.parse(name) is not None:  # the host does not know the records
        return ()
    with suppress(TernError):
        return _first_features(datasets.load(name).feature_names)
    return ()


# A board


def of_board(name: str) -> Facts:
    """Collect the facts for the privacy statement of one board, from what it reports itself.

    name: the board's name, as in `--fleet port:NAME`. Raises TernError.
    """
    hello = _hello_of(name)  # its greeting, with what it says of itself
    measure = hello.measure or EPSILON  # what the board's ledger counts
    unit = hello.unit or DEVICE  # what it protects

    # The ledger: what is left of the budget for life, and what was spent.
    left = hello.budget or 0
    spent = hello.spent or 0
    budget = left + spent
    if not budget:
        text = "the board cannot read its ledger, or it is not provisioned"
        raise UsageError(text, hint=f"see 'tern board info {name}'")
    life = []
    if spent:
        life = [Guarantee.of_budget(spent, measure, unit, _DELTA, Span.LIFE)]

    why_not_real = ""
    if _is_emulated(hello.text):
        why_not_real = _EMULATED
    return Facts(
        # What the statement is about.
        kind=Kind.BOARD,
        name=name,
        made=time.time(),
        unit=unit,
        delta=_DELTA,
        holdings=Holdings(device=hello.first or 0, records=hello.records or None),
        fleet_kind="port",
        why_not_real=why_not_real,
        promised=life,
        budgets=[Guarantee.of_budget(budget, measure, unit, _DELTA)],
        particulars={
            "board": str(hello.text),
            "devices": _devices_of_board(hello),
            "ledger": f"{left / MICRO:g} of {budget / MICRO:g} left, in {MEASURES[measure]}",
            "wire schema": hello.schema.hex(),
            "entropy": "failed" if hello.entropy == wire.FAILED else "passed its tests",
        },
    )


def _devices_of_board(hello: Hello) -> str:
    """Return the number of a board's device, or the first and the last if it serves several."""
    first = hello.first or 0
    clients = hello.clients or 0
    if clients == 1:
        return f"{first}"
    return f"{first} to {first + clients - 1}"


def _hello_of(name: str) -> Hello:
    """Connect to the board with this name and return its greeting.

    Raises TernError, also if the name stands for several boards.
    """
    with fleet.parse(f"port:{name}").boards(()) as boards:
        port, *others = boards.ports
        if others:
            raise UsageError(f"{name} are several boards", hint="name one of them")
        with closing(open_link(port, SimpleQueue())) as link:
            return link.hello()
