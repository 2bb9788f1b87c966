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
from ternhost.statement.facts import Facts, Kind, Reported
from ternhost.text import counted

HOW_WELL = "How well"
PRIORS = (0.5, 0.1, 0.01)  # what an observer believes before the reports
_MOST_FACTOR = 1_000_000  # of odds, that is worth a number
_NOTHING = 10  # an epsilon from which on a statement should say that it protects nobody
_MOST_HASHES = 3
_LONGEST_TEXT = 255  # bytes, of a HELLO
_HELLO_FIELDS = 14  # before its text
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
    """A sentence, or a few that belong together."""

    text: str
    keys: tuple[str, ...]  # of the evidence: a Key, or one of an extension


@dataclass(frozen=True)
class Table:
    """Rows under a head."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading."""

    title: str
    parts: Sequence[Sentence | Table]


def sections(facts: Facts) -> list[Section]:
    """Return the sections of the statement, in order; the list of evidence is not among them."""
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
    """Yield the summary: the worst guarantee of each span, and what limits an endless run."""
    if facts.not_real:
        yield Sentence(facts.not_real, (Key.FACT, Key.SEED))
    for guarantee in _worst_of_each_span(facts):
        text = f"{_capital(guarantee.words())}, against {guarantee.against}."
        yield Sentence(text, _proofs(guarantee))
    if not facts.promised and not facts.budgets:
        yield Sentence(
            "No report with a guarantee was asked for so far, and no budget is known.", (Key.FACT,)
        )
    if facts.endless:
        limit = "What bounds its cost is the budget of each device."
        if facts.link == _SIMULATED and not facts.budgets:
            limit = "Nothing bounds its cost, since simulated clients have no budget."
        yield Sentence(
            f"The run has no end, and each round costs more. {limit}",
            (Key.FACT, Key.LEDGER),
        )


def _worst_of_each_span(facts: Facts) -> list[Guarantee]:
    """Return the worst guarantee of this run, of all runs so far, and of the budget.

    The one of all runs so far is left out if it is that of this run, since no run came before.
    """
    worst: dict[Span, Guarantee] = {}
    for guarantee in (*facts.promised, *facts.budgets):
        span = guarantee.span
        if span not in worst or guarantee.bounds.epsilon > worst[span].bounds.epsilon:
            worst[span] = guarantee

    run, life = worst.get(Span.RUN), worst.get(Span.LIFE)
    if run is not None and life is not None and run.bounds == life.bounds:
        del worst[Span.LIFE]
    return [worst[span] for span in (Span.RUN, Span.LIFE, Span.BUDGET) if span in worst]


def _proofs(guarantee: Guarantee) -> tuple[Key, ...]:
    """Return the keys of the evidence behind a guarantee's numbers."""
    keys = [Key.NEIGHBOURS, Key.CARD]
    if guarantee.span != Span.REPORT:
        keys.append(Key.COMPOSITION)
    if guarantee.bounds.pure is None and guarantee.span != Span.BUDGET:
        keys.append(Key.GAUSSIAN)
    if guarantee.span == Span.BUDGET:
        keys.append(Key.LEDGER)
    if guarantee.span == Span.LIFE:
        keys.append(Key.PAYMENTS)
    return tuple(keys)


# What is protected


def _what(facts: Facts) -> Iterable[Sentence]:
    """Yield what the guarantees protect: a device, or a run of records; with an example."""
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
    if facts.results:
        yield Sentence(
            "A report is the answer of a model about the records of a device, with noise. The records themselves are "
            "not sent.",
            (Key.LEAVES, Key.FACT),
        )


