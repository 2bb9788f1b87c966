"""`tern card account`: the epsilon of reports together, also behind a shuffler.

A card is the certified table from which a device samples its report. Each report has a local
epsilon; many reports of a device add up. A shuffler hides who sent a report among the reports of
others: then a smaller "central" epsilon holds. A ledger is the budget of a device, in epsilon or in
rho (zCDP).
"""

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from tern import ledger
from tern.card import PROJECTION, SUM, Card
from tern.wire import MAX_DIMENSION
from ternhost.cli import named
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.extensions import intermediaries
from ternhost.options import require
from ternhost.privacy import cards, certify, composing, shuffling, sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import rounded
from ternhost.privacy.shuffling import Shuffled
from ternhost.privacy.units import parse_unit, protected
from ternhost.terminal import Progress

_MOST_ROUNDS = 10**6
_MEANS_LITTLE = 10  # an epsilon above this is said to protect hardly at all
_OF_A_LEDGER = ("budget", "unit", "records")
_ANY = "any"  # as in any:2, for whatever mechanism has this epsilon
_EXAMPLE = """tern card account three-outputs:.1 --rounds 1000 --plot rounds.png
    tern card account three-outputs:1 pm:1 --rounds 100,20 --shuffled 4500
    tern card account any:1 --shuffled 294000 --plot shuffled.png
    tern card account --budget 10 --rounds 8760 --unit 60 --records 6000"""


def add_parser(actions: Any) -> None:
    """Add `tern card account` to the actions of `tern card`."""
    intermediary_words = " or ".join(f"a {word}" for word in ["shuffler", *intermediaries()])
    summary = f"tell the epsilon of a device's reports together, also behind {intermediary_words}"
    account = add_command(actions, "account", summary, _EXAMPLE, run_account)
    text = f"{named.HELP}; {_ANY}:EPSILON stands for any mechanism"
    account.add_argument("cards", metavar="CARD", nargs="*", help=text)
    add_option(account, "--rounds R[,R,...]", shown="1; several CARDs may have a number each")
    text = f"number of reports that {intermediary_words} mixes in a round, one of each device, "
    text += "without those that the reader controls"
    add_option(account, "--shuffled N", text, type=int)
    add_option(account, "--delta D", default=1e-6)
    add_option(account, "--k K", default=1)
    add_option(account, "--budget E")
    add_option(account, "--unit UNIT", shown="device, or the unit of the card")
    add_option(account, "--records N", shown="one unit", type=int)
    add_option(account, "--plot FILE.png")
    explanation = """Without CARD, all rounds share the --budget.
A report has --k values, each at the epsilon of the card.
--plot draws epsilon against the rounds, or without --rounds against --shuffled."""
    account.epilog = f"{explanation}\n{account.epilog}"


def run_account(args: argparse.Namespace) -> int:
    """Account for rounds of reports, for one round behind a shuffler, or for a ledger in rho.

    Which of the three it is follows from --shuffled, --rounds and the number of named cards.
    """
    # Without a shuffler.
    if args.shuffled is None:
        if args.cards:
            return _run_rounds(args)
        return _run_ledger(args)

    # Behind a shuffler.
    for name in _OF_A_LEDGER:
        if getattr(args, name) is not None:
            text = f"--{name} is about a ledger, --shuffled about a shuffler"
            raise UsageError(text, "leave one of them out")
    is_one_round = args.rounds is None and len(args.cards) < 2
    if is_one_round:
        return _run_one_round(args)
    return _run_rounds(args)


@dataclass(frozen=True)
class _CardRounds:
    """A card that a device uses in a number of rounds, one report in each."""

    name: str
    card: Card | None  # None: any mechanism with this cost
    cost: int  # the certified cost of a value, in millionths of epsilon or rho
    rounds: int = 1

    @property
    def card_of_values(self) -> Card | None:
        """The card, if its symbols stand for values, so that its exact distribution can be used.

        None if there is no card, or one of projections: these are accounted for by their epsilon
        alone. Raises UsageError for the card of a sum.
        """
        if self.card is None or self.card.shape == PROJECTION:
            return None
        return certify.valued(self.card)

    def report(self, values: int) -> ReportKind:
        """Return what accounting has to know of a report of this many values.

        It has the cost that was certified, since a card may claim a larger one.
        """
        if self.card is None:
            return ReportKind(values * self.cost, values=values)
        kind = ReportKind.of(self.card, values)
        certified_cost = kind.values * self.cost
        return replace(kind, cost=certified_cost)


