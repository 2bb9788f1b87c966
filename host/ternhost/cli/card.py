"""`tern card`: design, certify and show cards."""

import argparse
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tern import ledger
from tern.card import PROJECTION, SUM, Card
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import FAILED, OK, UsageError
from ternhost.files import storage_errors, write_file
from ternhost.options import exclude, require
from ternhost.privacy import cards, certify, matrix, mechanisms, projection, sums
from ternhost.privacy.base import MICRO, Design, parse_epsilon
from ternhost.privacy.mechanisms import shipped
from ternhost.privacy.units import parse_unit, protected
from ternhost.terminal import Progress

if TYPE_CHECKING:
    from ternhost.privacy.shuffling import Shuffled


def add_parser(subparsers: Any) -> None:
    summary = "design, certify and show cards, the integer tables of mechanisms"
    example = "tern card design three-outputs --epsilon 2 -o three.card\ntern card show three.card"
    card = add_command(subparsers, "card", summary, example)
    actions = card.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)

    summary = "design a card, and print its epsilon, variance and size"
    example = "tern card design pm-sub --epsilon 2 --levels 15 -o pm.card --json"
    design = add_command(actions, "design", summary, example, run_design)
    _mechanism_arguments(design, required=True)
    design.add_argument("-o", "--output", metavar="FILE", help="write the card to this file")

    summary = "prove from the integers of a card, or from any table, whether it keeps an epsilon "
    summary += "(exit code 0: yes, 1: no)"
    example = "tern card certify three.card --epsilon 2\ntern card certify my.csv --epsilon 1.5 --delta"
    certify = add_command(actions, "certify", summary, example, run_certify)
    text = "card file; or table of probabilities (.csv, .json): a row for each input, a column for an output"
    certify.add_argument("file", metavar="FILE", help=text)
    text = "epsilon in decimal (default: the card's claim; a table's is only printed)"
    add_option(certify, "--epsilon E", text)
    add_option(certify, "--rho R", "the same of a sum with Gaussian noise, which keeps rho and no epsilon")
    add_option(certify, "--delta", "also print the least delta of a table at --epsilon")

    example = "tern card show three.card\ntern card show pm-sub --epsilon 2 --levels 31 --plot pm.png"
    show = add_command(actions, "show", "draw the exact distribution of a card's outputs", example, run_show)
    _mechanism_arguments(show, required=False)
    add_option(show, "--plot FILE.png", "also draw it into this file")

    summary = "tell what reports cost a ledger in rho, or their central epsilon behind an anonymous shuffler"
    example = """tern card account three-outputs --epsilon 4 --reports 20000 --delta 1e-6
    tern card account --epsilon 1 --reports 294000 --delta 1e-6 --plot shuffled.png
    tern card account --epsilon 10 --delta 1e-6 --times 8760 --unit 60 --units 100"""
    account = add_command(actions, "account", summary, example, run_account)
    _mechanism_arguments(account, required=False, optional=True)
    text = "behind a shuffler: number of reports, each of an honest client"
    add_option(account, "--reports N", text, type=int)
    add_option(account, "--delta D", "delta; of central privacy well below 1 / N", type=float, required=True)
    add_option(account, "--values K", "number of values in a report", 1)
    text = "without --reports: rho of all reports together (or --epsilon for their (epsilon, delta), or NAME for each)"
    add_option(account, "--rho R", text)
    add_option(account, "--times N", "without --reports: number of reports of a device", 1)
    text = "without --reports: device, record, or the records of a unit (default: device)"
    add_option(account, "--unit UNIT", text)
    add_option(account, "--units N", "without --reports: number of units that a device holds", 1)
    add_option(account, "--plot FILE.png", "also draw epsilon against the number of reports into this file")

    add_command(actions, "list", "list the mechanisms and the shipped cards", "tern card list", run_list)


