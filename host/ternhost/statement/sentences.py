"""What a privacy statement says: sentences and tables, each with the evidence behind it.

Every number comes from the facts, and every guarantee from `ternhost.privacy.guarantee`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tern import card as cards
from tern import frames, wire
from ternhost.count.questions import report_bytes
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.guarantee import Bounds, Guarantee, Span, believed, rounded
from ternhost.privacy.units import DEVICE, protected
from ternhost.reach import fleet
from ternhost.statement.evidence import Key
from ternhost.statement.facts import Facts, Kind, ReportFormat
from ternhost.text import counted

HOW_WELL = "How well"
PRIORS = (0.5, 0.1, 0.01)  # what an observer believes before the reports, as probabilities
_MOST_FACTOR = 1_000_000  # a larger factor of odds is not written as a number
_NOTHING = 10  # from this epsilon on, the statement says that nothing is promised
_MOST_ATTRIBUTES = 6  # names of what a run collects
_MOST_HASHES = 3  # hashes of cards in a row of the table
_LONGEST_TEXT = 255  # bytes of the text in a HELLO, a board's greeting
_HELLO_FIELDS = 14  # fields of a HELLO before its text
SPANS = {
    Span.REPORT: "one report",
    Span.RUN: "this run",
    Span.LIFE: "all runs so far",
    Span.BUDGET: "the budget for life",
}
_SIMULATED = "simulated"  # the word of a fleet
_ALREADY_PAID = "what was paid so far"


@dataclass(frozen=True)
class Sentence:
    """A sentence, or a few that belong together, with the keys of the evidence behind them."""

    text: str
    keys: tuple[str, ...]  # each a Key, or a key of an extension


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings, with the keys of the evidence behind them."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """The sentences and tables under one heading of the statement."""

    title: str
    parts: Sequence[Sentence | Table]


def sections(facts: Facts) -> list[Section]:
    """Return the sections of the statement, in order.

    The list of the evidence, which ends the page, is not among them: `page` writes it.
    """
    return [
        Section("In short", list(_in_short(facts))),
        Section("What is protected", list(_what(facts))),
        Section("Against whom", list(_against_whom(facts))),
        Section(HOW_WELL, list(_how_well(facts))),
        Section("What leaves a device", list(_leaves(facts))),
        Section("What is not protected", list(_not_protected(facts))),
        Section("Particulars", list(_particulars(facts))),
    ]


# In short


def _in_short(facts: Facts) -> Iterable[Sentence]:
    """Yield the summary: the weakest guarantee for each span of time, and what they do not cover.

    It also says if nobody's real data is in it, if there are no guarantees at all, and what limits
    a run that goes on without end.
    """
    if facts.why_not_real:
        yield Sentence(facts.why_not_real, (Key.FACT, Key.SEED))
    for guarantee in _worst_of_each_span(facts):
        text = f"{_capital(guarantee.words())}, against {guarantee.against}."
        yield Sentence(text, _evidence_of(guarantee))
    if not facts.promised and not facts.budgets:
        text = "No report with a guarantee was asked for so far, and no budget is known."
        yield Sentence(text, (Key.FACT,))
    if facts.is_endless:
        limit = "What bounds its cost is the budget of each device."
        if facts.fleet_kind == _SIMULATED and not facts.budgets:
            limit = "Nothing bounds its cost, since simulated clients have no budget."
        text = f"The run has no end, and each round costs more. {limit}"
        yield Sentence(text, (Key.FACT, Key.LEDGER))


def _worst_of_each_span(facts: Facts) -> list[Guarantee]:
    """Return the guarantee with the largest epsilon of the run, of all runs, and of the budgets.

    The one of all runs is left out where it has the same bounds as that of the run, because no
    other run came before.
    """
    worst: dict[Span, Guarantee] = {}
    for guarantee in (*facts.promised, *facts.budgets):
        span = guarantee.span
        if span not in worst or guarantee.bounds.epsilon > worst[span].bounds.epsilon:
            worst[span] = guarantee

    run = worst.get(Span.RUN)
    life = worst.get(Span.LIFE)
    if run is not None and life is not None and run.bounds == life.bounds:
        del worst[Span.LIFE]
    return [worst[span] for span in (Span.RUN, Span.LIFE, Span.BUDGET) if span in worst]


def _evidence_of(guarantee: Guarantee) -> tuple[Key, ...]:
    """Return the keys of the evidence behind a guarantee's numbers."""
    keys = [Key.NEIGHBOURS, Key.CARD]
    if guarantee.span != Span.REPORT:  # it is about several reports
        keys.append(Key.COMPOSITION)
    has_gaussian_noise = guarantee.bounds.pure is None
    if has_gaussian_noise and guarantee.span != Span.BUDGET:
        keys.append(Key.GAUSSIAN)
    if guarantee.span == Span.BUDGET:
        keys.append(Key.LEDGER)
    if guarantee.span == Span.LIFE:
        keys.append(Key.PAYMENTS)
    return tuple(keys)


