"""`tern card account`: the epsilon of reports together, toward who knows their senders, and behind
a shuffler or another intermediary.
"""

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


def add_parser(actions: Any) -> None:
    behind = " or ".join(f"a {word}" for word in ["shuffler", *intermediaries()])
    summary = f"tell the epsilon of a device's reports together, also behind {behind}"
    example = """tern card account three-outputs --epsilon .1 --rounds 1000 --delta 1e-6 --plot rounds.png
    tern card account three-outputs pm --epsilon 1 --rounds 100,20 --reports 5000 --honest .9 --delta 1e-6
    tern card account three-outputs --epsilon 4 --reports 20000 --delta 1e-6
    tern card account --epsilon 1 --reports 294000 --delta 1e-6 --plot shuffled.png
    tern card account --epsilon 10 --delta 1e-6 --rounds 8760 --unit 60 --units 100"""
    account = add_command(actions, "account", summary, example, run_account)
    named.add_arguments(account, many=True)
    text = "number of reports of a device, one a round; with several NAMEs also a number for each (default: 1)"
    add_option(account, "--rounds R[,R,...]", text)
    text = f"behind {behind}: number of reports that it mixes in a round, one of each device"
    add_option(account, "--reports N", text, type=int)
    text = "with --reports: the share of them that the reader does not control"
    add_option(account, "--honest SHARE", text, 1.0)
    add_option(
        account,
        "--delta D",
        "delta; of central privacy well below 1 / N",
        type=float,
        required=True,
    )
    add_option(
        account, "--values K", "number of values in a report, each at the epsilon of the card", 1
    )
    text = "without NAME and --reports: rho of all reports together (or --epsilon for their (epsilon, delta))"
    add_option(account, "--rho R", text)
    text = "without --reports: device, record, or the records of a unit (default: device)"
    add_option(account, "--unit UNIT", text)
    add_option(account, "--units N", "without --reports: number of units that a device holds", 1)
    text = "also draw epsilon into this file: against the rounds, or without --rounds against the number of reports"
    add_option(account, "--plot FILE.png", text)


def run_account(args: argparse.Namespace) -> int:
    if args.reports is None:
        require(args.honest == 1, "honest", "1 without --reports", args.honest)
        return _run_rounds(args) if args.names else _run_ledger(args)
    if given := [f"--{name}" for name, unset in _LEDGER.items() if getattr(args, name) != unset]:
        raise UsageError(
            f"{given[0]} is about a ledger, --reports about a shuffler", "leave one of them out"
        )
    require(0 < args.honest <= 1, "honest", "above 0 and at most 1", args.honest)
    if args.rounds is None and len(args.names) < 2:
        return _run_one_round(args)
    return _run_rounds(args)