def _mechanism_arguments(parser: argparse.ArgumentParser, required: bool, optional: bool = False) -> None:
    text = "mechanism: " if required else "card file, or (with --epsilon) mechanism: "
    text += ", ".join(mechanisms.NAMES)
    if optional:
        text += "; without NAME, --epsilon stands for any mechanism"
    parser.add_argument("name", metavar="NAME", nargs="?" if optional else None, help=text)
    add_option(parser, "--epsilon E", "epsilon in decimal, rounded down to millionths", required=required)
    add_option(parser, "--levels N", "number of outputs, if the mechanism leaves a choice", type=int)
    mechanisms.add_options(parser)


def _design(args: argparse.Namespace) -> Design:
    options = mechanisms.options_given(args, args.name)
    return mechanisms.design(args.name, args.epsilon, args.levels, **options)


def run_design(args: argparse.Namespace) -> int:
    design = _design(args)
    if args.output:
        with storage_errors("name another --output", f"cannot write {args.output}"):
            write_file(Path(args.output), design.card)
    result = cards.describe_design(design)
    print_result(result, _summary(result), args.json)
    return OK


def run_certify(args: argparse.Namespace) -> int:
    epsilon = None if args.epsilon is None else parse_epsilon(args.epsilon)
    rho = None if args.rho is None else parse_epsilon(args.rho, option="--rho")
    table = Path(args.file).suffix.lower() in matrix.FORMATS
    if args.delta and (epsilon is None or not table):
        hint = "tern card certify FILE.csv --epsilon E --delta"
        raise UsageError("--delta needs a table and an epsilon", hint)
    if rho and table:
        raise UsageError("a table keeps an epsilon, not a rho", "give it as --epsilon")
    if table:
        result, reason = _of_table(matrix.read(args.file), epsilon, args.delta)
    else:
        result = cards.check(cards.load(args.file), epsilon, rho)
        reason = result["reason"]
    verdict = "certified" if result["certified"] else "NOT certified"
    asked = f" at epsilon {args.epsilon}" if args.epsilon else f" at rho {args.rho}" if rho else ""
    at = asked or ("" if table else " at its own claim")
    print_result(result, f"{args.file}: {verdict}{at}: {reason}", args.json)
    return OK if result["certified"] else FAILED


def _of_table(table: matrix.Certificate, epsilon: int | None, delta: bool) -> tuple[dict[str, Any], str]:
    """The result for JSON, and the reason in words."""
    certified = table.epsilon is not None if epsilon is None else table.keeps(epsilon)
    result = {"certified": certified, "epsilon": epsilon and epsilon / MICRO, **table.as_json()}
    first, second = table.pair
    if table.ratio is None:
        lines = [f"it keeps no epsilon: output {table.output} is possible at {first}, and not at {second}"]
    else:
        kept = "no epsilon up to 20" if table.epsilon is None else f"epsilon {table.epsilon / MICRO}"
        where = f"the ratio of output {table.output} at inputs {first} and {second}"
        lines = [f"it keeps {kept}, ln of {_exact(table.ratio)}, {where}"]
    if delta and epsilon is not None:
        least = table.delta(epsilon)
        result |= {"delta": cards.fraction(least), "delta_decimal": float(least)}
        lines.append(f"delta      {_exact(least)} at epsilon {epsilon / MICRO}")
    if table.bias is not None:
        where = f" (at input {table.bias_at})" if table.bias else ""
        lines.append(f"bias       at most {_exact(table.bias)}{where}")
    if table.variance is not None:
        lines.append(f"variance   at most {_exact(table.variance)} (at input {table.variance_at})")
    return result, "\n  ".join(lines)


def _exact(value: Fraction) -> str:
    """A fraction, where it is short, and its decimal."""
    text, decimal = str(value), f"{float(value):.6g}"
    return text if text == decimal else f"{text} = {decimal}" if len(text) < 30 else decimal


def run_show(args: argparse.Namespace) -> int:
    card, result = _card(args)
    if args.plot:
        _plot(card, result, Path(args.plot))
    picture = cards.picture(card, sys.stdout.encoding or "ascii")
    print_result(result, f"{_summary(result)}\n\n{picture}", args.json)
    return OK