# What is protected


def _what(facts: Facts) -> Iterable[Sentence]:
    """Yield what the guarantees protect, which is a device or a run of records, with an example."""
    keys = (Key.NEIGHBOURS,)
    if facts.unit == DEVICE:
        yield Sentence(
            "Protected is a device with all of its records: what they are, and how many it ever holds. The reports are "
            "compared with those that the same device would have sent with any other records, or with none.",
            keys,
        )
    else:
        yield Sentence(
            f"Protected is {protected(facts.unit)}. There are two questions about it, and two numbers: whether it was "
            "there at all, and, less well, what it says. The reports are compared with those that the device would "
            "have sent without it, or with other content in its place; all its other records stay as they are.",
            keys,
        )
    yield Sentence(_example(facts), (*keys, Key.FACT))
    if facts.reports_answers:
        yield Sentence(
            "A report is the answer of a model about the records of a device, with noise. The records themselves are "
            "not sent.",
            (Key.LEAVES, Key.FACT),
        )
    if facts.collects:
        yield Sentence(
            f"The run collects {facts.collects} of {_attributes(facts)}. A report tells a part of what is needed for "
            "that, with noise. The records themselves are not sent.",
            (Key.LEAVES, Key.FACT),
        )


def _attributes(facts: Facts) -> str:
    """Return the names of the first attributes that a run collects, as a part of a sentence."""
    names = [f"“{name}”" for name in facts.attributes[:_MOST_ATTRIBUTES]]
    if not names:
        return "what the records say"
    left_out = len(facts.attributes) - len(names)
    if left_out:
        return f"{', '.join(names)} and {left_out} more"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _example(facts: Facts) -> str:
    """Return an example of what a device holds, and of what its reports do not give away."""
    holdings = facts.holdings
    device = "a device"
    if holdings.device is not None:
        device = f"device {holdings.device}"

    # What it holds, such as "at most 64 records of flights, with features such as “delay”".
    records = "records of its own, which the host does not know"
    if holdings.data:
        records = f"records of {holdings.data}"
    if holdings.features:
        names = ", ".join(f"“{name}”" for name in holdings.features)
        records += f", with features such as {names}"
    if holdings.records:
        records = f"at most {holdings.records:,} {records}"

    # What nobody can tell.
    if facts.unit == DEVICE:
        secret = "them from those of entirely other records"
    elif facts.unit == 1:
        secret = "whether its first record was there"
    else:
        secret = f"whether its records 0 to {facts.unit - 1:,} were there"
    return (
        f"For example, {device} holds {records}. Whoever sees its reports cannot tell {secret}, "
        "but for the odds below."
    )


# Against whom


def _against_whom(facts: Facts) -> Iterable[Sentence]:
    """Yield against whom the guarantees hold, and under which conditions."""
    yield from _against_host(facts)
    if _some_number_needs_fixed_reports(facts):
        yield Sentence(
            "A number at a delta that sums up what was told so far has a condition: no run was chosen, repeated or "
            "ended by the results of earlier ones. Numbers without a delta need no such condition, nor do those of a "
            "budget, which was fixed before.",
            (Key.COMPOSITION,),
        )
    yield from _against_others(facts)


def _against_host(facts: Facts) -> Iterable[Sentence]:
    """Yield what holds against the host and whoever can send programs to boards.

    Where extensions put an intermediary between the host and the devices, they say what that means.
    """
    sentences_of_extensions: list[Sentence] = []
    for part in facts.parts:
        sentences_of_extensions += part.against
    yield from sentences_of_extensions
    if not sentences_of_extensions:
        yield Sentence(
            "The host sees each report and knows which device sent it. The numbers below hold against its questions, "
            "and against everybody who reads the reports in its store.",
            (Key.HOST, Key.CARD, Key.COMPOSITION),
        )
        yield Sentence(
            "The owner of the server is the host: nobody stands between it and the devices.",
            (Key.FACT,),
        )
    yield Sentence(
        "A board whose program accepts updates (tern.update) runs whatever program the holder of the host's store, or "
        "of a site's, sends it. Against that person nothing on this page holds. Either trust them, or deploy boards "
        "without updates.",
        (Key.UPDATES,),
    )
    yield Sentence(
        "The numbers of a budget hold whatever the host asks, and however often. Those of a run are about the "
        "questions that it asked: it may choose its models by earlier answers, but not how much noise a report has.",
        (Key.HOST, Key.LEDGER, Key.COMPOSITION),
    )