@dataclass(frozen=True)
class _Asked:
    """A card in so many rounds; without a card, any mechanism. cost: certified, of one value
    (micro).
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
        if self.card is None:
            return ReportKind(values * self.cost, values=values)
        made = ReportKind.of(self.card, values)
        return replace(made, cost=made.values * self.cost)  # the card may claim more than it takes


def _asked(args: argparse.Namespace) -> list[_Asked]:
    """What the command line names. Raises UsageError."""
    rounds = _rounds(args.rounds, max(1, len(args.names)))
    if args.names:
        found, alone = [], len(args.names) == 1
        files = not any(name in mechanisms.NAMES for name in args.names)
        if files and not alone and args.epsilon is not None:
            raise UsageError(
                "--epsilon would change nothing: every NAME is a card file", "leave it out"
            )
        for name, times in zip(args.names, rounds, strict=True):
            card, description = named.card(args, name, alone)
            if card.shape >= SUM:
                require(
                    args.values == 1,
                    "values",
                    f"1 with {name}, which is about all values",
                    args.values,
                )
            measure = cards.measure(card)
            if (cost := description[f"{measure}_certified"]) is None:
                hint = f"'tern card show {name}' shows its distribution"
                raise UsageError(f"{name} keeps no {measure} up to 20", hint=hint)
            found.append(
                _Asked(description.get("mechanism", name), card, round(cost * MICRO), times)
            )
        return found
    options = mechanisms.options_named(args, "levels")
    if options or args.epsilon is None:
        raise UsageError(
            f"{options[0]} is an option of a mechanism"
            if options
            else "the local epsilon is missing",
            hint="name a mechanism with --epsilon, or a card file; or give --epsilon alone, for any mechanism",
        )
    return [_Asked("any mechanism", None, parse_epsilon(args.epsilon), *rounds)]


def _rounds(text: str | None, names: int) -> list[int]:
    """The rounds of each of so many cards. Raises UsageError."""
    try:
        rounds = [int(word) for word in (text or "1").split(",")]
    except ValueError:
        must = "a whole number, or with several cards R,R,..."
        raise UsageError(f"--rounds must be {must}, not {text!r}", "such as 1000") from None
    for each in rounds:
        require(1 <= each <= _MOST_ROUNDS, "rounds", f"from 1 to {_MOST_ROUNDS:,}", f"{each:,}")
    if len(rounds) not in (1, names):
        hint = "give one number for all, or one for each NAME"
        raise UsageError(
            f"--rounds has {len(rounds)} numbers for {names} card{'s' * (names > 1)}", hint
        )
    return rounds * (names // len(rounds))


def _honest(args: argparse.Namespace) -> int:
    """How many reports of a round hide each other; 0 where the reader knows who sent them."""
    reports = int(args.reports or 0)
    return max(min(1, reports), math.floor(Fraction(str(args.honest)) * reports))


# Many rounds


def _run_rounds(args: argparse.Namespace) -> int:
    """What the reports of a device tell, round after round."""
    asked = _asked(args)
    require(
        1 <= args.values <= MAX_DIMENSION,
        "values",
        f"1 to {MAX_DIMENSION} over rounds",
        args.values,
    )
    spent = {} if args.reports is not None else _spent_by(asked, args)
    if args.plot:
        from ternhost.plots import accounts, canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))
    rows = _rows(asked, args)
    last, name = rows[-1], " + ".join(one.name for one in asked)
    least = min(bound for key, bound in last.items() if key != "rounds" and bound is not None)
    words = _rounds_words(name, rows, least, args)
    words.append(_ledger_words(name, spent) if spent else _holds("the local epsilon"))
    result = {
        "what": name,
        "cards": [{"what": one.name, "rounds": one.rounds} for one in asked],
        "values": args.values,
        "rounds": last["rounds"],
        "delta": args.delta,
        **spent,
        "rows": rows,
        "epsilon_pure": last["pure"],
        "epsilon_zcdp": last["zcdp"],
        "epsilon_exact": last["exact"],
        "epsilon": least,
    }
    if args.reports is not None:
        result |= {
            "reports": args.reports,
            "honest": _honest(args),
            "epsilon_central": least,
            **_conditions(),
        }
    if args.plot:
        curves = {label: [row[key] for row in rows] for label, key in reversed(_columns(rows))}
        of = "" if args.reports is None else f", {_honest(args):,} reports a round"
        title = f"{canvas.plain(name)}{of}, delta {args.delta:g}"
        across = "reports of a device" if args.reports is None else "rounds"
        figure = accounts.epsilons(
            [row["rounds"] for row in rows], across, "epsilon", curves, title
        )
        canvas.save(figure, Path(args.plot))
    print_result(result, "\n".join(words), args.json)
    return OK


def _rows(asked: Sequence[_Asked], args: argparse.Namespace) -> list[dict[str, Any]]:
    """The epsilons after shares of the rounds.

    All cards go through the same shares, at least one round of each.
    """
    require(
        args.delta >= shuffling.LEAST_DELTA,
        "delta",
        f"{shuffling.LEAST_DELTA:g} or more",
        f"{args.delta:g}",
    )
    rows, most, honest, direct = [], max(one.rounds for one in asked), _honest(args), math.inf
    with Progress("rounds") as progress:
        for one in asked if args.reports is not None else ():  # refuses what cannot be mixed
            progress.step(f"one of {one.name}")
            direct = shuffling.account(
                one.cost, honest, args.delta, one.as_values, args.values
            ).epsilon
        for r in _ladder(most):
            progress.step(f"{r:,} of {most:,}")
            times = [-(-one.rounds * r // most) for one in asked]
            local: Counter[ReportKind] = Counter()
            mixed: Counter[ReportKind] = Counter()
            for one, n in zip(asked, times, strict=True):
                local[one.report(1)] += n * args.values
                mixed[one.report(args.values).among(honest)] += n
            found = composing.compose(local, args.delta)
            row = {
                "rounds": sum(times),
                "pure": found.pure,
                "zcdp": found.zcdp,
                "exact": found.exact,
            }
            if args.reports is not None:
                behind = min(composing.compose_exactly(mixed, args.delta), found.epsilon)
                row["behind"] = (
                    behind if sum(times) > 1 else min(behind, direct)
                )  # no grid raises `direct`
            rows.append(row)
    return rows


def _ladder(most: int) -> list[int]:
    """About a dozen round numbers up to this one, which is the last."""
    if most <= 12:
        return list(range(1, most + 1))
    digits = (1, 2, 5) if most <= 10**4 else (1, 3)
    nice = (digit * 10**power for power in range(7) for digit in digits)
    return [*(r for r in nice if r < most), most]


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(heading, key) of the table and the picture."""
    if "behind" in rows[0]:
        return [
            ("local pure", "pure"),
            ("local exact", "exact"),
            (f"behind the {_last_intermediary()}", "behind"),
        ]
    return [("pure", "pure"), ("zCDP", "zcdp"), ("exact", "exact")]