def _cards_in_rounds(args: argparse.Namespace) -> list[_CardRounds]:
    """Load or design the cards that the command line names, and certify them.

    Returns each with its number of rounds. Raises UsageError if there is none, or one without a
    certified cost, and for options that do not fit.
    """
    if not args.cards:
        hint = f"name a card file or MECHANISM:EPSILON; {_ANY}:2 stands for any mechanism"
        raise UsageError("the card of the reports is missing", hint)
    if args.budget is not None:
        text = "--budget says what all reports may spend, a CARD what each report spends"
        raise UsageError(text, "leave one of them out")
    rounds_by_card = _rounds_of_cards(args.rounds, card_count=len(args.cards))
    named_cards = []
    for name, round_count in zip(args.cards, rounds_by_card, strict=True):
        named_cards.append(replace(_certified(name, args.k), rounds=round_count))
    return named_cards


def _certified(name: str, values: int) -> _CardRounds:
    """Return the named card with its certified cost.

    values: the number of values in a report. Raises UsageError for a card without a certified cost,
    and for several values where a report is about all of them at once.
    """
    mechanism, _, epsilon = name.partition(":")
    if mechanism == _ANY and epsilon:
        return _CardRounds(name="any mechanism", card=None, cost=parse_epsilon(epsilon))
    card, description = named.card(name)
    if card.shape >= SUM:
        require(values == 1, "k", f"1 with {name}, which is about all values", values)
    measure = cards.measure(card)  # "epsilon" or "rho"
    certified_cost = description[f"{measure}_certified"]
    if certified_cost is None:
        hint = f"'tern card show {name}' shows its distribution"
        raise UsageError(f"{name} keeps no {measure} up to 20", hint=hint)
    return _CardRounds(
        name=description.get("mechanism", name),
        card=card,
        cost=round(certified_cost * MICRO),
    )


def _rounds_of_cards(text: str | None, card_count: int) -> list[int]:
    """Return the number of rounds of each of `card_count` cards.

    text: the value of --rounds, one number for all cards or one for each; None stands for 1. Raises
    UsageError for anything else.
    """
    try:
        numbers = [int(word) for word in (text or "1").split(",")]
    except ValueError:
        must = "a whole number, or with several cards R,R,..."
        raise UsageError(f"--rounds must be {must}, not {text!r}", "such as 1000") from None
    for number in numbers:
        is_possible = 1 <= number <= _MOST_ROUNDS
        require(is_possible, "rounds", f"from 1 to {_MOST_ROUNDS:,}", f"{number:,}")
    if len(numbers) == card_count:
        return numbers
    if len(numbers) == 1:
        return numbers * card_count
    noun = "card" if card_count == 1 else "cards"
    hint = "give one number for all, or one for each CARD"
    raise UsageError(f"--rounds has {len(numbers)} numbers for {card_count} {noun}", hint)


def _shuffled(args: argparse.Namespace) -> int:
    """Return how many reports of a round hide each other behind a shuffler; 0 without one."""
    return int(args.shuffled or 0)


# Many rounds