def _against_others(facts: Facts) -> Iterable[Sentence]:
    """Yield what holds against those who listen on the network or hold a board."""
    transport = ""  # a sentence on how reports reach the host
    if facts.fleet_kind in fleet.KINDS:
        transport = fleet.KINDS[facts.fleet_kind].way
    yield Sentence(
        f"{transport} Who listens on the network sees at most what the host sees, so the same numbers hold. It also "
        "sees when a device sends, and how many bytes. Nobody can answer for a device without its key, or ask it "
        "without its key or that of the fleet. Every board has the key of the fleet, unless it has --own-key-only. "
        "What the thief of such a key asks is paid from the same budget.".strip(),
        (Key.LEAVES, Key.FORGERY, Key.HOST),
    )
    yield Sentence(
        "Nothing protects the records from whoever holds the board. They lie in its flash, unencrypted, as does its "
        "key. A locked board gives nobody its console, but its flash can still be read with tools.",
        (Key.LOCK,),
    )
    yield Sentence(
        "Whoever can write an old copy of the flash back makes the device forget what it has paid, and can ask it "
        "again. Only a board whose ledger is bound to a counter of its chip refuses that.",
        (Key.COPIES,),
    )


def _some_number_needs_fixed_reports(facts: Facts) -> bool:
    """Whether a number holds only if its reports were fixed beforehand, and they were not."""
    guarantees = shown(facts)
    for part in facts.parts:
        guarantees += part.guarantees
    return any(guarantee.needs_fixed and not guarantee.fixed for guarantee in guarantees)


# How well


def _how_well(facts: Facts) -> Iterable[Sentence | Table]:
    """Yield the table of the guarantees' numbers, and sentences on what they mean."""
    guarantees = shown(facts)
    rows: list[tuple[str, ...]] = []
    for guarantee in guarantees:
        rows += _rows(guarantee, facts)
    if not rows:
        yield Sentence("No epsilon is known.", (Key.FACT,))
        return

    belief_headings = [f"belief of {100 * prior:g} % becomes at most" for prior in PRIORS]
    head = ("about", "question", "epsilon", "odds change by at most", *belief_headings)
    yield Table(head, rows, (Key.CARD, Key.COMPOSITION, Key.ODDS))
    yield Sentence(
        "Epsilon limits what anybody can learn. Somebody who believed something about what is protected has other "
        "odds after seeing the reports, but by no more than the factor in the table; where a delta is named, only "
        "rarely by more. The last columns say the same of a belief of 50 %, 10 % and 1 %. All numbers are rounded up.",
        (Key.ODDS,),
    )
    yield from _about_delta(facts)

    counts_all_runs = any(guarantee.span == Span.LIFE for guarantee in guarantees)
    if counts_all_runs and facts.kind != Kind.BOARD:
        yield Sentence(
            "The figure for all runs so far counts every round of this store, and what the boards say that they have "
            "paid beyond it.",
            (Key.COMPOSITION, Key.PAYMENTS),
        )
    if facts.unheard_boards:
        yield Sentence(
            f"This store was restored from a copy, and {counted(facts.unheard_boards, 'board')} did not connect since. "
            "What their devices have spent after the copy was made is unknown: the figures do not count it.",
            (Key.FACT, Key.PAYMENTS),
        )
    yield from _enforced(facts)
    if any(guarantee.bounds.epsilon >= _NOTHING for guarantee in guarantees):
        yield Sentence(
            f"An epsilon of {_NOTHING} or more promises nothing against an observer who suspects something: see "
            "the table.",
            (Key.ODDS,),
        )


