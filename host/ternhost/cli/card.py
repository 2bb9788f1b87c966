"""`tern card`: design, certify and show cards.

A card is an integer table from which a device samples the symbol that it reports instead of a
value. It claims an epsilon (the card of a sum with Gaussian noise: a rho), which is certified from
its integers.
"""

import argparse
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from tern.card import PROJECTION, Card
from ternhost.cli import account, named
from ternhost.command import add_command, add_group, add_option, print_result
from ternhost.errors import FAILED, OK, UsageError
from ternhost.files import storage_errors, write_file
from ternhost.listed_commands import CARD
from ternhost.options import Option, flag
from ternhost.privacy import cards, certify, matrix, mechanisms, projection
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.mechanisms import shipped
from ternhost.words import HELP


def add_parser(subparsers: Any) -> None:
    """Add `tern card` and its actions to the commands."""
    example = (
        "tern card design three-outputs --epsilon 2 --output three.card\ntern card show three.card"
    )
    actions = add_group(subparsers, CARD.name, CARD.summary, example)
    summary = "list the mechanisms and the shipped cards"
    add_command(actions, "list", summary, "tern card list", run_list)
    _add_design(actions)
    _add_show(actions)
    _add_certify(actions)
    account.add_parser(actions)


def _add_design(actions: Any) -> None:
    """Add `tern card design` to the actions, with a page of help for each mechanism."""
    summary = "design a card, and print its epsilon, variance and size"
    example = """tern card design three-outputs --epsilon 2 --output three.card
    tern card design pm-sub --epsilon 2 --levels 15 --output pm.card
    tern card design pm-sub --help"""
    design = add_command(actions, "design", summary, example, run_design)
    design.usage = f"{design.prog} MECHANISM --epsilon E [OPTION ...]"
    pages = design.add_subparsers(
        title="mechanisms, and their own options",
        dest="mechanism",
        metavar="MECHANISM",
        required=True,
        prog=design.prog,
    )
    for name in mechanisms.NAMES:
        _add_mechanism(pages, name)
    for option in _OF_EVERY_DESIGN:
        option.add_to(design)


# The option --epsilon is not required by the parser, since it may stand before the mechanism, too.
_OF_EVERY_DESIGN = (
    Option("epsilon", HELP["epsilon"], metavar="E"),
    Option("levels", "number of outputs, if the mechanism leaves a choice", int, "N"),
    Option("output", HELP["output"], metavar="FILE"),
)


def _add_mechanism(pages: Any, name: str) -> None:
    """Add the page of help of `tern card design NAME`, which shows the mechanism's own options.

    It takes those of every design, too; and those of all other mechanisms, so that one of these is
    refused with a hint at the mechanisms that have it.
    """
    mechanism = mechanisms.REGISTRY.named(name)
    own_options = {option.name: option for option in mechanism.options}
    example = f"tern card design {name} --epsilon 2 --output {name}.card"
    page = add_command(pages, name, ", ".join(map(flag, own_options)), example, run_design)
    page.usage = f"{page.prog} --epsilon E [OPTION ...]"
    page.description = f"Design a card of {name}, and print its epsilon, variance and size."
    page.epilog = f"It also takes the options of 'tern card design --help'.\n{page.epilog}"
    for option in own_options.values():
        option.add_to(page)

    hidden_options = {option.name: option for option in _OF_EVERY_DESIGN}
    for other in mechanisms.REGISTRY.available():
        for option in other.options:
            hidden_options.setdefault(option.name, option)
    for option in hidden_options.values():
        if option.name not in own_options:
            # The value of an option that stands before the mechanism stays.
            option.add_to(page, hidden=True, absent=argparse.SUPPRESS)