def _run_rounds(args: argparse.Namespace) -> int:
    """Print the epsilon of a device's reports together, after a growing number of rounds.

    With --shuffled the reports are behind a shuffler; otherwise also the cost to a ledger is
    printed. Returns the exit code.
    """
    cards_chosen = _cards_in_rounds(args)
    allowed = f"1 to {MAX_DIMENSION} over rounds"
    require(1 <= args.k <= MAX_DIMENSION, "k", allowed, args.k)
    is_behind_shuffler = args.shuffled is not None
    ledger_costs = {}
    if not is_behind_shuffler:
        ledger_costs = _spent_by_cards(cards_chosen, args)
    _check_plot(args)

    rows = _rows(cards_chosen, args)
    last_row = rows[-1]
    epsilon = _least_bound(last_row)
    card_names = " + ".join(card.name for card in cards_chosen)
    if args.plot:
        _draw_rounds(card_names, rows, args)

    # The result as JSON.
    result = {
        "what": card_names,
        "cards": [{"what": card.name, "rounds": card.rounds} for card in cards_chosen],
        "k": args.k,
        "rounds": last_row["rounds"],
        "delta": args.delta,
        **ledger_costs,
        "rows": rows,
        "epsilon_pure": last_row["pure"],
        "epsilon_zcdp": last_row["zcdp"],
        "epsilon_exact": last_row["exact"],
        "epsilon": epsilon,
    }
    if is_behind_shuffler:
        result["shuffled"] = args.shuffled
        result["epsilon_central"] = epsilon
        result |= _conditions()

    # The result as text.
    lines = _rounds_lines(card_names, rows, epsilon, args)
    if is_behind_shuffler:
        lines.append(_holds("the local epsilon"))
    else:
        lines.append(_ledger_words(card_names, ledger_costs))
    print_result(result, "\n".join(lines), args.json)
    return OK


def _check_plot(args: argparse.Namespace) -> None:
    """Raise UsageError if --plot names a file that cannot be written, before a long computation."""
    if args.plot:
        from ternhost.plots import canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))


def _least_bound(row: Mapping[str, Any]) -> float:
    """Return the best bound in a row of `_rows`. Each bound holds, so the smallest one does."""
    bounds: list[float] = []
    for key, bound in row.items():
        if key != "rounds" and bound is not None:
            bounds.append(bound)
    return min(bounds)


def _draw_rounds(name: str, rows: Sequence[Mapping[str, Any]], args: argparse.Namespace) -> None:
    """Draw the epsilons against the rounds, into the file of --plot.

    name: the names of the cards, for the title. rows: from `_rows`.
    """
    from ternhost.plots import accounts, canvas  # loads matplotlib

    title = canvas.plain(name)
    x_name = "reports of a device"
    if args.shuffled is not None:
        title += f", {_shuffled(args):,} reports a round"
        x_name = "rounds"
    title += f", delta {args.delta:g}"
    epsilons_by_curve = {}
    for heading, key in reversed(_columns(rows)):
        epsilons_by_curve[heading] = [row[key] for row in rows]
    rounds = [row["rounds"] for row in rows]
    figure = accounts.epsilons(rounds, x_name, "epsilon", epsilons_by_curve, title)
    canvas.save(figure, Path(args.plot))