def shown(facts: Facts) -> list[Guarantee]:
    """Return the guarantees for the table: those of reports, runs and lives, then of the budgets.

    `facts.promised` has, for each class of devices, guarantees of a report, of the run, and of the
    device's life, in this order. That of the life is left out where it has the same bounds as that
    of the run, because the device took part in no other run.
    """
    guarantees: list[Guarantee] = []
    run = None  # of the class of devices that comes now; the guarantee for life follows it
    for guarantee in facts.promised:
        if guarantee.span == Span.RUN:
            run = guarantee
        repeats_run = (
            guarantee.span == Span.LIFE and run is not None and run.bounds == guarantee.bounds
        )
        if not repeats_run:
            guarantees.append(guarantee)
    return [*guarantees, *facts.budgets]


def _rows(guarantee: Guarantee, facts: Facts) -> Iterable[tuple[str, ...]]:
    """Yield the table's rows for a guarantee: one for each question and each epsilon.

    A question is what an observer may want to know of a device or of a run of records, such as
    "whether the record was there". It has an epsilon without a delta, or with one, or both.
    """
    about = SPANS[guarantee.span]
    if facts.kind == Kind.BOARD and guarantee.span == Span.LIFE:
        about = _ALREADY_PAID  # a board knows nothing of runs
    if guarantee.share < 1:  # other devices have another guarantee
        about += f", {100 * guarantee.share:.3g} % of the devices"
    if guarantee.unit == DEVICE:
        yield from _rows_of_question(about, "what its records are", guarantee.bounds)
        return

    run = f"the run of {guarantee.unit:,} records"
    if guarantee.unit == 1:
        run = "the record"
    yield from _rows_of_question(about, f"whether {run} was there", guarantee.bounds)
    if guarantee.content is not None:
        yield from _rows_of_question(about, f"what {run} says", guarantee.content)
    if guarantee.event is not None:
        question = "an event that changes two of them"
        yield from _rows_of_question(about, question, guarantee.event)


def _rows_of_question(about: str, question: str, bounds: Bounds) -> Iterable[tuple[str, ...]]:
    """Yield the rows for one question: its first two cells, then those of `numbers`."""
    for cells in numbers(bounds):
        yield about, question, *cells


def numbers(bounds: Bounds) -> Iterable[tuple[str, ...]]:
    """Yield cells for the epsilon at delta 0, and others for the smaller epsilon at a delta.

    Each has the epsilon, the factor by which odds change at most, and what each belief of PRIORS
    becomes at most. The first is missing if there is no epsilon at delta 0, as for Gaussian noise;
    the second is missing if it is not smaller than the first.
    """
    if bounds.pure is not None:
        yield rounded(bounds.pure), *_odds(bounds.pure)
    if bounds.epsilon != bounds.pure:
        yield f"{rounded(bounds.epsilon)} at delta {bounds.delta:g}", *_odds(bounds.epsilon)


def _odds(epsilon: float) -> tuple[str, ...]:
    """Return the factor by which odds change at most, and what each belief of PRIORS becomes."""
    beliefs = [_percent(believed(prior, epsilon)) for prior in PRIORS]
    return _factor(epsilon), *beliefs


def _percent(belief: float) -> str:
    """Return a belief in percent, rounded up; never 100 %, since nobody becomes quite certain."""
    percent = rounded(100 * belief)
    if percent == "100":
        return "almost 100 %"
    return f"{percent} %"


def _factor(epsilon: float) -> str:
    """Return the factor exp(epsilon) in words, such as "2.72 times"."""
    if epsilon > math.log(_MOST_FACTOR):
        return f"more than {_MOST_FACTOR:,} times"
    return f"{rounded(math.exp(epsilon))} times"


def _about_delta(facts: Facts) -> Iterable[Sentence]:
    """Yield a sentence on the meaning of delta, if a number of the table holds only at a delta."""
    bounds_at_delta: list[Bounds] = []
    for guarantee in shown(facts):
        for bounds in (guarantee.bounds, guarantee.content, guarantee.event):
            if bounds is not None and bounds.epsilon != bounds.pure:
                bounds_at_delta.append(bounds)
    if not bounds_at_delta:
        return

    text = (
        f"Where a delta of {facts.delta:g} is named, nothing that can be seen is more than e^epsilon times as likely "
        "for one of two data sets as for the other, plus delta. Odds may change by more than the factor, but rarely"
    )
    # How likely odds change by more, where it is known.
    probabilities = [bounds.exceeded for bounds in bounds_at_delta if bounds.exceeded is not None]
    if probabilities:
        largest = rounded_small(max(probabilities))
        text += f": with a probability of at most {largest}, for the numbers of the table"
    yield Sentence(f"{text}.", (Key.GAUSSIAN, Key.COMPOSITION))