def _rounds_words(
    name: str, rows: Sequence[Mapping[str, Any]], least: float, args: argparse.Namespace
) -> list[str]:
    each = f", {args.values} values in a report" if args.values > 1 else ""
    head = f"{name}: epsilon of a device's reports together{each}, at delta {args.delta:g}"
    if mixed := args.reports is not None:
        head += f", each one of {_honest(args):,} honest ones"
    columns = _columns(rows)
    lines = [
        f"{head}:",
        "".join([f"  {'rounds' if mixed else 'reports':>9}", *(f"  {h:>11}" for h, _ in columns)]),
    ]
    for row in rows:
        cells = "".join(
            f"  {_number(row[key]):>{max(11, len(heading))}}" for heading, key in columns
        )
        lines.append(f"  {row['rounds']:>9,}{cells}")
    central = "central epsilon" if mixed else "epsilon"
    return [*lines, f"After all of them the {central} is {_number(least)}."]


def _number(bound: float | None) -> str:
    return "-" if bound is None else rounded(bound)


# One round, behind a shuffler


def _run_one_round(args: argparse.Namespace) -> int:
    (one,) = _asked(args)
    card, honest = one.as_values, _honest(args)
    if args.plot:
        from ternhost.plots import accounts, canvas  # loads matplotlib

        canvas.check_place(Path(args.plot))
    account = shuffling.account(one.cost, honest, args.delta, card, args.values)
    if args.plot:
        ladder = {round(honest * 10 ** (i / 2)) for i in range(-4, 3) if i}
        curve = [account]
        with Progress("reports") as progress:
            for n in sorted(n for n in ladder if 1 <= n <= shuffling.MOST_REPORTS and n != honest):
                progress.step(f"{n:,}")
                curve.append(shuffling.account(one.cost, n, args.delta, card, args.values))
        curve.sort(key=lambda one: one.reports)
        title = f"{one.name}, local epsilon {account.local:g}, delta {args.delta:g}"
        names = {"this card": "card", "any mechanism": "any_mechanism", "closed bound": "closed"}
        names["local: without a shuffler"] = "local"
        drawn = {label: [getattr(at, name) for at in curve] for label, name in names.items()}
        up = "central epsilon, behind a shuffler"
        canvas.save(
            accounts.epsilons([at.reports for at in curve], "reports", up, drawn, title),
            Path(args.plot),
        )
    bounds = ("local", "closed", "any_mechanism", "card")
    result = {
        "what": one.name,
        "values": args.values,
        "reports": args.reports,
        "honest": honest,
        "delta": args.delta,
        **{f"epsilon_{name}": getattr(account, name) for name in bounds},
        "epsilon_central": account.epsilon,
        **_conditions(),
    }
    print_result(result, _one_round_words(one.name, account), args.json)
    return OK


def _last_intermediary() -> str:
    return ["shuffler", *intermediaries()][-1]


def _conditions() -> dict[str, Any]:
    """Behind whom the central epsilon holds, and toward which hosts, for JSON."""
    trusted = "".join(f", or a {word} that its devices trust" for word in intermediaries())
    toward_the_host = {"ports": False, "broker": False}
    toward_the_host |= dict.fromkeys(intermediaries(), True)
    return {
        "needs": f"an anonymous shuffler{trusted}",
        "holds_toward_the_host": toward_the_host,
    }


def _holds(local: str) -> str:
    behind = "behind an anonymous shuffler"
    for word in intermediaries():
        behind += f", or toward the owner\nof the server behind a {word} that the devices trust"
    return (
        f"This holds toward a reader who cannot see who sent what: {behind},"
        " if all of them get the same question. Toward a host\n"
        f"that gets the reports themselves, over MQTT or serial ports, a device spends {local}."
    )


def _one_round_words(what: str, account: Shuffled) -> str:
    lines = [
        f"{what}: local epsilon {account.local:.8g} per report; central epsilon of {account.reports:,} honest reports "
        f"behind a shuffler, at delta {account.delta:g}:"
    ]
    if account.card is not None:
        lines.append(
            f"  {rounded(account.card):<10} this card, from its integers (privacy blanket)"
        )
    lines.append(
        f"  {rounded(account.any_mechanism):<10} any mechanism of that local epsilon (privacy blanket)"
    )
    if account.closed is None:
        lines.append(
            f"  {'-':10} the closed bound does not apply: too few reports, or too large an epsilon"
        )
    else:
        lines.append(f"  {rounded(account.closed):<10} closed bound (hiding among the clones)")
    better = "" if account.epsilon <= 0.999 * account.local else ", no better than the local one"
    lines.append(f"The central epsilon is {rounded(account.epsilon)}{better}.")
    return "\n".join([*lines, _holds(f"the local {account.local:.8g}")])


