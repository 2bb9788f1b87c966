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
    """Add `tern card account` to the parser of `tern card`."""
    behind = " or ".join(f"a {word}" for word in ["shuffler", *intermediaries()])
    summary = f"tell the epsilon of a device's reports together, also behind {behind}"
    account = add_command(actions, "account", summary, _EXAMPLE, run_account)
    named.add_arguments(account, many=True)
    text = "number of reports of a device, one a round; with several NAMEs also a number for each (default: 1)"
    add_option(account, "--rounds R[,R,...]", text)
    text = f"behind {behind}: number of reports that it mixes in a round, one of each device"
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
    """Account for rounds of reports, for one round behind a shuffler, or for a ledger in rho."""
    if args.reports is None:
        require(args.honest == 1, "honest", "1 without --reports", args.honest)
        if args.names:
            return _run_rounds(args)
        return _run_ledger(args)

    for name, unset in _LEDGER.items():
        if getattr(args, name) != unset:
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
        """A report of so many values."""
        if self.card is None:
            return ReportKind(values * self.cost, values=values)
        kind = ReportKind.of(self.card, values)
        return replace(kind, cost=kind.values * self.cost)  # the card may claim more than it takes


def _cards_in_rounds(args: argparse.Namespace) -> list[_CardRounds]:
    """What the command line names. Raises UsageError."""
    rounds = _rounds(args.rounds, max(1, len(args.names)))
    if args.names:
        return _named_cards(args, rounds)

    options = mechanisms.options_named(args, "levels")
    hint = "name a mechanism with --epsilon, or a card file; or give --epsilon alone, for any mechanism"
    if options:
        raise UsageError(f"{options[0]} is an option of a mechanism", hint)
    if args.epsilon is None:
        raise UsageError("the local epsilon is missing", hint)
    (times,) = rounds
    return [_CardRounds("any mechanism", None, parse_epsilon(args.epsilon), times)]


def _named_cards(args: argparse.Namespace, rounds: Sequence[int]) -> list[_CardRounds]:
    is_alone = len(args.names) == 1
    only_files = not any(name in mechanisms.NAMES for name in args.names)
    if only_files and not is_alone and args.epsilon is not None:
        text = "--epsilon would change nothing: every NAME is a card file"
        raise UsageError(text, "leave it out")

    named_cards = []
    for name, times in zip(args.names, rounds, strict=True):
        card, description = named.card(args, name, is_alone)
        if card.shape >= SUM:
            must = f"1 with {name}, which is about all values"
            require(args.values == 1, "values", must, args.values)
        measure = cards.measure(card)
        certified = description[f"{measure}_certified"]
        if certified is None:
            hint = f"'tern card show {name}' shows its distribution"
            raise UsageError(f"{name} keeps no {measure} up to 20", hint=hint)
        mechanism = description.get("mechanism", name)
        named_cards.append(_CardRounds(mechanism, card, round(certified * MICRO), times))
    return named_cards