def _add_certify(actions: Any) -> None:
    """Add `tern card certify` to the actions."""
    summary = "prove from the integers of a card, or from any table, whether it keeps an epsilon "
    summary += "(exit code 0: yes, 1: no)"
    example = "tern card certify three.card --epsilon 2\n"
    example += "tern card certify my.csv --epsilon 1.5"
    certify = add_command(actions, "certify", summary, example, run_certify)
    text = f"{named.HELP}; or table of probabilities (.csv, .json): a row for each input, a column for an output"
    certify.add_argument("card", metavar="CARD|TABLE", help=text)
    add_option(certify, "--epsilon E", shown="the card's claim; a table's is only printed")


def _add_show(actions: Any) -> None:
    """Add `tern card show` to the actions."""
    summary = "draw the exact distribution of a card's outputs"
    example = "tern card show three.card\ntern card show pm-sub:2 --plot pm.png"
    show = add_command(actions, "show", summary, example, run_show)
    named.add_card(show)
    add_option(show, "--plot FILE.png")


def run_design(args: argparse.Namespace) -> int:
    """Design a card, write it to --output, and describe it; return the exit code."""
    if args.epsilon is None:
        hint = f"such as tern card design {args.mechanism} --epsilon 2"
        raise UsageError("--epsilon is missing: the epsilon of one report", hint)
    options = {}
    for mechanism in mechanisms.REGISTRY.available():
        for option in mechanism.options:
            value = getattr(args, option.name, None)
            if value is not None:
                options[option.name] = value
    design = mechanisms.design(args.mechanism, args.epsilon, args.levels, **options)
    if args.output:
        with storage_errors("name another --output", f"cannot write {args.output}"):
            write_file(Path(args.output), design.card)
    result = cards.describe_design(design)
    print_result(result, _summary(result), args.json)
    return OK


def run_certify(args: argparse.Namespace) -> int:
    """Certify a card or a table of probabilities, and print the verdict.

    The exit code is FAILED if it does not keep the epsilon or rho.
    """
    micro_epsilon = None
    if args.epsilon is not None:
        micro_epsilon = parse_epsilon(args.epsilon)
    is_table = Path(args.card).suffix.lower() in matrix.FORMATS
    if is_table:
        result, reason = _certify_table(matrix.read(args.card), micro_epsilon)
    else:
        result = cards.check(named.card_bytes(args.card), micro_epsilon)
        reason = result["reason"]

    verdict = "certified" if result["certified"] else "NOT certified"
    if args.epsilon:
        verdict += f" at epsilon {args.epsilon}"
    elif not is_table:
        verdict += " at its own claim"
    print_result(result, f"{args.card}: {verdict}: {reason}", args.json)
    return OK if result["certified"] else FAILED


def _certify_table(
    table: matrix.Certificate, micro_epsilon: int | None
) -> tuple[dict[str, Any], str]:
    """Return what is certified of a table of probabilities: an object for JSON, and a text.

    micro_epsilon: the epsilon to certify, in millionths; None for whatever the table keeps. The
    result also has the least delta at which the table keeps that epsilon.
    """
    if micro_epsilon is None:
        certified = table.epsilon is not None
        epsilon = None
    else:
        certified = table.keeps(micro_epsilon)
        epsilon = micro_epsilon / MICRO
    result = {"certified": certified, "epsilon": epsilon, **table.as_json()}
    lines = [_loss_of_table(table)]

    if micro_epsilon is not None:
        least_delta = table.delta(micro_epsilon)
        result["delta"] = cards.fraction(least_delta)
        result["delta_decimal"] = float(least_delta)
        lines.append(f"delta      {_exact(least_delta)} at epsilon {epsilon}")
    if table.bias is not None:
        bias = f"bias       at most {_exact(table.bias)}"
        if table.bias != 0:
            bias += f" (at input {table.bias_at})"
        lines.append(bias)
    if table.variance is not None:
        lines.append(f"variance   at most {_exact(table.variance)} (at input {table.variance_at})")
    return result, "\n  ".join(lines)