def _card(args: argparse.Namespace) -> tuple[Card, dict[str, Any]]:
    """The card of the named mechanism at --epsilon, or without that in the named file, and its description. Raises
    UsageError or OSError."""
    if args.epsilon is not None:
        design = _design(args)
        return cards.decode(design.card), cards.describe_design(design)
    if options := mechanisms.options_named(args, "levels"):
        hint = "to design the card of a mechanism, give --epsilon"
        raise UsageError(f"{' and '.join(options)} would change nothing: {args.name} is a card file", hint)
    if args.name in mechanisms.NAMES and not Path(args.name).exists():
        raise UsageError(f"{args.name} is a mechanism, which needs an epsilon", hint="add --epsilon E")
    card = cards.decode(cards.load(args.name), args.name)
    return card, cards.describe(card)


def _plot(card: Card, description: dict[str, Any], path: Path) -> None:
    from ternhost.run.report import plots  # loads matplotlib

    if card.shape != PROJECTION:
        certify.valued(card)
    title = "{shape} card, epsilon {epsilon_certified}, {levels} outputs".format_map(description)
    plots.check_place(path)
    plots.save(plots.card_distribution(card, title), path)


def run_account(args: argparse.Namespace) -> int:
    if args.reports is None:
        return _run_ledger(args)
    if given := [f"--{name}" for name, unset in _LEDGER.items() if getattr(args, name) != unset]:
        raise UsageError(f"{given[0]} is about a ledger, --reports about a shuffler", "leave one of them out")
    from ternhost.privacy import shuffling  # loads scipy

    what, card, local = _accounted(args)
    if args.plot:
        from ternhost.run.report import plots  # loads matplotlib

        plots.check_place(Path(args.plot))
    account = shuffling.account(local, args.reports, args.delta, card, args.values)
    if args.plot:
        ladder = {round(args.reports * 10 ** (i / 2)) for i in range(-4, 3) if i}
        curve = [account]
        with Progress("reports") as progress:
            for n in sorted(n for n in ladder if 1 <= n <= shuffling.MOST_REPORTS and n != args.reports):
                progress.step(f"{n:,}")
                curve.append(shuffling.account(local, n, args.delta, card, args.values))
        curve.sort(key=lambda one: one.reports)
        title = f"{what}, local epsilon {account.local:g}, delta {args.delta:g}"
        plots.save(plots.shuffled(curve, title), Path(args.plot))
    named = ("local", "closed", "any_mechanism", "card")
    epsilons = {f"epsilon_{name}": getattr(account, name) for name in named}
    asked = {"what": what, "values": args.values, "reports": args.reports, "delta": args.delta}
    holds = {"needs": "an anonymous shuffler", "holds_for_terns_transport": False}
    result = {**asked, **epsilons, "epsilon_central": account.epsilon, **holds}
    print_result(result, _shuffled_words(what, account), args.json)
    return OK


def _accounted(args: argparse.Namespace) -> tuple[str, Card | None, int]:
    """(name, card, local epsilon of one value in micro) of the named mechanism or card file; without a name the card is
    None: any mechanism. Raises UsageError."""
    if args.name is not None:
        card: Card | None
        card, description = _card(args)
        if card.shape == PROJECTION:  # known by its epsilon alone
            card = None
        else:
            certify.valued(card)
        epsilon = description["epsilon_certified"]
        if epsilon is None:
            hint = f"'tern card show {args.name}' shows its distribution"
            raise UsageError(f"{args.name} keeps no epsilon up to 20", hint=hint)
        return description.get("mechanism", args.name), card, round(epsilon * MICRO)
    options = mechanisms.options_named(args, "levels")
    if options or args.epsilon is None:
        raise UsageError(
            f"{options[0]} is an option of a mechanism" if options else "the local epsilon is missing",
            hint="name a mechanism with --epsilon, or a card file; or give --epsilon alone, for any mechanism",
        )
    return "any mechanism", None, parse_epsilon(args.epsilon)


_LEDGER = {"rho": None, "times": 1, "unit": None, "units": 1}  # options, and what they are where not given