# What a ledger in rho pays


def _run_ledger(args: argparse.Namespace) -> int:
    """What --rho or --epsilon for all reports together leaves each of them."""
    if args.plot:
        raise UsageError(
            "--plot draws the epsilon of cards, or behind a shuffler", "give NAME or --reports"
        )
    require(args.values >= 1, "values", "1 or more", args.values)
    exclude(
        [name for name in ("rho", "epsilon") if getattr(args, name) is not None], "rho", "epsilon"
    )
    (rounds,) = _rounds(args.rounds, 1)
    if args.rho is not None:
        total = parse_epsilon(args.rho, ledger.MAX_BUDGET, "--rho")
    elif args.epsilon is not None:
        total = sums.rho_of(parse_epsilon(args.epsilon, ledger.MAX_BUDGET) / MICRO, args.delta)
    else:
        hint = "--rho, --epsilon or a card; or --reports, for a shuffler"
        raise UsageError("what is spent is missing", hint)
    spent = _spent({ReportKind(total, gaussian=True): 1}, rounds, 0, args, presence=True)
    print_result({"what": "all reports", **spent}, _ledger_words("all reports", spent), args.json)
    return OK


def _spent_by(asked: Sequence[_Asked], args: argparse.Namespace) -> dict[str, Any]:
    """What the reports of these cards cost a ledger in rho. Raises UsageError."""
    if args.rho is not None:
        raise UsageError("--rho is about no card", "leave NAME or --rho out")
    units = {cards.unit_of(one.card.data) for one in asked if one.card is not None} - {0}
    if len(units) > 1 and args.unit is None:
        raise UsageError(
            "these cards protect different units", "account for each, or name one with --unit"
        )
    reports: Counter[ReportKind] = Counter()
    for one in asked:
        reports[one.report(args.values)] += one.rounds
    unit = max(units, default=0)
    spent = _spent(reports, sum(reports.values()), unit, args, presence=unit > 0)
    return spent if len(asked) == 1 else spent | {"rho_each": None, "epsilon_each_pure": None}


def _spent(
    reports: Mapping[ReportKind, int],
    rounds: int,
    unit: int,
    args: argparse.Namespace,
    presence: bool,
) -> dict[str, Any]:
    """What these reports mean for each of so many rounds, for a unit, and for a device.

    Raises UsageError.

    presence: they hide that a run of records is there; what it says is two steps away (ledger.md,
    Neighbours).
    """
    require(args.units >= 1, "units", "1 or more", args.units)
    unit = unit if args.unit is None else parse_unit(args.unit)
    require(
        unit > 0 or args.units == 1, "units", "1 where the unit is the whole device", args.units
    )
    total = sum(times * report.rho for report, times in reports.items())
    each = total // rounds
    if not each:
        hint = "spend at least a millionth a report, and at most 20"
        raise UsageError("a report has no rho, or too much", hint)
    of_unit = {replace(report, unit=unit): times for report, times in reports.items()}

    def epsilon(steps: int) -> float:
        return composing.compose(composing.for_steps(of_unit, steps), args.delta).epsilon

    told_twice = presence and unit > 0
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
        "epsilon_content": epsilon(2) if told_twice else None,
        "epsilon_device": epsilon(args.units),
        "epsilon_device_content": epsilon(2 * args.units) if told_twice else None,
    }


def _ledger_words(what: str, spent: Mapping[str, Any]) -> str:
    lines = [
        f"{what}: rho {spent['rho']:g} in total, for {spent['protects']} {_both(spent, 'epsilon')}"
    ]
    if spent["rho_each"] is not None:
        lines.append(
            f"  reports    {spent['rounds']:,} of rho {spent['rho_each']:.4g}; "
            f"of a pure mechanism each has epsilon {spent['epsilon_each_pure']:.4g}"
        )
    if spent["units"] > 1:
        lines.append(
            f"  device     a whole device has {spent['units']:,} units: {_both(spent, 'epsilon_device')}"
        )
        common = (
            "             what is common to all of its records is protected by no more than that"
        )
        if spent["epsilon_device"] > _MEANS_LITTLE:
            common += ": hardly at all"
        lines.append(common)
    elif spent["unit"]:
        lines.append(
            "  device     a whole device is protected less: --units says how many units it holds"
        )
    return "\n".join(lines)


def _both(spent: Mapping[str, Any], name: str) -> str:
    """An epsilon, of a run of records that it was there and what it says."""
    text = f"epsilon {_number(spent[name])} at delta {spent['delta']:g}"
    content = spent[f"{name}_content"]
    return (
        text
        if content is None
        else f"{text} (that it was there) and {_number(content)} (what it says)"
    )