def _rows(cards_chosen: Sequence[_CardRounds], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the epsilons after a growing share of the rounds: a row of `_row` for each share.

    A share is, say, a tenth of the rounds of every card, and at least one round of each.
    """
    allowed = f"{shuffling.LEAST_DELTA:g} or more"
    require(args.delta >= shuffling.LEAST_DELTA, "delta", allowed, f"{args.delta:g}")
    is_behind_shuffler = args.shuffled is not None
    rows = []
    with Progress("rounds") as progress:
        # The central epsilon of a single round can be computed more exactly than that of several.
        # For every card the computation also raises UsageError if it cannot be shuffled.
        epsilon_of_one_round = math.inf
        if is_behind_shuffler:
            for card in cards_chosen:
                progress.step(f"one of {card.name}")
                epsilon_of_one_round = _one_round(card, _shuffled(args), args).epsilon

        most_rounds = max(card.rounds for card in cards_chosen)
        for rounds in _ladder(most_rounds):
            progress.step(f"{rounds:,} of {most_rounds:,}")
            rounds_by_card = []
            for card in cards_chosen:
                # The same share of its rounds; -(-a // b) rounds up.
                rounds_by_card.append(-(-card.rounds * rounds // most_rounds))
            row = _row(cards_chosen, rounds_by_card, args)
            is_single_round = row["rounds"] == 1  # then there is only one card
            if is_behind_shuffler and is_single_round:
                row["behind"] = min(row["behind"], epsilon_of_one_round)
            rows.append(row)
    return rows


def _row(
    cards_chosen: Sequence[_CardRounds], rounds_by_card: Sequence[int], args: argparse.Namespace
) -> dict[str, Any]:
    """Return the epsilons of a number of rounds of each card, as a row of the table.

    The row has three bounds toward a reader who knows who sent a report ("pure", "zcdp" and
    "exact"; None where one does not apply), and with --shuffled one behind a shuffler ("behind").
    """
    local_reports: Counter[ReportKind] = Counter()
    shuffled_reports: Counter[ReportKind] = Counter()
    for card, rounds in zip(cards_chosen, rounds_by_card, strict=True):
        # A report of several values counts as several reports of one value; only a shuffler mixes
        # whole reports.
        local_reports[card.report(values=1)] += rounds * args.k
        whole_report = card.report(args.k).among(_shuffled(args))
        shuffled_reports[whole_report] += rounds
    loss = composing.compose(local_reports, args.delta)
    row = {"rounds": sum(rounds_by_card), "pure": loss.pure, "zcdp": loss.zcdp, "exact": loss.exact}
    if args.shuffled is not None:
        behind = composing.compose_exactly(shuffled_reports, args.delta)
        row["behind"] = min(behind, loss.epsilon)  # a shuffler never makes it worse
    return row


def _ladder(last: int) -> list[int]:
    """Return about a dozen numbers of rounds from 1 up to `last`, evenly spaced in the logarithm.

    They have the leading digits 1, 2, 5 or 1, 3; up to 12 all numbers are returned.
    """
    if last <= 12:
        return list(range(1, last + 1))
    leading_digits = (1, 2, 5) if last <= 10**4 else (1, 3)
    ladder = []
    for power in range(7):  # up to _MOST_ROUNDS, 10**6
        for digit in leading_digits:
            number = digit * 10**power
            if number < last:
                ladder.append(number)
    return [*ladder, last]


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the columns of the table, which are the curves of the picture: (heading, key of a row).

    rows: from `_rows`. Those of reports behind a shuffler have a column for it.
    """
    if "behind" in rows[0]:
        return [
            ("local pure", "pure"),
            ("local exact", "exact"),
            (f"behind the {_last_intermediary()}", "behind"),
        ]
    return [("pure", "pure"), ("zCDP", "zcdp"), ("exact", "exact")]


def _rounds_lines(
    name: str, rows: Sequence[Mapping[str, Any]], epsilon: float, args: argparse.Namespace
) -> list[str]:
    """Return the table of epsilons as lines of text.

    name: the names of the cards. rows: from `_rows`. epsilon: the best bound after all rounds.
    """
    title = f"{name}: epsilon of a device's reports together"
    if args.k > 1:
        title += f", {args.k} values in a report"
    title += f", at delta {args.delta:g}"
    if args.shuffled is None:
        counted = "reports"
        bound_name = "epsilon"
    else:
        title += f", each one of {_shuffled(args):,} that are shuffled"
        counted = "rounds"
        bound_name = "central epsilon"

    # The first column is 9 characters wide, each other one at least 11.
    columns = _columns(rows)
    headings = ""
    for heading, _key in columns:
        headings += f"  {heading:>11}"
    lines = [f"{title}:", f"  {counted:>9}{headings}"]
    for row in rows:
        line = f"  {row['rounds']:>9,}"
        for heading, key in columns:
            width = max(11, len(heading))
            line += f"  {_number(row[key]):>{width}}"
        lines.append(line)
    lines.append(f"After all of them the {bound_name} is {_number(epsilon)}.")
    return lines


def _number(bound: float | None) -> str:
    """Return a bound as text; "-" if there is none."""
    return "-" if bound is None else rounded(bound)


# One round, behind a shuffler


def _run_one_round(args: argparse.Namespace) -> int:
    """Print the central epsilon of one report of a device behind a shuffler; return the exit code."""
    card = _cards_in_rounds(args)[0]  # no more than one is named
    _check_plot(args)
    bounds = _one_round(card, args.shuffled, args)
    if args.plot:
        _draw_one_round(card, bounds, args)
    result = {
        "what": card.name,
        "k": args.k,
        "shuffled": args.shuffled,
        "delta": args.delta,
        "epsilon_local": bounds.local,
        "epsilon_closed": bounds.closed,
        "epsilon_any_mechanism": bounds.any_mechanism,
        "epsilon_card": bounds.card,
        "epsilon_central": bounds.epsilon,
        **_conditions(),
    }
    print_result(result, _one_round_words(card.name, bounds), args.json)
    return OK


def _one_round(card: _CardRounds, reports: int, args: argparse.Namespace) -> Shuffled:
    """Return the bounds of one round behind a shuffler.

    reports: how many hide each other. Raises UsageError if the card cannot be
    accounted for behind a shuffler.
    """
    return shuffling.account(card.cost, reports, args.delta, card.card_of_values, args.k)


def _draw_one_round(card: _CardRounds, bounds: Shuffled, args: argparse.Namespace) -> None:
    """Draw the central epsilon against the number of reports, into the file of --plot.

    bounds: those of the number of reports that the user has named.
    """
    from ternhost.plots import accounts, canvas  # loads matplotlib

    # From a hundredth to ten times the number of reports, each about three times the last one.
    report_counts = set()
    for power in (-2.0, -1.5, -1.0, -0.5, 0.5, 1.0):
        report_counts.add(round(bounds.reports * 10**power))
    report_counts.discard(bounds.reports)  # its bounds are known

    curve = [bounds]
    with Progress("reports") as progress:
        for reports in sorted(report_counts):
            if 1 <= reports <= shuffling.MOST_REPORTS:
                progress.step(f"{reports:,}")
                curve.append(_one_round(card, reports, args))
    curve.sort(key=attrgetter("reports"))

    epsilons_by_curve: dict[str, list[float | None]] = {
        "this card": [point.card for point in curve],
        "any mechanism": [point.any_mechanism for point in curve],
        "closed bound": [point.closed for point in curve],
        "local: without a shuffler": [point.local for point in curve],
    }
    title = f"{card.name}, local epsilon {bounds.local:g}, delta {args.delta:g}"
    reports_drawn = [point.reports for point in curve]
    y_name = "central epsilon, behind a shuffler"
    figure = accounts.epsilons(reports_drawn, "reports", y_name, epsilons_by_curve, title)
    canvas.save(figure, Path(args.plot))


def _last_intermediary() -> str:
    """Return who stands between devices and host: the last kind that an extension adds.

    Without such an extension it is a shuffler.
    """
    return ["shuffler", *intermediaries()][-1]


def _conditions() -> dict[str, Any]:
    """Return under which conditions the central epsilon holds, as members of the JSON result.

    They say behind whom the devices must be, and for each way to reach devices whether it holds
    toward the host.
    """
    needs = "an anonymous shuffler"
    toward_the_host = {"ports": False, "broker": False}
    for word in intermediaries():
        needs += f", or a {word} that its devices trust"
        toward_the_host[word] = True
    return {"needs": needs, "holds_toward_the_host": toward_the_host}


def _holds(local_epsilon: str) -> str:
    """Explain toward whom the central epsilon holds.

    local_epsilon: in words, what a device spends toward everybody else.
    """
    intermediary_words = "behind an anonymous shuffler"
    for word in intermediaries():
        intermediary_words += (
            f", or toward the owner\nof the server behind a {word} that the devices trust"
        )
    return (
        f"This holds toward a reader who cannot see who sent what: {intermediary_words},"
        " if all of them get the same question. Toward a host\n"
        f"that gets the reports themselves, over MQTT or serial ports, a device spends {local_epsilon}."
    )


def _one_round_words(card_name: str, bounds: Shuffled) -> str:
    """Describe the bounds of one round in words, the tightest bound first."""
    lines = [
        f"{card_name}: local epsilon {bounds.local:.8g} per report; "
        f"central epsilon of {bounds.reports:,} reports behind a shuffler, "
        f"at delta {bounds.delta:g}:"
    ]

    # A line for each bound, which begins with the bound.
    if bounds.card is not None:
        card = rounded(bounds.card)
        lines.append(f"  {card:<10} this card, from its integers (privacy blanket)")
    any_mechanism = rounded(bounds.any_mechanism)
    lines.append(f"  {any_mechanism:<10} any mechanism of that local epsilon (privacy blanket)")
    if bounds.closed is None:
        text = "the closed bound does not apply: too few reports, or too large an epsilon"
        lines.append(f"  {'-':10} {text}")
    else:
        lines.append(f"  {rounded(bounds.closed):<10} closed bound (hiding among the clones)")

    conclusion = f"The central epsilon is {rounded(bounds.epsilon)}"
    if bounds.epsilon > 0.999 * bounds.local:
        conclusion += ", no better than the local one"
    lines.append(f"{conclusion}.")
    lines.append(_holds(f"the local {bounds.local:.8g}"))
    return "\n".join(lines)


# What a ledger in rho pays


def _run_ledger(args: argparse.Namespace) -> int:
    """Print what each report may cost, given a budget for all reports together.

    The budget is --budget at --delta. Returns the exit code.
    """
    if args.plot:
        text = "--plot draws the epsilon of cards, or behind a shuffler"
        raise UsageError(text, "name a CARD")
    require(args.k == 1, "k", "1 without a CARD", args.k)
    if args.budget is None:
        hint = f"name a CARD, such as {_ANY}:1, or a --budget to divide"
        raise UsageError("what is spent is missing", hint)
    rounds = _rounds_of_cards(args.rounds, card_count=1)[0]
    micro_epsilon = parse_epsilon(args.budget, ledger.MAX_BUDGET, "--budget")
    total_micro_rho = sums.rho_of(micro_epsilon / MICRO, args.delta)

    all_reports = {ReportKind(total_micro_rho, gaussian=True): 1}
    ledger_costs = _spent(all_reports, rounds, _unit(args, unit_of_cards=0), args)
    result = {"what": "all reports", **ledger_costs}
    print_result(result, _ledger_words("all reports", ledger_costs), args.json)
    return OK


def _unit(args: argparse.Namespace, unit_of_cards: int) -> int:
    """Return how many records are protected together, as --unit says; 0: all of a device.

    unit_of_cards: the result if that option is not given.
    """
    if args.unit is None:
        return unit_of_cards
    return parse_unit(args.unit)


def _units(args: argparse.Namespace, unit: int) -> int:
    """Return how many units the --records of a device are; 1 if that option is not given.

    unit: the number of records in a unit; 0 for the whole device. Raises UsageError for a number
    of records that is not possible, or that would change nothing.
    """
    if args.records is None:
        return 1
    require(args.records >= 1, "records", "1 or more", args.records)
    if unit == 0:
        text = "--records would change nothing: the whole device is protected"
        raise UsageError(text, "name what is protected, such as --unit record")
    return -(-int(args.records) // unit)  # rounded up


def _spent_by_cards(
    cards_chosen: Sequence[_CardRounds], args: argparse.Namespace
) -> dict[str, Any]:
    """Return what the reports of these cards cost a ledger in rho, in the form of `_spent`.

    Raises UsageError if the cards protect different numbers of records and --unit does not say
    which of them is meant.
    """
    # How many records a card protects together. A card of whole devices (0) fits to all others.
    units = set()
    for card_rounds in cards_chosen:
        if card_rounds.card is not None:
            units.add(cards.unit_of(card_rounds.card.data))
    units.discard(0)
    if len(units) > 1 and args.unit is None:
        hint = "account for each, or name one with --unit"
        raise UsageError("these cards protect different units", hint)
    unit_of_cards = max(units, default=0)

    reports: Counter[ReportKind] = Counter()
    for card_rounds in cards_chosen:
        reports[card_rounds.report(args.k)] += card_rounds.rounds
    ledger_costs = _spent(
        reports,
        rounds=sum(reports.values()),
        unit=_unit(args, unit_of_cards),
        args=args,
        hide_presence=unit_of_cards > 0,
    )
    if len(cards_chosen) > 1:
        # The reports of different cards cost differently.
        ledger_costs["rho_each"] = None
        ledger_costs["epsilon_each_pure"] = None
    return ledger_costs


def _spent(
    reports: Mapping[ReportKind, int],
    rounds: int,
    unit: int,
    args: argparse.Namespace,
    hide_presence: bool = True,
) -> dict[str, Any]:
    """Return what reports cost a ledger in rho, and which epsilons that means, for the JSON result.

    A unit is what is protected together: a number of records, or a whole device. The result has the
    epsilon of a unit and of a device, which holds --records.

    reports: how many reports of each kind a device makes. rounds: into how many equal parts their
    rho is divided. unit: the number of records in a unit; 0 for the whole device. hide_presence:
    the reports hide whether a unit is there. Then data without the unit are one step away, and data
    in which it says something else are two steps away (ledger.md, Neighbours).
    Raises UsageError for a rho or a number of records that is not possible.
    """
    units = _units(args, unit)
    total_micro_rho = sum(times * report.rho for report, times in reports.items())
    micro_rho_of_report = total_micro_rho // rounds
    if micro_rho_of_report == 0:
        hint = "let each report spend from 0.000001 to 20"
        raise UsageError("the rho of a report is out of bounds", hint)

    reports_of_unit = {replace(report, unit=unit): times for report, times in reports.items()}

    def epsilon(steps: int) -> float:
        """Return the epsilon, at --delta, between data that are this many steps apart."""
        reports_over_steps = composing.for_steps(reports_of_unit, steps)
        return composing.compose(reports_over_steps, args.delta).epsilon

    # Of a whole device only one epsilon is given, since its presence is no secret.
    epsilon_content = None
    epsilon_device_content = None
    if hide_presence and unit > 0:
        epsilon_content = epsilon(steps=2)
        epsilon_device_content = epsilon(steps=2 * units)
    return {
        # What each of the reports may cost.
        "rounds": rounds,
        "delta": args.delta,
        "rho": total_micro_rho / MICRO,
        "rho_each": micro_rho_of_report / MICRO,
        "epsilon_each_pure": sums.pure_of(micro_rho_of_report) / MICRO,
        # What is protected, and how.
        "unit": unit,
        "protects": protected(unit),
        "units": units,
        "epsilon": epsilon(steps=1),
        "epsilon_content": epsilon_content,
        "epsilon_device": epsilon(steps=units),
        "epsilon_device_content": epsilon_device_content,
    }


def _ledger_words(what: str, spent: Mapping[str, Any]) -> str:
    """Return in words what reports cost a ledger in rho, and what that protects.

    what: the reports in words. spent: the costs and epsilons, from `_spent`.
    """
    protection = f"for {spent['protects']} {_both(spent, 'epsilon')}"
    lines = [f"{what}: rho {spent['rho']:g} in total, {protection}"]
    if spent["rho_each"] is not None:
        lines.append(
            f"  reports    {spent['rounds']:,} of rho {spent['rho_each']:.4g}; "
            f"of a pure mechanism each has epsilon {spent['epsilon_each_pure']:.4g}"
        )

    # A unit is part of a device: say how the whole device is protected.
    if spent["units"] > 1:
        device_epsilons = _both(spent, "epsilon_device")
        lines.append(f"  device     a whole device has {spent['units']:,} units: {device_epsilons}")
        remark = "what is common to all of its records is protected by no more than that"
        if spent["epsilon_device"] > _MEANS_LITTLE:
            remark += ": hardly at all"
        lines.append(f"             {remark}")
    elif spent["unit"]:
        remark = "a whole device is protected less: --records says how many records it holds"
        lines.append(f"  device     {remark}")
    return "\n".join(lines)


def _both(spent: Mapping[str, Any], name: str) -> str:
    """Return the two epsilons of a unit in words: for whether it was there, and for what it says.

    A whole device has only one, since its presence is not hidden. spent: from `_spent`. name:
    "epsilon" or "epsilon_device", a key of `spent`.
    """
    text = f"epsilon {_number(spent[name])} at delta {spent['delta']:g}"
    content = spent[f"{name}_content"]
    if content is None:
        return text
    return f"{text} (that it was there) and {_number(content)} (what it says)"