def _run_ledger(args: argparse.Namespace) -> int:
    """What reports cost a ledger in rho: --rho or --epsilon for all of them, or the card NAME for each."""
    for name in ("times", "units", "values"):
        require(getattr(args, name) >= 1, name, "1 or more", getattr(args, name))
    exclude([name for name in ("rho", "epsilon") if getattr(args, name) is not None], "rho", "epsilon")
    if args.plot or (args.name and args.rho):
        text = "--plot is about a shuffler, and --rho about no card"
        raise UsageError(text, "give --reports, or leave it out")
    unit = parse_unit(args.unit or "device")
    if args.name:
        card, description = _card(args)
        each = certify.epsilon_certified(card) or 0
        if cards.measure(card) == "epsilon":
            each = sums.rho_of_pure(each) * (1 if card.shape >= SUM else args.values)
        unit = description.get("unit", 0) if args.unit is None else unit
        total = each * args.times
    elif args.rho is not None:
        total = parse_epsilon(args.rho, ledger.MAX_BUDGET, "--rho")
    elif args.epsilon is not None:
        total = sums.rho_of(parse_epsilon(args.epsilon, ledger.MAX_BUDGET) / MICRO, args.delta)
    else:
        hint = "--rho, --epsilon or a card; or --reports, for a shuffler"
        raise UsageError("what is spent is missing", hint)
    each = total // args.times
    require(unit > 0 or args.units == 1, "units", "1 where the unit is the whole device", args.units)
    if not each:
        hint = "spend at least a millionth a report, and at most 20"
        raise UsageError("a report has no rho, or too much", hint)
    pure = sums.pure_of(each)
    epsilon, device = (sums.group(total, n, args.delta) for n in (1, args.units))
    result = {
        "what": args.name or "all reports", "times": args.times, "delta": args.delta, "rho": total / MICRO,
        "rho_each": each / MICRO, "epsilon_each_pure": pure / MICRO, "epsilon": epsilon, "unit": unit,
        "protects": protected(unit), "units": args.units, "rho_device": total * args.units**2 / MICRO,
        "epsilon_device": device,
    }  # fmt: skip
    print_result(result, _ledger_words(result), args.json)
    return OK


def _ledger_words(result: dict[str, Any]) -> str:
    lines = [
        "{what}: rho {rho:g} in total, which is (epsilon {epsilon:.4g}, delta {delta:g}) for {protects}",
        "  reports    {times:,} of rho {rho_each:.4g}; of a pure mechanism each has epsilon {epsilon_each_pure:.4g}",
    ]
    if result["units"] > 1:
        lines += [
            "  device     a whole device has {units:,} units: rho {rho_device:,.6g}, which is (epsilon "
            "{epsilon_device:,.4g}, delta {delta:g})",
            "             what is common to all of its records is protected by no more than that"
            + (": hardly at all" if result["epsilon_device"] > _MEANS_LITTLE else ""),
        ]
    elif result["unit"]:
        lines.append("  device     a whole device is protected less: --units says how many units it holds")
    return "\n".join(lines).format_map(result)


_MEANS_LITTLE = 10  # an epsilon


def _shuffled_words(what: str, account: "Shuffled") -> str:
    lines = [
        f"{what}: local epsilon {account.local:g} per report; central epsilon of {account.reports:,} reports behind a "
        f"shuffler, at delta {account.delta:g}:"
    ]
    if account.card is not None:
        lines.append(f"  {account.card:<10.4g} this card, from its integers (privacy blanket)")
    lines.append(f"  {account.any_mechanism:<10.4g} any mechanism of that local epsilon (privacy blanket)")
    if account.closed is None:
        lines.append(f"  {'-':10} the closed bound does not apply: too few reports, or too large an epsilon")
    else:
        lines.append(f"  {account.closed:<10.4g} closed bound (hiding among the clones)")
    better = "" if account.epsilon <= 0.999 * account.local else ", no better than the local one"
    lines.append(f"The central epsilon is {account.epsilon:.4g}{better}.")
    lines.append(
        "This holds only behind a shuffler that hides who sent what. tern's transport has none, and its authenticated\n"
        f"reports are not anonymous: to tern's host a report costs its sender the local {account.local:g}."
    )
    return "\n".join(lines)