def _loss_of_table(table: matrix.Certificate) -> str:
    """Return in words which epsilon a table of probabilities keeps, or why it keeps none.

    The epsilon is the logarithm of the largest ratio between the probabilities of an output at two
    inputs. It is infinite if the output is impossible at one of them.
    """
    first, second = table.pair
    if table.ratio is None:
        output = f"output {table.output}"
        return f"it keeps no epsilon: {output} is possible at {first}, and not at {second}"
    kept = "no epsilon up to 20"
    if table.epsilon is not None:
        kept = f"epsilon {table.epsilon / MICRO}"
    where = f"the ratio of output {table.output} at inputs {first} and {second}"
    return f"it keeps {kept}, ln of {_exact(table.ratio)}, {where}"


def _exact(value: Fraction) -> str:
    """Return a fraction in digits, such as "1/3 = 0.333333"; if it is long, only the decimal."""
    text = str(value)
    decimal = f"{float(value):.6g}"
    if text == decimal:  # a whole number
        return text
    if len(text) < 30:
        return f"{text} = {decimal}"
    return decimal


def run_show(args: argparse.Namespace) -> int:
    """Describe a card, and draw its distribution in characters and for --plot."""
    card, result = named.card(args.card)
    if args.plot:
        _plot(card, result, Path(args.plot))
    picture = cards.picture(card, sys.stdout.encoding or "ascii")
    print_result(result, f"{_summary(result)}\n\n{picture}", args.json)
    return OK


def _plot(card: Card, description: dict[str, Any], path: Path) -> None:
    """Draw the distribution of a card's outputs into a file. description: of the card."""
    from ternhost.plots import canvas  # loads matplotlib
    from ternhost.plots import cards as card_plots

    if card.shape != PROJECTION:
        certify.valued(card)  # raises UsageError for a card whose outputs have no values
    title = "{shape} card, epsilon {epsilon_certified}, {levels} outputs".format_map(description)
    canvas.check_place(path)
    canvas.save(card_plots.card_distribution(card, title), path)


def run_list(args: argparse.Namespace) -> int:
    """Print the mechanisms, and the cards that tern ships."""
    entries = shipped.entries()
    lines = [f"mechanisms: {', '.join(mechanisms.NAMES)}"]
    if entries:
        headings = f"{'shipped card':32} {'epsilon':>9} {'levels':>6} {'bytes':>6}"
        lines += ["", f"{headings} {'worst variance':>15}"]
        row = "{file:32} {epsilon:>9} {levels:>6} {card_bytes:>6} {worst_case_variance:>15.6g}"
        lines += [row.format_map(entry) for entry in entries]
    result = {"mechanisms": list(mechanisms.NAMES), "shipped": entries}
    print_result(result, "\n".join(lines), args.json)
    return OK


def _posterior(result: dict[str, Any]) -> str:
    """Return in words how likely a fact that was 50 % likely can become by a report about it.

    result: the description of a card.
    """
    posterior = result["posterior_from_half"]
    if posterior is None:
        return "up to 100 %"
    if posterior < 1:
        return f"at most {100 * posterior:.1f} %"
    return "more than 99.9 %"


def _sum_summary(result: dict[str, Any]) -> str:
    """Describe the card of a noisy sum in words: a title, and the lines of _SUM.

    result: the description of the card. With Gaussian noise it keeps a rho, with Laplace noise an
    epsilon. Its members are put in the place of their names in the lines, beside two texts that
    are made here: `in_epsilon` and `radius_at_range_4`.
    """
    noise_is_gaussian = result["norm"] == 2
    if noise_is_gaussian:
        measure = "rho"
        in_epsilon = "a ledger in epsilon refuses it"
    else:
        measure = "epsilon"
        in_epsilon = f"{result['epsilon_certified']} of a ledger in epsilon"
    certified = result[f"{measure}_certified"]
    claimed = result[f"{measure}_claimed"]

    # A card states its radius as a number of units. How large a unit is depends on the question that
    # a device answers: 2**-(14 + range), where the question names the range. Range 4 is an example.
    unit_at_range_4 = 2 ** -(14 + 4)
    made_here = {
        "in_epsilon": in_epsilon,
        "radius_at_range_4": result["radius"] * unit_at_range_4,
    }
    lines = [f"card (sum): {measure} {certified} certified, {claimed} claimed"]
    for line in _SUM:
        lines.append(line.format_map(result | made_here))
    return "\n".join(lines)


