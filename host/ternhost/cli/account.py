"""`tern card account`: the epsilon of reports together, also behind a shuffler.

A card is the certified table from which a device samples its report. Each report has a local
epsilon; many reports of a device add up. A shuffler hides who sent a report among the reports of
others: then a smaller "central" epsilon holds. A ledger is the budget of a device, in epsilon or in
rho (zCDP).
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from tern import ledger
from tern.wire import MAX_DIMENSION
from ternhost.cli import named
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, UsageError
from ternhost.extensions import intermediaries
from ternhost.options import require
from ternhost.privacy import cards, many_reports, shuffling
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.composing import PrivacyLoss
from ternhost.privacy.guarantee import Bounds, rounded
from ternhost.privacy.many_reports import CardReports, Epsilons, LedgerCosts
from ternhost.privacy.shuffling import Shuffled
from ternhost.privacy.units import parse_unit, protected
from ternhost.terminal import Progress
from ternhost.text import counted

_MEANS_LITTLE = 10  # an epsilon above this is said to say little
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
class _NamedCard:
    """The reports that a device draws from a card, and the name of the card's mechanism."""

    name: str
    reports: CardReports


def _named_cards(args: argparse.Namespace) -> list[_NamedCard]:
    """Load or design the cards that the command line names, and certify them.

    Returns the reports of each. Raises UsageError if there is none, or one without a certified
    cost, and for options that do not fit.
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
        named_cards.append(_certified(name, args.k, round_count))
    return named_cards


def _certified(name: str, values: int, rounds: int) -> _NamedCard:
    """Return the reports of the named card, with its certified cost.

    values: the number of values in a report. rounds: the number of reports. Raises UsageError for
    a card without a certified cost.
    """
    mechanism, _, epsilon = name.partition(":")
    if mechanism == _ANY and epsilon:
        any_of_cost = CardReports(None, parse_epsilon(epsilon), values, rounds)
        return _NamedCard("any mechanism", any_of_cost)
    card, description = named.card(name)
    certified = description[f"{cards.measure(card)}_certified"]
    reports = CardReports.of_card(card, certified, values, rounds)
    return _NamedCard(description.get("mechanism", name), reports)


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
        many_reports.require_rounds(number)
    if len(numbers) == card_count:
        return numbers
    if len(numbers) == 1:
        return numbers * card_count
    hint = "give one number for all, or one for each CARD"
    raise UsageError(f"--rounds has {len(numbers)} numbers for {counted(card_count, 'card')}", hint)


# Many rounds


def _run_rounds(args: argparse.Namespace) -> int:
    """Print the epsilon of a device's reports together, after a growing number of rounds.

    With --shuffled the reports are behind a shuffler; otherwise also the cost to a ledger is
    printed. Returns the exit code.
    """
    allowed = f"1 to {MAX_DIMENSION} over rounds"
    require(1 <= args.k <= MAX_DIMENSION, "k", allowed, args.k)
    named_cards = _named_cards(args)
    reports = [card.reports for card in named_cards]
    ledger_costs = None
    if args.shuffled is None:
        unit = None if args.unit is None else parse_unit(args.unit)
        ledger_costs = many_reports.costs_of_cards(reports, args.delta, unit, args.records)
    _check_plot(args)

    rows = _rows(reports, args)
    card_names = " + ".join(card.name for card in named_cards)
    if args.plot:
        _draw_rounds(card_names, rows, args)
    result = {
        "what": card_names,
        "cards": [{"what": card.name, "rounds": card.reports.rounds} for card in named_cards],
        "k": args.k,
        "delta": args.delta,
        **_json_of_rows(rows, args),
    }
    lines = _rounds_lines(card_names, rows, args)
    if ledger_costs is None:
        result["shuffled"] = args.shuffled
        result["epsilon_central"] = rows[-1].epsilon
        result |= _conditions()
        lines.append(_holds("the local epsilon"))
    else:
        result = {**_json_of_costs(ledger_costs), **result}
        lines.append(_ledger_words(card_names, ledger_costs))
    print_result(result, "\n".join(lines), args.json)
    return OK


def _json_of_rows(rows: Sequence[Epsilons], args: argparse.Namespace) -> dict[str, Any]:
    """Return the epsilons after growing numbers of rounds, and after all of them, for JSON."""
    rows_of_json = []
    for row in rows:
        epsilons = {"rounds": row.rounds, "pure": row.pure, "zcdp": row.zcdp, "exact": row.exact}
        if args.shuffled is not None:
            epsilons["behind"] = row.shuffled
        rows_of_json.append(epsilons)
    last_row = rows[-1]
    return {
        "rounds": last_row.rounds,
        "rows": rows_of_json,
        "epsilon_pure": last_row.pure,
        "epsilon_zcdp": last_row.zcdp,
        "epsilon_exact": last_row.exact,
        "epsilon": last_row.epsilon,
    }


def _check_plot(args: argparse.Namespace) -> None:
    """Raise UsageError if --plot names a file that cannot be written, before a long computation."""
    if args.plot:
        from ternhost.plots import canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))


def _draw_rounds(name: str, rows: Sequence[Epsilons], args: argparse.Namespace) -> None:
    """Draw the epsilons against the rounds, into the file of --plot.

    name: the names of the cards, for the title. rows: from `_rows`.
    """
    from ternhost.plots import accounts, canvas  # loads matplotlib

    title = canvas.plain(name)
    if args.shuffled is not None:
        title += f", {counted(args.shuffled, 'report')} a round"
    title += f", delta {args.delta:g}"
    columns = _columns(args)
    figure = accounts.over_rounds(rows, dict(reversed(columns.items())), title)
    canvas.save(figure, Path(args.plot))


def _rows(reports: Sequence[CardReports], args: argparse.Namespace) -> list[Epsilons]:
    """Return the epsilons after a growing share of the rounds.

    A share is, say, a tenth of the rounds of every card, and at least one round of each.
    """
    many_reports.require_delta(args.delta)
    rows = []
    with Progress("rounds", quiet=args.quiet) as progress:
        if args.shuffled is not None:
            progress.step("one")
            many_reports.require_shufflable(reports, args.shuffled, args.delta)
        most_rounds = max(of_card.rounds for of_card in reports)
        for rounds in many_reports.ladder(most_rounds):
            progress.step(f"{rounds:,} of {most_rounds:,}")
            rows.append(many_reports.epsilons_after(rounds, reports, args.delta, args.shuffled))
    return rows


def _columns(args: argparse.Namespace) -> dict[str, str]:
    """Return the columns of the table, which are the curves of the picture.

    They are the names of fields of `Epsilons`, by their headings.
    """
    if args.shuffled is not None:
        behind = f"behind the {_last_intermediary()}"
        return {"local pure": "pure", "local exact": "exact", behind: "shuffled"}
    return {"pure": "pure", "zCDP": "zcdp", "exact": "exact"}


def _rounds_lines(name: str, rows: Sequence[Epsilons], args: argparse.Namespace) -> list[str]:
    """Return the table of epsilons as lines of text.

    name: the names of the cards. rows: from `_rows`.
    """
    title = f"{name}: epsilon of a device's reports together"
    if args.k > 1:
        title += f", {args.k} values in a report"
    title += f", at delta {args.delta:g}"
    if rows[-1].pure is not None:
        title += " (the pure one needs none)"
    if args.shuffled is None:
        column = "reports"
        bound_name = "epsilon"
    else:
        title += f", each one of {args.shuffled:,} that are shuffled"
        column = "rounds"
        bound_name = "central epsilon"

    # The first column is 9 characters wide, each other one at least 11.
    columns = _columns(args)
    headings = ""
    for heading in columns:
        headings += f"  {heading:>11}"
    lines = [f"{title}:", f"  {column:>9}{headings}"]
    for row in rows:
        line = f"  {row.rounds:>9,}"
        for heading, name_of_bound in columns.items():
            width = max(11, len(heading))
            line += f"  {_number(getattr(row, name_of_bound)):>{width}}"
        lines.append(line)
    lines.append(f"After all of them the {bound_name} is {_number(rows[-1].epsilon)}.")
    return lines


def _number(bound: float | None) -> str:
    """Return a bound as text; "-" if there is none."""
    return "-" if bound is None else rounded(bound)


# One round, behind a shuffler


def _run_one_round(args: argparse.Namespace) -> int:
    """Print the central epsilon of one report of a device behind a shuffler; return the exit code."""
    card = _named_cards(args)[0]  # no more than one is named
    _check_plot(args)
    bounds = card.reports.one_round(args.shuffled, args.delta)
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


def _draw_one_round(card: _NamedCard, bounds: Shuffled, args: argparse.Namespace) -> None:
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
    with Progress("reports", quiet=args.quiet) as progress:
        for reports in sorted(report_counts):
            if 1 <= reports <= shuffling.MOST_REPORTS:
                progress.step(f"{reports:,}")
                curve.append(card.reports.one_round(reports, args.delta))
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
        f"central epsilon of {counted(bounds.reports, 'report')} behind a shuffler, "
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
    budget = parse_epsilon(args.budget, ledger.MAX_BUDGET, "--budget")
    unit = parse_unit(args.unit or "device")
    ledger_costs = many_reports.costs_of_budget(budget, rounds, args.delta, unit, args.records)
    result = {"what": "all reports", **_json_of_costs(ledger_costs)}
    print_result(result, _ledger_words("all reports", ledger_costs), args.json)
    return OK


def _json_of_costs(costs: LedgerCosts) -> dict[str, Any]:
    """Return what reports cost a ledger, for JSON, with what it protects in words."""
    fields: dict[str, Any] = {
        "rounds": costs.rounds,
        "delta": costs.loss.delta,
        "rho": costs.rho,
        "rho_each": costs.rho_each,
        "epsilon_each_pure": costs.epsilon_each_pure,
        "unit": costs.unit,
        "units": costs.units,
        "protects": protected(costs.unit),
    }
    losses = {
        "epsilon": costs.loss,
        "epsilon_content": costs.loss_content,
        "epsilon_device": costs.loss_device,
        "epsilon_device_content": costs.loss_device_content,
    }
    for name, loss in losses.items():
        fields[name] = None if loss is None else loss.epsilon
        fields[f"{name}_pure"] = None if loss is None else loss.pure
    return fields


def _ledger_words(what: str, costs: LedgerCosts) -> str:
    """Return in words what reports cost a ledger in rho, and what that protects.

    what: the reports in words.
    """
    of_unit = _both(costs.loss, costs.loss_content)
    lines = [f"{what}: rho {costs.rho:g} in total, for {protected(costs.unit)} {of_unit}"]
    if costs.rho_each is not None:
        lines.append(
            f"  reports    {costs.rounds:,} of rho {costs.rho_each:.4g}; "
            f"of a pure mechanism each has epsilon {costs.epsilon_each_pure:.4g}"
        )

    # A unit is part of a device: say how the whole device is protected.
    if costs.units > 1:
        of_device = _both(costs.loss_device, costs.loss_device_content)
        lines.append(f"  device     a whole device has {costs.units:,} units: {of_device}")
        remark = "for what all of its records have in common, nothing better is proved"
        if costs.loss_device.epsilon > _MEANS_LITTLE:
            remark += f", and an epsilon above {_MEANS_LITTLE} says little"
        lines.append(f"             {remark}")
    elif costs.unit:
        remark = "a whole device is protected less: --records says how many records it holds"
        lines.append(f"  device     {remark}")
    return "\n".join(lines)


def _both(presence: PrivacyLoss, content: PrivacyLoss | None) -> str:
    """Return two losses in words: for whether something was there, and for what it says.

    content: None of a whole device, whose presence is not hidden.
    """
    text = f"epsilon {Bounds.of_loss(presence).words}"
    if content is None:
        return text
    return f"{text} (that it was there) and {Bounds.of_loss(content).words} (what it says)"