def run_list(args: argparse.Namespace) -> int:
    entries = shipped.entries()
    lines = ["mechanisms: " + ", ".join(mechanisms.NAMES)]
    if entries:
        lines += ["", f"{'shipped card':32} {'epsilon':>9} {'levels':>6} {'bytes':>6} {'worst variance':>15}"]
        row = "{file:32} {epsilon:>9} {levels:>6} {card_bytes:>6} {worst_case_variance:>15.6g}"
        lines += [row.format_map(entry) for entry in entries]
    print_result({"mechanisms": list(mechanisms.NAMES), "shipped": entries}, "\n".join(lines), args.json)
    return OK


def _posterior(result: dict[str, Any]) -> str:
    most = result["posterior_from_half"]
    if most is None:
        return "up to 100 %"
    return f"at most {100 * most:.1f} %" if most < 1 else "more than 99.9 %"


def _sum_summary(result: dict[str, Any]) -> str:
    name = "rho" if result["norm"] == 2 else "epsilon"
    pure = f"{result['epsilon_certified']} of a ledger in epsilon"
    ledgers = "a ledger in epsilon refuses it" if name == "rho" else pure
    lines = [
        f"card (sum): {name} {result[f'{name}_certified']} certified, {result[f'{name}_claimed']} claimed",
        "  protects   {protects}",
        "  report     costs {rho_certified} of a ledger in rho; " + ledgers,
        "  radius     {radius_steps} grid steps in the l{norm} norm = {radius} of 2**-(14+range): {at_4:g} at range 4",
        "  noise      {noise}, of {sigma_steps:.6g} grid steps (standard deviation)",
        "  tally      {tally[0]} for each unit that is clipped, {tally[1]} for any other",
        "  outputs    {levels} ({bits_per_value:.4g} bits per value), in steps of {output_steps} grid steps",
        "  card       {card_bytes} bytes, hash {card_hash}",
    ]
    return "\n".join(lines).format_map(result | {"at_4": result["radius"] / 2**18})


_PROJECTION = (
    "  vectors    of up to {values} values, clipped to {radius:g} of 2**-range in the l2 norm",
    "  law        {likely} directions with {probabilities[0]:.5g} each, the others with {probabilities[1]:.5g}, "
    "exactly, for each vector",
    "  variance   of all coordinates of one report together: {second_moment:.4g} radii squared, less the vector's own",
    "  bias       privacy is exact, the mean of reports nearly so: {bias}",
)


def _summary(result: dict[str, Any]) -> str:
    if result["shape"] == "sum":
        return _sum_summary(result)
    head = result.get("mechanism", "card") + f" ({result['shape']})"
    name, verb = ("epsilon", "requested") if "epsilon" in result else ("epsilon_claimed", "claimed")
    accuracy = ["  variance   none: its outputs have no unbiased values"]
    if result["bias"] is not None:
        most = "at most {worst_case_variance:.6g} (at |x| = {worst_case_at:.4g}), {variance_at_zero:.6g} at 0"
        accuracy = [f"  variance   {most.format_map(result)}", f"  bias       {result['bias']} (exact)"]
    if result["shape"] == "projection":
        bias = "in so few dimensions no bound of its error is known"
        if (most := result["bias_bound"]) is not None:
            bias = f"its squared error was at most {most:g} of the mean's square on the bundled data up to epsilon 8"
            bias += f", and {projection.WORST_BIAS:g} in the worst case known"
        accuracy = [line.format_map({**result, "bias": bias}) for line in _PROJECTION]
    lines = [
        f"{head}: epsilon {result['epsilon_certified']} certified, {result[name]} {verb}",
        f"  meaning    a guess about a value that was 50 % likely is {_posterior(result)} likely after its report",
        f"  outputs    {result['levels']} ({result['bits_per_value']:.4g} bits per value)",
        *accuracy,
        f"  card       {result['card_bytes']} bytes, hash {result['card_hash']}",
    ]
    return "\n".join([*lines, *(f"  note       {note}" for note in result.get("notes", ()))])