# The lines about the card of a sum. In braces: members of its description, and the two texts that
# `_sum_summary` makes.
_SUM = (
    "  protects   {protects}",
    "  report     costs {rho_certified} of a ledger in rho; {in_epsilon}",
    "  radius     {radius_steps} grid steps in the l{norm} norm = {radius} of 2**-(14+range): "
    "{radius_at_range_4:g} at range 4",
    "  noise      {noise}, of {sigma_steps:.6g} grid steps (standard deviation)",
    "  tally      {tally[0]} for each unit that is clipped, {tally[1]} for any other",
    "  outputs    {levels} ({bits_per_value:.4g} bits per value), in steps of {output_steps} grid steps",
    "  card       {card_bytes} bytes, hash {card_hash}",
)
# The lines about the card of a projection: members of its description, and `bias` of `_accuracy`.
_PROJECTION = (
    "  vectors    of up to {values} values, clipped to {radius:g} of 2**-range in the l2 norm",
    "  law        {likely} directions with {probabilities[0]:.5g} each, the others with {probabilities[1]:.5g}, "
    "exactly, for each vector",
    "  variance   of all coordinates of one report together: {second_moment:.4g} radii squared, less the vector's own",
    "  bias       privacy is exact, the mean of reports nearly so: {bias}",
)


def _summary(result: dict[str, Any]) -> str:
    """Describe a card in words, with a line for each of its properties.

    result: the description of the card, as an object for JSON.
    """
    if result["shape"] == "sum":
        return _sum_summary(result)
    title = f"{result.get('mechanism', 'card')} ({result['shape']})"
    was_just_designed = "epsilon" in result
    if was_just_designed:
        wanted_epsilon = f"{result['epsilon']} requested"
    else:
        wanted_epsilon = f"{result['epsilon_claimed']} claimed"
    posterior_words = _posterior(result)
    lines = [
        f"{title}: epsilon {result['epsilon_certified']} certified, {wanted_epsilon}",
        f"  meaning    a guess about a value that was 50 % likely is {posterior_words} likely after its report",
        f"  outputs    {result['levels']} ({result['bits_per_value']:.4g} bits per value)",
        *_accuracy(result),
        f"  card       {result['card_bytes']} bytes, hash {result['card_hash']}",
    ]
    for note in result.get("notes", ()):
        lines.append(f"  note       {note}")
    return "\n".join(lines)


def _accuracy(result: dict[str, Any]) -> list[str]:
    """Return the lines that say how far a report is from the device's value.

    Most cards give each symbol a number, such that the mean of the reported numbers is the device's
    value. A line states the variance of such a number, and another one the bias: how far the mean
    is off because a card has integers. The outputs of some cards stand for no numbers, so that
    they have neither. The card of a projection reports whole vectors and has lines of its own.

    result: the description of the card.
    """
    if result["shape"] == "projection":
        values = {**result, "bias": _bias_of_projection(result["bias_bound"])}
        return [line.format_map(values) for line in _PROJECTION]
    outputs_have_numbers = result["bias"] is not None
    if not outputs_have_numbers:
        return ["  variance   none: its outputs have no unbiased values"]
    worst = f"at most {result['worst_case_variance']:.6g} (at |x| = {result['worst_case_at']:.4g})"
    return [
        f"  variance   {worst}, {result['variance_at_zero']:.6g} at 0",
        f"  bias       {result['bias']} (exact)",
    ]


def _bias_of_projection(bound: float | None) -> str:
    """Describe in words how far the mean of reports on a random projection may be from the truth.

    bound: the largest squared error in units of the mean's square, or None if it is not known.
    """
    if bound is None:
        return "in so few dimensions no bound of its error is known"
    return (
        f"its squared error was at most {bound:g} of the mean's square on the bundled data up to epsilon 8, "
        f"and {projection.WORST_BIAS:g} in the worst case known"
    )