def rounded_small(probability: float) -> str:
    """Return a small probability with two digits, rounded up, such as 1.3e-05."""
    exponent = math.floor(math.log10(probability)) - 1  # of the second digit
    # What the division adds by rounding must not raise the digits by one.
    digits = math.ceil(probability / 10**exponent - 1e-9)
    return f"{digits * 10.0**exponent:.2g}"


def _enforced(facts: Facts) -> Iterable[Sentence]:
    """Yield who enforces the budgets: each device, or the host for simulated clients."""
    if facts.fleet_kind == _SIMULATED:
        text = "Simulated clients have no ledgers and no budget that would end their reports."
        if facts.budgets:
            text = "Simulated clients have no ledgers: the host refuses runs of a store beyond --budget."
        yield Sentence(text, (Key.FACT,))
        return
    yield Sentence(
        "Each device enforces its budget for life itself. Before the device sends a report, it writes the cost "
        "into its ledger. It refuses a report that the budget does not cover. No question of a host can raise the "
        "budget.",
        (Key.LEDGER, Key.HOST),
    )
    if not facts.budgets:
        yield Sentence("The boards have not said yet what their budgets are.", (Key.FACT,))


# What leaves a device


def _leaves(facts: Facts) -> Iterable[Sentence | Table]:
    """Yield a table of all that leaves a device: when, how many bytes, and what it depends on.

    Sentences on records, the time of answers and the source of the noise follow.
    """
    how_often = "once for each question that asks the device"
    if facts.most_reports is not None and facts.kind in (Kind.RUN, Kind.PLAN):
        how_often += f": at most {counted(facts.most_reports, 'time')} in this run"
        if facts.is_endless:
            how_often += " so far"

    sizes = {report.size for report in facts.report_formats}
    if not sizes:
        # No report is known: it can be anything between the shortest and the longest frame.
        sizes = {report_bytes(1), wire.MAX_FRAME}
    report_size = f"{min(sizes):,}"
    if len(sizes) > 1:
        report_size += f" to {max(sizes):,}"
    shortest_hello = hello_bytes(text="")
    longest_hello = hello_bytes(text="x" * _LONGEST_TEXT)
    hello_size = f"{shortest_hello} to {longest_hello}"
    rows = [
        ("a report", how_often, report_size, "the device's records and its noise, as proved above"),
        ("a refusal", "instead of a report", f"{ERROR_BYTES}", _REFUSAL),
        ("a greeting", "when it connects, or is asked who it is", hello_size, _GREETING),
    ]
    yield Table(("what", "when", "bytes", "what it depends on"), rows, (Key.LEAVES, Key.FACT))
    yield Sentence(
        "No record, no key and nothing computed from records without noise leaves a device.",
        (Key.LEAVES,),
    )
    yield Sentence(
        "A device with a slot (--slot-ms, by default 500 ms or more) sends at moments that do not depend on "
        "its records. Without a slot, the time of its answer tells how much work it was, and so how many "
        "records it may have.",
        (Key.TIME,),
    )
    yield Sentence(
        "The noise is drawn on the device, by a generator that its hardware seeds.",
        (Key.RANDOMNESS,),
    )


_REFUSAL = (
    "a code and public amounts; on a board without a program also whether it has any record at all"
)
_GREETING = "its version, its budget, how often it restarted: nothing of its records"
ERROR_BYTES = 1 + 4 + 4 + 1 + 4 + wire.TAG_BYTES  # type, device, round, code, detail (wire.md)


def hello_bytes(text: str) -> int:
    """Return the length in bytes of a HELLO frame, a board's greeting, with this text."""
    # All other fields have a fixed length, so zeros will do.
    fields: list[Any] = [*[0] * _HELLO_FIELDS, text]
    return int(frames.encode_hello(bytearray(wire.MAX_FRAME), *fields))


# What is not protected


