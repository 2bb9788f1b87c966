"""`tern card account`: the epsilon of reports together, also behind a shuffler."""

import argparse
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from tern import ledger
from tern.card import PROJECTION, SUM, Card
from tern.wire import MAX_DIMENSION
from ternhost.cli import named
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.extensions import intermediaries
from ternhost.options import exclude, require
from ternhost.privacy import cards, certify, composing, mechanisms, shuffling, sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import rounded
from ternhost.privacy.shuffling import Shuffled
from ternhost.privacy.units import parse_unit, protected
from ternhost.terminal import Progress

_MOST_ROUNDS = 10**6
_MEANS_LITTLE = 10  # an epsilon
_LEDGER = {"rho": None, "unit": None, "units": 1}  # options, and what they are where not given
_EXAMPLE = """tern card account three-outputs --epsilon .1 --rounds 1000 --delta 1e-6 --plot rounds.png
    tern card account three-outputs pm --epsilon 1 --rounds 100,20 --reports 5000 --honest .9 --delta 1e-6
    tern card account three-outputs --epsilon 4 --reports 20000 --delta 1e-6
    tern card account --epsilon 1 --reports 294000 --delta 1e-6 --plot shuffled.png
    tern card account --epsilon 10 --delta 1e-6 --rounds 8760 --unit 60 --units 100"""


def add_parser(actions: Any) -> None:
    """Add `tern card account` to the actions of `tern card`."""
    intermediary_words = " or ".join(f"a {word}" for word in ["shuffler", *intermediaries()])
    summary = f"tell the epsilon of a device's reports together, also behind {intermediary_words}"
    account = add_command(actions, "account", summary, _EXAMPLE, run_account)
    named.add_arguments(account, many=True)
    text = "number of reports of a device, one a round; with several NAMEs also a number for each (default: 1)"
    add_option(account, "--rounds R[,R,...]", text)
    text = f"behind {intermediary_words}: number of reports that it mixes in a round, one of each device"
    add_option(account, "--reports N", text, type=int)
    text = "with --reports: the share of them that the reader does not control"
    add_option(account, "--honest SHARE", text, 1.0)
    text = "delta; of central privacy well below 1 / N"
    add_option(account, "--delta D", text, type=float, required=True)
    text = "number of values in a report, each at the epsilon of the card"
    add_option(account, "--values K", text, 1)
    text = "without NAME and --reports: rho of all reports together (or --epsilon for their (epsilon, delta))"
    add_option(account, "--rho R", text)
    text = "without --reports: device, record, or the records of a unit (default: device)"
    add_option(account, "--unit UNIT", text)
    add_option(account, "--units N", "without --reports: number of units that a device holds", 1)
    text = "also draw epsilon into this file: against the rounds, or without --rounds against the number of reports"
    add_option(account, "--plot FILE.png", text)


def run_account(args: argparse.Namespace) -> int:
    """Account for rounds of reports, for one round behind a shuffler, or for a ledger in rho.

    Which of them is asked follows from --reports, --rounds and the cards that are named.
    """
    if args.reports is None:
        require(args.honest == 1, "honest", "1 without --reports", args.honest)
        if args.names:
            return _run_rounds(args)
        return _run_ledger(args)

    for name, default in _LEDGER.items():
        if getattr(args, name) != default:
            text = f"--{name} is about a ledger, --reports about a shuffler"
            raise UsageError(text, "leave one of them out")
    require(0 < args.honest <= 1, "honest", "above 0 and at most 1", args.honest)
    if args.rounds is None and len(args.names) < 2:
        return _run_one_round(args)
    return _run_rounds(args)


@dataclass(frozen=True)
class _CardRounds:
    """A card in so many rounds; without a card, any mechanism.

    cost: certified, of one value, in micro-epsilon or micro-rho.
    """

    name: str
    card: Card | None
    cost: int
    rounds: int = 1

    @property
    def as_values(self) -> Card | None:
        """The card, where its symbols stand for values. Raises UsageError for a sum."""
        if self.card is None or self.card.shape == PROJECTION:  # known by its epsilon alone
            return None
        return certify.valued(self.card)

    def report(self, values: int) -> ReportKind:
        """Return the kind of a report of so many values, with the cost that was certified."""
        if self.card is None:
            return ReportKind(values * self.cost, values=values)
        kind = ReportKind.of(self.card, values)
        return replace(kind, cost=kind.values * self.cost)  # the card may claim more than it takes