def _rounds(text: str | None, cards_named: int) -> list[int]:
    """The rounds of each of so many cards. Raises UsageError."""
    try:
        rounds = [int(word) for word in (text or "1").split(",")]
    except ValueError:
        must = "a whole number, or with several cards R,R,..."
        raise UsageError(f"--rounds must be {must}, not {text!r}", "such as 1000") from None
    for each in rounds:
        require(1 <= each <= _MOST_ROUNDS, "rounds", f"from 1 to {_MOST_ROUNDS:,}", f"{each:,}")
    if len(rounds) not in (1, cards_named):
        noun = "card" if cards_named == 1 else "cards"
        hint = "give one number for all, or one for each NAME"
        raise UsageError(f"--rounds has {len(rounds)} numbers for {cards_named} {noun}", hint)
    return rounds * (cards_named // len(rounds))


def _honest(args: argparse.Namespace) -> int:
    """How many reports of a round hide each other; 0 where the reader knows who sent them."""
    reports = int(args.reports or 0)
    return max(min(1, reports), math.floor(Fraction(str(args.honest)) * reports))


# Many rounds


def _run_rounds(args: argparse.Namespace) -> int:
    """The epsilon of a device's reports, round after round."""
    chosen = _cards_in_rounds(args)
    must = f"1 to {MAX_DIMENSION} over rounds"
    require(1 <= args.values <= MAX_DIMENSION, "values", must, args.values)
    is_mixed = args.reports is not None
    spent = {} if is_mixed else _spent_by_cards(chosen, args)
    if args.plot:
        from ternhost.plots import canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))

    rows = _rows(chosen, args)
    last = rows[-1]
    epsilon = min(bound for key, bound in last.items() if key != "rounds" and bound is not None)
    name = " + ".join(card.name for card in chosen)
    result = {
        "what": name,
        "cards": [{"what": card.name, "rounds": card.rounds} for card in chosen],
        "values": args.values,
        "rounds": last["rounds"],
        "delta": args.delta,
        **spent,
        "rows": rows,
        "epsilon_pure": last["pure"],
        "epsilon_zcdp": last["zcdp"],
        "epsilon_exact": last["exact"],
        "epsilon": epsilon,
    }
    if is_mixed:
        honest = _honest(args)
        result |= {"reports": args.reports, "honest": honest, "epsilon_central": epsilon}
        result |= _conditions()
    if args.plot:
        _draw_rounds(name, rows, args)

    lines = _rounds_lines(name, rows, epsilon, args)
    if spent:
        lines.append(_ledger_words(name, spent))
    else:
        lines.append(_holds("the local epsilon"))
    print_result(result, "\n".join(lines), args.json)
    return OK


def _draw_rounds(name: str, rows: Sequence[Mapping[str, Any]], args: argparse.Namespace) -> None:
    """The epsilons against the rounds, into the file of --plot."""
    from ternhost.plots import accounts, canvas  # loads matplotlib

    title = canvas.plain(name)
    across = "reports of a device"
    if args.reports is not None:
        title += f", {_honest(args):,} reports a round"
        across = "rounds"
    title += f", delta {args.delta:g}"
    curves = {heading: [row[key] for row in rows] for heading, key in reversed(_columns(rows))}
    rounds = [row["rounds"] for row in rows]
    figure = accounts.epsilons(rounds, across, "epsilon", curves, title)
    canvas.save(figure, Path(args.plot))