def _example(facts: Facts) -> str:
    """Return an example: what a device holds, and what nobody can tell about it."""
    held = facts.held
    device = "a device"
    if held.device is not None:
        device = f"device {held.device}"
    data = "records of its own, which the host does not know"
    if held.data:
        data = f"records of {held.data}"
    if held.features:
        names = ", ".join(f"“{name}”" for name in held.features)
        data += f", with features such as {names}"
    if held.records:
        data = f"at most {held.records:,} {data}"

    secret = f"whether its records 0 to {facts.unit - 1:,} were there"
    if facts.unit == DEVICE:
        secret = "them from those of entirely other records"
    elif facts.unit == 1:
        secret = "whether its first record was there"
    return (
        f"For example, {device} holds {data}. Whoever sees its reports cannot tell {secret}, "
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
    """Yield what holds against the host and whoever can send programs to boards."""
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
    way = ""
    if facts.link in fleet.KINDS:
        way = fleet.KINDS[facts.link].way
    yield Sentence(
        f"{way} Who listens on the network sees at most what the host sees, so the same numbers hold. It also sees "
        "when a device sends, and how many bytes. Nobody can answer for a device without its key, or ask it without "
        "its key or that of the fleet. Every board has the key of the fleet, unless it has --own-key-only. What the "
        "thief of such a key asks is paid from the same budget.".strip(),
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
    """Yield the table of all numbers, and what they mean."""
    guarantees = shown(facts)
    rows: list[tuple[str, ...]] = []
    for guarantee in guarantees:
        rows += _rows(guarantee, facts)
    if not rows:
        yield Sentence("No epsilon is known.", (Key.FACT,))
        return
    beliefs = (f"belief of {100 * prior:g} % becomes at most" for prior in PRIORS)
    head = ("about", "question", "epsilon", "odds change by at most", *beliefs)
    yield Table(head, rows, (Key.CARD, Key.COMPOSITION, Key.ODDS))
    yield Sentence(
        "Epsilon limits what anybody can learn. Somebody who believed something about what is protected has other "
        "odds after seeing the reports, but by no more than the factor in the table; where a delta is named, only "
        "rarely by more. The last columns say the same of a belief of 50 %, 10 % and 1 %. All numbers are rounded up.",
        (Key.ODDS,),
    )
    yield from _about_delta(facts)
    spans = {guarantee.span for guarantee in guarantees}
    if Span.LIFE in spans and facts.kind != Kind.BOARD:
        yield Sentence(
            "The figure for all runs so far counts every round of this store, and what the boards say that they have "
            "paid beyond it.",
            (Key.COMPOSITION, Key.PAYMENTS),
        )
    yield from _enforced(facts)
    if any(guarantee.bounds.epsilon >= _NOTHING for guarantee in guarantees):
        yield Sentence(
            f"An epsilon of {_NOTHING} or more promises nothing against an observer who suspects something: see "
            "the table.",
            (Key.ODDS,),
        )


def shown(facts: Facts) -> list[Guarantee]:
    """Return the guarantees that the table shows, those of budgets last.

    The guarantee for life is left out for devices that have had one run, whose numbers it repeats.
    """
    guarantees: list[Guarantee] = []
    run = None  # the last guarantee of a run; that for life of the same devices follows it
    for guarantee in facts.promised:
        if guarantee.span == Span.RUN:
            run = guarantee
        is_life_of_one_run = (
            guarantee.span == Span.LIFE and run is not None and run.bounds == guarantee.bounds
        )
        if not is_life_of_one_run:
            guarantees.append(guarantee)
    return [*guarantees, *facts.budgets]


def _rows(guarantee: Guarantee, facts: Facts) -> Iterable[tuple[str, ...]]:
    """Yield the rows of the table about a guarantee: one for each question and each epsilon."""
    about = SPANS[guarantee.span]
    if facts.kind == Kind.BOARD and guarantee.span == Span.LIFE:
        about = _ALREADY_PAID
    if guarantee.share < 1:
        about += f", {100 * guarantee.share:.3g} % of the devices"
    if guarantee.unit == DEVICE:
        yield from _numbered(about, "what its records are", guarantee.bounds)
        return
    run = "the record" if guarantee.unit == 1 else f"the run of {guarantee.unit:,} records"
    yield from _numbered(about, f"whether {run} was there", guarantee.bounds)
    if guarantee.content is not None:
        yield from _numbered(about, f"what {run} says", guarantee.content)
    if guarantee.event is not None:
        yield from _numbered(about, "an event that changes two of them", guarantee.event)


def _numbered(about: str, question: str, bounds: Bounds) -> Iterable[tuple[str, ...]]:
    for row in numbers(bounds):
        yield about, question, *row


def numbers(bounds: Bounds) -> Iterable[tuple[str, ...]]:
    """Yield cells for the epsilon at delta 0 and for the smaller one at delta, if there are both.

    The cells of each are the epsilon, the factor of odds, and the belief after each of PRIORS.
    """
    if bounds.pure is not None:
        yield rounded(bounds.pure), *_odds(bounds.pure)
    if bounds.epsilon != bounds.pure:
        yield f"{rounded(bounds.epsilon)} at delta {bounds.delta:g}", *_odds(bounds.epsilon)


def _odds(epsilon: float) -> tuple[str, ...]:
    """The factor by which odds change at most, and the belief after each prior."""
    beliefs = [_percent(believed(prior, epsilon)) for prior in PRIORS]
    return _factor(epsilon), *beliefs


def _percent(belief: float) -> str:
    """A belief, rounded up; nobody is quite certain."""
    percent = rounded(100 * belief)
    if percent == "100":
        return "almost 100 %"
    return f"{percent} %"


def _factor(epsilon: float) -> str:
    if epsilon > math.log(_MOST_FACTOR):
        return f"more than {_MOST_FACTOR:,} times"
    return f"{rounded(math.exp(epsilon))} times"


def _about_delta(facts: Facts) -> Iterable[Sentence]:
    """Yield a sentence on the meaning of delta, if a number of the table holds at a delta."""
    at_delta: list[Bounds] = []
    for guarantee in shown(facts):
        for bounds in (guarantee.bounds, guarantee.content, guarantee.event):
            if bounds is not None and bounds.epsilon != bounds.pure:
                at_delta.append(bounds)
    if not at_delta:
        return
    text = (
        f"Where a delta of {facts.delta:g} is named, nothing that can be seen is more than e^epsilon times as likely "
        "for one of two data sets as for the other, plus delta. Odds may change by more than the factor, but rarely"
    )
    probabilities = [bounds.exceeded for bounds in at_delta if bounds.exceeded is not None]
    if probabilities:
        largest = rounded_small(max(probabilities))
        text += f": with a probability of at most {largest}, for the numbers of the table"
    yield Sentence(f"{text}.", (Key.GAUSSIAN, Key.COMPOSITION))


def rounded_small(probability: float) -> str:
    """Return a small probability with two digits, rounded up, such as 1.3e-05."""
    exponent = math.floor(math.log10(probability)) - 1
    digits = math.ceil(probability / 10**exponent - 1e-9)
    return f"{digits * 10.0**exponent:.2g}"


def _enforced(facts: Facts) -> Iterable[Sentence]:
    """Yield who enforces the budgets: each device, or the host for simulated clients."""
    if facts.link == _SIMULATED:
        text = "Simulated clients have no ledgers and no budget that would end their reports."
        if facts.budgets:
            text = "Simulated clients have no ledgers: the host refuses runs of a store beyond --budget."
        yield Sentence(text, (Key.FACT,))
        return
    yield Sentence(
        "Each device enforces its budget for life itself. It pays for a report in its ledger before it sends it, and "
        "refuses what the budget does not cover. No question of a host can raise the budget.",
        (Key.LEDGER, Key.HOST),
    )
    if not facts.budgets:
        yield Sentence("The boards have not said yet what their budgets are.", (Key.FACT,))


# What leaves a device


def _leaves(facts: Facts) -> Iterable[Sentence | Table]:
    """Yield all that leaves a device: when, how many bytes, and what it depends on."""
    how_often = "once for each question that asks the device"
    if facts.most_reports is not None and facts.kind in (Kind.RUN, Kind.PLAN):
        how_often += f": at most {counted(facts.most_reports, 'time')} in this run"
        if facts.endless:
            how_often += " so far"

    sizes = {report.size for report in facts.reported}
    if not sizes:  # no report is known: those of the shortest and the longest frame
        sizes = {report_bytes(1), wire.MAX_FRAME}
    report_size = f"{min(sizes):,}"
    if len(sizes) > 1:
        report_size += f" to {max(sizes):,}"
    hello_size = f"{hello_bytes('')} to {hello_bytes('x' * _LONGEST_TEXT)}"
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
        "A device with a slot (--slot-ms, by default 500 ms) sends at moments that do not depend on its records. "
        "Without a slot, the time of its answer tells how much work it was, and so how many records it may have.",
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
    """The length of a HELLO frame with this text."""
    fields: list[Any] = [*[0] * _HELLO_FIELDS, text]
    return int(frames.encode_hello(bytearray(wire.MAX_FRAME), *fields))


# What is not protected


def _not_protected(facts: Facts) -> Iterable[Sentence]:
    """Yield what no guarantee covers."""
    if facts.unit != DEVICE:
        yield from _not_protected_by_runs(facts)
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
        "Rows that were named as public are public. So is the upper bound of the number of records, which is the same "
        "for all devices.",
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
    if facts.together is not None:
        epsilon = facts.together.words
        text = f"All records that a device holds at one time, together: epsilon {epsilon}"
        if facts.together.epsilon >= _NOTHING:
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
    """Yield tables of what identifies the run, store or board, and of the cards of its reports."""
    yield Table(("what", "value"), list(facts.about.items()), (Key.FACT,))
    if facts.reported:
        head = (
            "certified for",
            "values in a report",
            "bytes of a report",
            "cards, by their hashes",
        )
        yield Table(head, list(_card_rows(facts.reported)), (Key.CARD,))


def _card_rows(reported: Sequence[Reported]) -> Iterable[tuple[str, ...]]:
    """Yield the rows of the table of cards, with one row for all that are certified for the same.

    Many cards differ only in what a public range allows. Cells: what the cards are certified for,
    values and bytes of a report, and the cards' hashes, of which a few are shown.
    """
    hashes_by_row: dict[tuple[str, ...], list[str]] = {}
    for report in reported:
        row = _certified(report.card), f"{report.values:,}", f"{report.size:,}"
        hashes_by_row.setdefault(row, []).append(cards.card_hash(report.card).hex())
    for cells, hashes in hashes_by_row.items():
        text = ", ".join(hashes[:_MOST_HASHES])
        if len(hashes) > _MOST_HASHES:
            text += f", and {len(hashes) - _MOST_HASHES:,} more (all: --json)"
        yield *cells, text


def _certified(data: bytes) -> str:
    """Return what a card is certified for, in words: its epsilon or rho, and of which values."""
    card = cards.decode(data)
    amount = rounded(card.epsilon / MICRO)
    if card.shape != cards.SUM:
        return f"epsilon {amount}"
    body = sums.of(card)
    measure = "rho" if body.norm == sums.L2 else "epsilon"
    return f"{measure} {amount} for all values together, about {protected(body.unit)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