def _cards_in_rounds(args: argparse.Namespace) -> list[_CardRounds]:
    """Return the cards that the command line names, each with its number of rounds.

    Without a name the mechanism is any one with --epsilon. Raises UsageError.
    """
    rounds_by_card = _rounds(args.rounds, max(1, len(args.names)))
    if args.names:
        return _named_cards(args, rounds_by_card)

    options = mechanisms.options_named(args, "levels")
    hint = "name a mechanism with --epsilon, or a card file; or give --epsilon alone, for any mechanism"
    if options:
        raise UsageError(f"{options[0]} is an option of a mechanism", hint)
    if args.epsilon is None:
        raise UsageError("the local epsilon is missing", hint)
    (round_count,) = rounds_by_card
    return [_CardRounds("any mechanism", None, parse_epsilon(args.epsilon), round_count)]


def _named_cards(args: argparse.Namespace, rounds_by_card: Sequence[int]) -> list[_CardRounds]:
    """Load or design the named cards, and certify them.

    rounds_by_card: the number of rounds of each. Raises UsageError for a card without a certified
    cost, and for options that would change nothing.
    """
    is_only_name = len(args.names) == 1
    only_files = not any(name in mechanisms.NAMES for name in args.names)
    if only_files and not is_only_name and args.epsilon is not None:
        text = "--epsilon would change nothing: every NAME is a card file"
        raise UsageError(text, "leave it out")

    named_cards = []
    for name, round_count in zip(args.names, rounds_by_card, strict=True):
        card, description = named.card(args, name, is_only_name)
        if card.shape >= SUM:
            must = f"1 with {name}, which is about all values"
            require(args.values == 1, "values", must, args.values)
        measure = cards.measure(card)
        certified = description[f"{measure}_certified"]
        if certified is None:
            hint = f"'tern card show {name}' shows its distribution"
            raise UsageError(f"{name} keeps no {measure} up to 20", hint=hint)
        mechanism = description.get("mechanism", name)
        named_cards.append(_CardRounds(mechanism, card, round(certified * MICRO), round_count))
    return named_cards


def _rounds(text: str | None, card_count: int) -> list[int]:
    """Return the number of rounds of each of `card_count` cards. text: of --rounds.

    Raises UsageError unless it is one number for all cards, or one for each.
    """
    try:
        rounds = [int(word) for word in (text or "1").split(",")]
    except ValueError:
        must = "a whole number, or with several cards R,R,..."
        raise UsageError(f"--rounds must be {must}, not {text!r}", "such as 1000") from None
    for round_count in rounds:
        require(
            1 <= round_count <= _MOST_ROUNDS,
            "rounds",
            f"from 1 to {_MOST_ROUNDS:,}",
            f"{round_count:,}",
        )
    if len(rounds) not in (1, card_count):
        noun = "card" if card_count == 1 else "cards"
        hint = "give one number for all, or one for each NAME"
        raise UsageError(f"--rounds has {len(rounds)} numbers for {card_count} {noun}", hint)
    return rounds * (card_count // len(rounds))


def _honest(args: argparse.Namespace) -> int:
    """How many reports of a round hide each other; 0 where the reader knows who sent them."""
    reports = int(args.reports or 0)
    return max(min(1, reports), math.floor(Fraction(str(args.honest)) * reports))


# Many rounds


def _run_rounds(args: argparse.Namespace) -> int:
    """Print the epsilon of a device's reports, round after round."""
    cards_chosen = _cards_in_rounds(args)
    allowed = f"1 to {MAX_DIMENSION} over rounds"
    require(1 <= args.values <= MAX_DIMENSION, "values", allowed, args.values)
    is_mixed = args.reports is not None
    ledger_costs = {} if is_mixed else _spent_by_cards(cards_chosen, args)
    if args.plot:
        from ternhost.plots import canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))

    rows = _rows(cards_chosen, args)
    last_row = rows[-1]
    bounds = [bound for key, bound in last_row.items() if key != "rounds" and bound is not None]
    epsilon = min(bounds)  # each bound holds, so the smallest one does
    card_names = " + ".join(card.name for card in cards_chosen)
    result = {
        "what": card_names,
        "cards": [{"what": card.name, "rounds": card.rounds} for card in cards_chosen],
        "values": args.values,
        "rounds": last_row["rounds"],
        "delta": args.delta,
        **ledger_costs,
        "rows": rows,
        "epsilon_pure": last_row["pure"],
        "epsilon_zcdp": last_row["zcdp"],
        "epsilon_exact": last_row["exact"],
        "epsilon": epsilon,
    }
    if is_mixed:
        honest = _honest(args)
        result |= {"reports": args.reports, "honest": honest, "epsilon_central": epsilon}
        result |= _conditions()
    if args.plot:
        _draw_rounds(card_names, rows, args)

    lines = _rounds_lines(card_names, rows, epsilon, args)
    if ledger_costs:
        lines.append(_ledger_words(card_names, ledger_costs))
    else:
        lines.append(_holds("the local epsilon"))
    print_result(result, "\n".join(lines), args.json)
    return OK