def _rows(chosen: Sequence[_CardRounds], args: argparse.Namespace) -> list[dict[str, Any]]:
    """The epsilons after shares of the rounds.

    All cards go through the same shares, at least one round of each.
    """
    must = f"{shuffling.LEAST_DELTA:g} or more"
    require(args.delta >= shuffling.LEAST_DELTA, "delta", must, f"{args.delta:g}")
    is_mixed = args.reports is not None
    rows = []
    with Progress("rounds") as progress:
        direct = math.inf  # of one round of the last card, without the grid of several rounds
        if is_mixed:
            for card in chosen:
                progress.step(f"one of {card.name}")
                # It refuses what cannot be mixed.
                direct = _one_round(card, _honest(args), args).epsilon
        most = max(card.rounds for card in chosen)
        for rounds in _ladder(most):
            progress.step(f"{rounds:,} of {most:,}")
            times = [-(-card.rounds * rounds // most) for card in chosen]
            row = _row(chosen, times, args)
            if is_mixed and row["rounds"] == 1:
                row["behind"] = min(row["behind"], direct)
            rows.append(row)
    return rows


def _row(
    chosen: Sequence[_CardRounds], times: Sequence[int], args: argparse.Namespace
) -> dict[str, Any]:
    """The epsilons of so many rounds of each card."""
    local: Counter[ReportKind] = Counter()
    mixed: Counter[ReportKind] = Counter()
    for card, rounds in zip(chosen, times, strict=True):
        local[card.report(1)] += rounds * args.values
        mixed[card.report(args.values).among(_honest(args))] += rounds
    loss = composing.compose(local, args.delta)
    row = {"rounds": sum(times), "pure": loss.pure, "zcdp": loss.zcdp, "exact": loss.exact}
    if args.reports is not None:
        row["behind"] = min(composing.compose_exactly(mixed, args.delta), loss.epsilon)
    return row


def _ladder(most: int) -> list[int]:
    """About a dozen round numbers up to this one, which is the last."""
    if most <= 12:
        return list(range(1, most + 1))
    digits = (1, 2, 5) if most <= 10**4 else (1, 3)
    ladder = []
    for power in range(7):
        for digit in digits:
            number = digit * 10**power
            if number < most:
                ladder.append(number)
    return [*ladder, most]


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(heading, key) of the table and the picture."""
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
    """The table of epsilons for people."""
    head = f"{name}: epsilon of a device's reports together"
    if args.values > 1:
        head += f", {args.values} values in a report"
    head += f", at delta {args.delta:g}"
    counted, bound = "reports", "epsilon"
    if args.reports is not None:
        head += f", each one of {_honest(args):,} honest ones"
        counted, bound = "rounds", "central epsilon"

    columns = _columns(rows)
    headings = "".join(f"  {heading:>11}" for heading, _ in columns)
    lines = [f"{head}:", f"  {counted:>9}{headings}"]
    for row in rows:
        cells = [f"  {_number(row[key]):>{max(11, len(heading))}}" for heading, key in columns]
        lines.append(f"  {row['rounds']:>9,}{''.join(cells)}")
    return [*lines, f"After all of them the {bound} is {_number(epsilon)}."]


def _number(bound: float | None) -> str:
    return "-" if bound is None else rounded(bound)


# One round, behind a shuffler


def _run_one_round(args: argparse.Namespace) -> int:
    """The central epsilon of one report behind a shuffler."""
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
    """The central epsilon against the number of reports, into the file of --plot."""
    from ternhost.plots import accounts, canvas  # loads matplotlib

    honest = bounds.reports
    ladder = {round(honest * 10 ** (i / 2)) for i in (-4, -3, -2, -1, 1, 2)}
    ladder.discard(honest)
    curve = [bounds]
    with Progress("reports") as progress:
        for reports in sorted(ladder):
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
    """Behind whom the central epsilon holds, and toward which hosts, for JSON."""
    needs = "an anonymous shuffler"
    toward_the_host = {"ports": False, "broker": False}
    for word in intermediaries():
        needs += f", or a {word} that its devices trust"
        toward_the_host[word] = True
    return {"needs": needs, "holds_toward_the_host": toward_the_host}


def _holds(local: str) -> str:
    behind = "behind an anonymous shuffler"
    for word in intermediaries():
        behind += f", or toward the owner\nof the server behind a {word} that the devices trust"
    return (
        f"This holds toward a reader who cannot see who sent what: {behind},"
        " if all of them get the same question. Toward a host\n"
        f"that gets the reports themselves, over MQTT or serial ports, a device spends {local}."
    )


def _one_round_words(what: str, bounds: Shuffled) -> str:
    """The bounds of one round, for people."""
    lines = [
        f"{what}: local epsilon {bounds.local:.8g} per report; central epsilon of {bounds.reports:,} honest reports "
        f"behind a shuffler, at delta {bounds.delta:g}:"
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
    """What --rho or --epsilon for all reports together leaves each of them."""
    if args.plot:
        text = "--plot draws the epsilon of cards, or behind a shuffler"
        raise UsageError(text, "give NAME or --reports")
    require(args.values >= 1, "values", "1 or more", args.values)
    given = [name for name in ("rho", "epsilon") if getattr(args, name) is not None]
    exclude(given, "rho", "epsilon")
    (rounds,) = _rounds(args.rounds, 1)
    if args.rho is not None:
        total = parse_epsilon(args.rho, ledger.MAX_BUDGET, "--rho")
    elif args.epsilon is not None:
        total = sums.rho_of(parse_epsilon(args.epsilon, ledger.MAX_BUDGET) / MICRO, args.delta)
    else:
        hint = "--rho, --epsilon or a card; or --reports, for a shuffler"
        raise UsageError("what is spent is missing", hint)
    spent = _spent({ReportKind(total, gaussian=True): 1}, rounds, _unit(args, 0), args)
    print_result({"what": "all reports", **spent}, _ledger_words("all reports", spent), args.json)
    return OK


def _unit(args: argparse.Namespace, of_cards: int) -> int:
    """The records of the unit that --unit names, by default that of the cards."""
    if args.unit is None:
        return of_cards
    return parse_unit(args.unit)


def _spent_by_cards(chosen: Sequence[_CardRounds], args: argparse.Namespace) -> dict[str, Any]:
    """What the reports of these cards cost a ledger in rho. Raises UsageError."""
    if args.rho is not None:
        raise UsageError("--rho is about no card", "leave NAME or --rho out")
    units = {cards.unit_of(each.card.data) for each in chosen if each.card is not None} - {0}
    if len(units) > 1 and args.unit is None:
        hint = "account for each, or name one with --unit"
        raise UsageError("these cards protect different units", hint)
    reports: Counter[ReportKind] = Counter()
    for card in chosen:
        reports[card.report(args.values)] += card.rounds
    unit_of_cards = max(units, default=0)
    unit = _unit(args, unit_of_cards)
    hide_presence = unit_of_cards > 0
    spent = _spent(reports, sum(reports.values()), unit, args, hide_presence)
    if len(chosen) > 1:
        spent |= {"rho_each": None, "epsilon_each_pure": None}
    return spent


def _spent(
    reports: Mapping[ReportKind, int],
    rounds: int,
    unit: int,
    args: argparse.Namespace,
    hide_presence: bool = True,
) -> dict[str, Any]:
    """What these reports mean for each of so many rounds, for a unit, and for a device.

    hide_presence: they hide that a run of records is there; what it says is two steps away
    (ledger.md, Neighbours). Raises UsageError.
    """
    require(args.units >= 1, "units", "1 or more", args.units)
    must = "1 where the unit is the whole device"
    require(unit > 0 or args.units == 1, "units", must, args.units)
    total = sum(times * report.rho for report, times in reports.items())
    each = total // rounds
    if not each:
        hint = "spend at least a millionth a report, and at most 20"
        raise UsageError("a report has no rho, or too much", hint)
    of_unit = {replace(report, unit=unit): times for report, times in reports.items()}

    def epsilon(steps: int) -> float:
        return composing.compose(composing.for_steps(of_unit, steps), args.delta).epsilon

    hide_content = hide_presence and unit > 0
    return {
        "rounds": rounds,
        "delta": args.delta,
        "rho": total / MICRO,
        "rho_each": each / MICRO,
        "epsilon_each_pure": sums.pure_of(each) / MICRO,
        "unit": unit,
        "protects": protected(unit),
        "units": args.units,
        "epsilon": epsilon(1),
        "epsilon_content": epsilon(2) if hide_content else None,
        "epsilon_device": epsilon(args.units),
        "epsilon_device_content": epsilon(2 * args.units) if hide_content else None,
    }


def _ledger_words(what: str, spent: Mapping[str, Any]) -> str:
    """What a ledger in rho pays, for people."""
    protection = f"for {spent['protects']} {_both(spent, 'epsilon')}"
    lines = [f"{what}: rho {spent['rho']:g} in total, {protection}"]
    if spent["rho_each"] is not None:
        lines.append(
            f"  reports    {spent['rounds']:,} of rho {spent['rho_each']:.4g}; "
            f"of a pure mechanism each has epsilon {spent['epsilon_each_pure']:.4g}"
        )
    if spent["units"] > 1:
        of_device = _both(spent, "epsilon_device")
        lines.append(f"  device     a whole device has {spent['units']:,} units: {of_device}")
        text = "what is common to all of its records is protected by no more than that"
        if spent["epsilon_device"] > _MEANS_LITTLE:
            text += ": hardly at all"
        lines.append(f"             {text}")
    elif spent["unit"]:
        text = "a whole device is protected less: --units says how many units it holds"
        lines.append(f"  device     {text}")
    return "\n".join(lines)


def _both(spent: Mapping[str, Any], name: str) -> str:
    """An epsilon, of a run of records that it was there and what it says."""
    text = f"epsilon {_number(spent[name])} at delta {spent['delta']:g}"
    content = spent[f"{name}_content"]
    if content is None:
        return text
    return f"{text} (that it was there) and {_number(content)} (what it says)"