def _not_protected(facts: Facts) -> Iterable[Sentence]:
    """Yield what no guarantee covers."""
    if facts.unit != DEVICE:
        yield from _not_protected_by_runs(facts)
    if facts.has_computed_bounds:
        yield Sentence(
            "The schema of the data marks bounds or categories as computed from the records. They are not private: a "
            "bound may show the least or the largest value that somebody's device holds, and a category that somebody "
            "has it.",
            (Key.FACT, Key.DEFINITION),
        )
    if facts.shows_record_counts:
        yield Sentence(
            "About how many records a device has is not protected here: devices are asked by this number, and a "
            "question shows it up to a factor of two.",
            (Key.FACT, Key.DEFINITION),
        )
    yield Sentence(
        "A person behind several devices loses as much as these devices lose together.",
        (Key.COMPOSITION, Key.DEFINITION),
    )
    yield Sentence(
        "It is visible that a device takes part, when it is switched on, how often it is asked, and whether it "
        "answers.",
        (Key.DEFINITION, Key.LEAVES),
    )
    yield Sentence(
        "What can be learned about people in general is not protected. A model that works says something about "
        "everybody who is like its data, also about those who took no part.",
        (Key.DEFINITION,),
    )
    yield Sentence(
        "Rows that were named as public are public. If they are records of the same data, so are their labels, "
        "which may show how frequent each class is. A share of a class that was named is public, and so is a "
        "device's upper bound of the number of its records. It reveals nothing if it is the same for all devices.",
        (Key.DEFINITION, Key.LEAVES),
    )
    yield Sentence(
        "The current that a board draws, its heat and its radio emission are not protected, nor is what other programs "
        "on the board send.",
        (Key.LEAVES,),
    )
    yield Sentence(
        "A device that is erased and made anew under another id has a new budget. For the people whose data it holds, "
        "both budgets add up.",
        (Key.LEDGER, Key.COMPOSITION),
    )


def _not_protected_by_runs(facts: Facts) -> Iterable[Sentence]:
    """Yield what is not protected if guarantees are about runs of records, not about devices."""
    yield Sentence(
        "What many records of a device have in common is not protected: a habit shows in all of them.",
        (Key.GROUP, Key.DEFINITION),
    )
    if facts.all_records is not None:
        epsilon = facts.all_records.words
        text = f"All records that a device holds at one time, together: epsilon {epsilon}"
        if facts.all_records.epsilon >= _NOTHING:
            text += ", which promises nothing"
        yield Sentence(f"{text}.", (Key.GROUP, Key.COMPOSITION))
    yield Sentence(
        "How many records a device holds is not protected: the reports of a run together tell it roughly. Hidden "
        "is only whether there is one more or less of what is protected.",
        (Key.GROUP, Key.DEFINITION),
    )
    yield Sentence(
        "Hiding one of several records that say the same hides little. An event that changes two of what is "
        "protected has numbers of its own above.",
        (Key.GROUP, Key.DEFINITION),
    )


# Particulars


def _particulars(facts: Facts) -> Iterable[Sentence | Table]:
    """Yield a table of what identifies the run, store or board, and one of its reports' cards."""
    rows_of_particulars = list(facts.particulars.items())
    yield Table(("what", "value"), rows_of_particulars, (Key.FACT,))
    if facts.report_formats:
        head = (
            "certified for",
            "values in a report",
            "bytes of a report",
            "cards, by their hashes",
        )
        yield Table(head, list(_card_rows(facts.report_formats)), (Key.CARD,))


def _card_rows(formats: Sequence[ReportFormat]) -> Iterable[tuple[str, ...]]:
    """Yield the rows of the table of cards.

    A run can have very many cards that are certified for the same epsilon and differ only in the
    range of their values, so these share a row, which shows a few of their hashes. Its cells are
    what the cards are certified for, the number of values and of bytes of a report, and the hashes.
    """
    hashes_by_cells: dict[tuple[str, ...], list[str]] = {}
    cells: tuple[str, ...]
    for report in formats:
        cells = _certified(report.card), f"{report.values:,}", f"{report.size:,}"
        card_hash = cards.card_hash(report.card).hex()
        hashes_by_cells.setdefault(cells, []).append(card_hash)
    for cells, hashes in hashes_by_cells.items():
        text = ", ".join(hashes[:_MOST_HASHES])
        if len(hashes) > _MOST_HASHES:
            text += f", and {len(hashes) - _MOST_HASHES:,} more (all: --json)"
        yield *cells, text


def _certified(data: bytes) -> str:
    """Return in words what a card is certified for: its epsilon or rho, and of which values.

    data: the bytes of the card.
    """
    card = cards.decode(data)
    amount = rounded(card.epsilon / MICRO)
    if card.shape != cards.SUM:
        return f"epsilon {amount}"
    body = sums.of(card)
    measure = "rho" if body.norm == sums.L2 else "epsilon"  # Gaussian noise is measured in rho
    return f"{measure} {amount} for all values together, about {protected(body.unit)}"


def _capital(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