def _draw_rounds(name: str, rows: Sequence[Mapping[str, Any]], args: argparse.Namespace) -> None:
    """Draw the epsilons against the rounds, into the file of --plot."""
    from ternhost.plots import accounts, canvas  # loads matplotlib

    title = canvas.plain(name)
    x_name = "reports of a device"
    if args.reports is not None:
        title += f", {_honest(args):,} reports a round"
        x_name = "rounds"
    title += f", delta {args.delta:g}"
    epsilons = {}
    for heading, key in reversed(_columns(rows)):
        epsilons[heading] = [row[key] for row in rows]
    rounds = [row["rounds"] for row in rows]
    figure = accounts.epsilons(rounds, x_name, "epsilon", epsilons, title)
    canvas.save(figure, Path(args.plot))


def _rows(cards_chosen: Sequence[_CardRounds], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the epsilons after a growing share of the rounds, a row for each share.

    All cards go through the same shares, with at least one round of each.
    """
    allowed = f"{shuffling.LEAST_DELTA:g} or more"
    require(args.delta >= shuffling.LEAST_DELTA, "delta", allowed, f"{args.delta:g}")
    is_mixed = args.reports is not None
    rows = []
    with Progress("rounds") as progress:
        # Of one round of the last card, computed without the grid of several rounds.
        epsilon_of_one_round = math.inf
        if is_mixed:
            for card in cards_chosen:
                progress.step(f"one of {card.name}")
                # It refuses what cannot be mixed.
                epsilon_of_one_round = _one_round(card, _honest(args), args).epsilon
        most_rounds = max(card.rounds for card in cards_chosen)
        for rounds in _ladder(most_rounds):
            progress.step(f"{rounds:,} of {most_rounds:,}")
            rounds_by_card = [-(-card.rounds * rounds // most_rounds) for card in cards_chosen]
            row = _row(cards_chosen, rounds_by_card, args)
            if is_mixed and row["rounds"] == 1:
                row["behind"] = min(row["behind"], epsilon_of_one_round)
            rows.append(row)
    return rows


def _row(
    cards_chosen: Sequence[_CardRounds], rounds_by_card: Sequence[int], args: argparse.Namespace
) -> dict[str, Any]:
    """Return the epsilons of so many rounds of each card, as a row of the table.

    local_reports are seen by a reader who knows who sent them, mixed_reports are behind a shuffler.
    """
    local_reports: Counter[ReportKind] = Counter()
    mixed_reports: Counter[ReportKind] = Counter()
    for card, rounds in zip(cards_chosen, rounds_by_card, strict=True):
        local_reports[card.report(1)] += rounds * args.values
        mixed_reports[card.report(args.values).among(_honest(args))] += rounds
    loss = composing.compose(local_reports, args.delta)
    row = {"rounds": sum(rounds_by_card), "pure": loss.pure, "zcdp": loss.zcdp, "exact": loss.exact}
    if args.reports is not None:
        row["behind"] = min(composing.compose_exactly(mixed_reports, args.delta), loss.epsilon)
    return row


def _ladder(last: int) -> list[int]:
    """Return about a dozen numbers of rounds from 1 up to `last`, evenly spaced in the logarithm."""
    if last <= 12:
        return list(range(1, last + 1))
    leading_digits = (1, 2, 5) if last <= 10**4 else (1, 3)
    ladder = []
    for power in range(7):
        for digit in leading_digits:
            number = digit * 10**power
            if number < last:
                ladder.append(number)
    return [*ladder, last]


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return (heading, key of a row) for each column of the table and curve of the picture."""
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
    """Return the table of epsilons as lines for people.

    name: of the cards. epsilon: the best bound after all rounds.
    """
    title = f"{name}: epsilon of a device's reports together"
    if args.values > 1:
        title += f", {args.values} values in a report"
    title += f", at delta {args.delta:g}"
    unit, bound_name = "reports", "epsilon"
    if args.reports is not None:
        title += f", each one of {_honest(args):,} honest ones"
        unit, bound_name = "rounds", "central epsilon"

    columns = _columns(rows)
    headings = "".join(f"  {heading:>11}" for heading, _ in columns)
    lines = [f"{title}:", f"  {unit:>9}{headings}"]
    for row in rows:
        cells = [f"  {_number(row[key]):>{max(11, len(heading))}}" for heading, key in columns]
        lines.append(f"  {row['rounds']:>9,}{''.join(cells)}")
    return [*lines, f"After all of them the {bound_name} is {_number(epsilon)}."]


def _number(bound: float | None) -> str:
    return "-" if bound is None else rounded(bound)


# One round, behind a shuffler


def _run_one_round(args: argparse.Namespace) -> int:
    """Print the central epsilon of one report behind a shuffler."""
    (card,) = _cards_in_rounds(args)
    if args.plot:
        from ternhost.plots import canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))
    honest = _honest(args)
    bounds = _one_round(card, honest, args)
    if args.plot:
        _draw_one_round(card, bounds, args)
    result = {
        "what": card.name,
        "values": args.values,
        "reports": args.reports,
        "honest": honest,
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


def _one_round(card: _CardRounds, honest: int, args: argparse.Namespace) -> Shuffled:
    """The bounds of one round, in which so many honest reports hide each other."""
    return shuffling.account(card.cost, honest, args.delta, card.as_values, args.values)


def _draw_one_round(card: _CardRounds, bounds: Shuffled, args: argparse.Namespace) -> None:
    """Draw the central epsilon against the number of reports, into the file of --plot."""
    from ternhost.plots import accounts, canvas  # loads matplotlib

    honest = bounds.reports
    report_counts = {
        round(honest * 10 ** (half_power / 2)) for half_power in (-4, -3, -2, -1, 1, 2)
    }
    report_counts.discard(honest)
    # From a hundredth to ten times the number of reports, each about three times the last one.
    curve = [bounds]
    with Progress("reports") as progress:
        for reports in sorted(report_counts):
            if 1 <= reports <= shuffling.MOST_REPORTS:
                progress.step(f"{reports:,}")
                curve.append(_one_round(card, reports, args))
    curve.sort(key=lambda point: point.reports)
    epsilons: dict[str, list[float | None]] = {
        "this card": [point.card for point in curve],
        "any mechanism": [point.any_mechanism for point in curve],
        "closed bound": [point.closed for point in curve],
        "local: without a shuffler": [point.local for point in curve],
    }
    title = f"{card.name}, local epsilon {bounds.local:g}, delta {args.delta:g}"
    reports_drawn = [point.reports for point in curve]
    upwards = "central epsilon, behind a shuffler"
    figure = accounts.epsilons(reports_drawn, "reports", upwards, epsilons, title)
    canvas.save(figure, Path(args.plot))


def _last_intermediary() -> str:
    return ["shuffler", *intermediaries()][-1]


def _conditions() -> dict[str, Any]:
    """Return for JSON behind whom the central epsilon holds, and toward which hosts."""
    needs = "an anonymous shuffler"
    toward_the_host = {"ports": False, "broker": False}
    for word in intermediaries():
        needs += f", or a {word} that its devices trust"
        toward_the_host[word] = True
    return {"needs": needs, "holds_toward_the_host": toward_the_host}


def _holds(local_epsilon: str) -> str:
    """Explain toward whom the central epsilon holds, and that others get `local_epsilon`."""
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
    """Describe the bounds of one round for people, the tightest bound first."""
    lines = [
        f"{card_name}: local epsilon {bounds.local:.8g} per report; "
        f"central epsilon of {bounds.reports:,} honest reports behind a shuffler, "
        f"at delta {bounds.delta:g}:"
    ]
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
    summary = f"The central epsilon is {rounded(bounds.epsilon)}"
    if bounds.epsilon > 0.999 * bounds.local:
        summary += ", no better than the local one"
    return "\n".join([*lines, f"{summary}.", _holds(f"the local {bounds.local:.8g}")])


# What a ledger in rho pays


def _run_ledger(args: argparse.Namespace) -> int:
    """Print what --rho, or --epsilon for all reports together, leaves each report."""
    if args.plot:
        text = "--plot draws the epsilon of cards, or behind a shuffler"
        raise UsageError(text, "give NAME or --reports")
    require(args.values >= 1, "values", "1 or more", args.values)
    named = [name for name in ("rho", "epsilon") if getattr(args, name) is not None]
    exclude(named, "rho", "epsilon")
    (rounds,) = _rounds(args.rounds, 1)
    if args.rho is not None:
        total_rho = parse_epsilon(args.rho, ledger.MAX_BUDGET, "--rho")
    elif args.epsilon is not None:
        total_rho = sums.rho_of(parse_epsilon(args.epsilon, ledger.MAX_BUDGET) / MICRO, args.delta)
    else:
        hint = "--rho, --epsilon or a card; or --reports, for a shuffler"
        raise UsageError("what is spent is missing", hint)
    ledger_costs = _spent({ReportKind(total_rho, gaussian=True): 1}, rounds, _unit(args, 0), args)
    print_result(
        {"what": "all reports", **ledger_costs},
        _ledger_words("all reports", ledger_costs),
        args.json,
    )
    return OK


def _unit(args: argparse.Namespace, of_cards: int) -> int:
    """The records of the unit that --unit names, by default that of the cards."""
    if args.unit is None:
        return of_cards
    return parse_unit(args.unit)


def _spent_by_cards(
    cards_chosen: Sequence[_CardRounds], args: argparse.Namespace
) -> dict[str, Any]:
    """Return what the reports of these cards cost a ledger in rho.

    Raises UsageError if they protect different units and --unit names none.
    """
    if args.rho is not None:
        raise UsageError("--rho is about no card", "leave NAME or --rho out")
    units = {cards.unit_of(card.card.data) for card in cards_chosen if card.card is not None} - {0}
    if len(units) > 1 and args.unit is None:
        hint = "account for each, or name one with --unit"
        raise UsageError("these cards protect different units", hint)
    reports: Counter[ReportKind] = Counter()
    for card in cards_chosen:
        reports[card.report(args.values)] += card.rounds
    unit_of_cards = max(units, default=0)
    unit = _unit(args, unit_of_cards)
    hide_presence = unit_of_cards > 0
    ledger_costs = _spent(reports, sum(reports.values()), unit, args, hide_presence)
    if len(cards_chosen) > 1:
        ledger_costs |= {"rho_each": None, "epsilon_each_pure": None}
    return ledger_costs


def _spent(
    reports: Mapping[ReportKind, int],
    rounds: int,
    unit: int,
    args: argparse.Namespace,
    hide_presence: bool = True,
) -> dict[str, Any]:
    """Return what these reports mean for each of the rounds, for a unit, and for a device.

    unit: the number of records that are protected together; 0 for the whole device. hide_presence:
    the reports hide whether a unit is there; what it says is two steps away (ledger.md,
    Neighbours). Raises UsageError.
    """
    require(args.units >= 1, "units", "1 or more", args.units)
    allowed = "1 where the unit is the whole device"
    require(unit > 0 or args.units == 1, "units", allowed, args.units)
    total_rho = sum(times * report.rho for report, times in reports.items())
    rho_of_report = total_rho // rounds
    if not rho_of_report:
        hint = "spend at least a millionth a report, and at most 20"
        raise UsageError("a report has no rho, or too much", hint)
    reports_of_unit = {replace(report, unit=unit): times for report, times in reports.items()}

    def epsilon(steps: int) -> float:
        """Return the epsilon between data that differ by so many steps, at --delta."""
        return composing.compose(composing.for_steps(reports_of_unit, steps), args.delta).epsilon

    hide_content = hide_presence and unit > 0
    return {
        "rounds": rounds,
        "delta": args.delta,
        "rho": total_rho / MICRO,
        "rho_each": rho_of_report / MICRO,
        "epsilon_each_pure": sums.pure_of(rho_of_report) / MICRO,
        "unit": unit,
        "protects": protected(unit),
        "units": args.units,
        "epsilon": epsilon(1),
        "epsilon_content": epsilon(2) if hide_content else None,
        "epsilon_device": epsilon(args.units),
        "epsilon_device_content": epsilon(2 * args.units) if hide_content else None,
    }


def _ledger_words(what: str, spent: Mapping[str, Any]) -> str:
    """Describe for people what reports cost a ledger in rho, and what that means.

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
        remark = "a whole device is protected less: --units says how many units it holds"
        lines.append(f"  device     {remark}")
    return "\n".join(lines)


def _both(spent: Mapping[str, Any], name: str) -> str:
    """Return the epsilon of that name in words: that a unit was there, and what it says.

    A whole device has only one epsilon, since its presence is not hidden.
    """
    text = f"epsilon {_number(spent[name])} at delta {spent['delta']:g}"
    content = spent[f"{name}_content"]
    if content is None:
        return text
    return f"{text} (that it was there) and {_number(content)} (what it says)"
