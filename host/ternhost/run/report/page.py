"""The look of a run's report: one HTML file with everything in it, and its pictures as PNG beside
it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ternhost.extensions import EXTENSIONS, Row
from ternhost.files import storage_errors, write_file
from ternhost.plots import accounts, canvas
from ternhost.plots import cards as card_plots
from ternhost.privacy.cards import decode, measure
from ternhost.privacy.guarantee import Guarantee, Span, rounded
from ternhost.reach import fleet
from ternhost.run import guarantees
from ternhost.text import as_html, brief

NAME = "report.html"
_RESTS_ON = "proved from the integers of the cards, by the host and again by each device"


@dataclass(frozen=True)
class Page:
    """The contents of a report.

    lead: the first paragraph.
    pictures: each figure with its caption, by the name of its file without `.png`.
    results, settings: rows of (name, value, meaning).
    figures: the main results as a table, whose first row is its head.
    more: further sections in HTML, by heading.

    Pictures and `figures` are visible at once; the rest is folded away until a reader opens it.
    """

    title: str
    lead: str
    pictures: Mapping[str, tuple[Figure, str]]
    results: Sequence[Row]
    settings: Sequence[Row]
    figures: Sequence[Sequence[str]] = ()
    more: Mapping[str, str] = field(default_factory=dict)


def write(page: Page, directory: str | Path) -> Path:
    """Write report.html and its pictures into a directory, and return the path of report.html.

    Raises StorageError.
    """
    directory = Path(directory)
    contents = {}  # of the files, by name
    for name, (figure, _caption) in page.pictures.items():
        contents[f"{name}.png"] = canvas.png(figure)
    contents[NAME] = render(page).encode()
    for name, data in contents.items():
        path = directory / name
        with storage_errors(
            what=f"{path} cannot be written", afterwards="or choose another folder"
        ):
            write_file(path, data)
    return directory / NAME


def render(page: Page) -> str:
    """Return the HTML of a report. It has the pictures in it, as SVG."""
    body = [f"<h1>{as_html(page.title)}</h1>", f"<p class=lead>{as_html(page.lead)}</p>"]
    if page.figures:  # a table of numbers; its first row is the head
        head, *rows = page.figures
        body.append(table(head, rows))
    else:
        body.append("")  # an empty line in place of the table
    body.append("<div class=pictures>")
    for name, (figure, caption) in page.pictures.items():
        body.append(_picture(name, figure, caption))
    body.append("</div>")

    sections = {
        "Results": table(("result", "value", "what it means"), page.results),
        "Settings": table(("setting", "value", "what it means"), page.settings),
        **page.more,
    }
    for heading, text in sections.items():
        body.append(f"<details><summary>{escape(heading)}</summary>{text}</details>")
    return PAGE.format(title=escape(brief(page.title)), style=STYLE, body="\n".join(body))


def common_results(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate the results that every run has: its reports, its privacy and its duration."""
    rows: list[Row] = [
        ("reports", f"{result['reports']:,}", "accepted, each counted once"),
        ("rounds", f"{result['rounds']:,}", "that have ended"),
    ]
    if result["missing"]:
        meaning = "reports that were asked for but refused or lost"
        rows.append(("missing", f"{result['missing']:,}", meaning))
    for sentence, meaning in privacy_rows(result):
        rows.append(("privacy", sentence, meaning))
    most_spent = 0.0
    for epsilon, _clients in result["epsilon_spent"]:
        most_spent = max(most_spent, epsilon)
    if most_spent:
        meaning = f"in any client's ledger: {epsilon_of(result)}"
        rows.append(("most spent", rounded(most_spent), meaning))
    for extension in EXTENSIONS.available():
        rows += extension.rows(result)
    speed = f"{result['reports_per_second']:,.0f} reports a second"
    rows.append(("duration", f"{result['seconds']:,.1f} s", speed))
    return rows


def liar_rows(lines: Iterable[str]) -> list[Row]:
    """Tabulate sentences on what devices can do that report whatever they like."""
    meaning = "whatever they report; it follows from the integers of the cards"
    return [("lying devices", line, meaning) for line in lines]


def privacy_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the privacy guarantees of a run as sentences.

    Each sentence comes with a text that says against whom it holds, and what proves it.
    """
    rows = []
    for of_class in guarantees.classes_of(result):
        meaning = f"against {of_class.run.against}; {_RESTS_ON}"
        for sentence in (of_class.report.words(), *of_class.words()):
            rows.append((sentence, meaning))
    return rows


def guarantee_sentence(result: Mapping[str, Any]) -> str:
    """Return a sentence with the guarantee of those devices that lose most privacy in a run."""
    guarantee = _worst_of_run(result)
    if guarantee is None:
        return "Nothing is protected."
    words = guarantee.words()
    return f"{words[0].upper()}{words[1:]}, against {guarantee.against}."


def _worst_of_run(result: Mapping[str, Any]) -> Guarantee | None:
    """Return the guarantee of those devices that lose most privacy in a run.

    Return None if reports are not protected.
    """
    return guarantees.worst(guarantees.classes_of(result), Span.RUN)


def common_settings(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate the settings that every run has: its fleet, its quorum and its seed."""
    options: Mapping[str, Any] = result["options"]
    seed_meaning = "deals clients and records; no client's noise depends on it"
    kind, _, _ = str(options["fleet"]).partition(":")  # of KIND:...
    is_installed = kind in fleet.KINDS  # the result may be from another computer
    if is_installed and fleet.KINDS[kind].simulated:
        seed_meaning = "deals clients and records, and fixes the noise of simulated clients, "
        seed_meaning += "which protects nobody"
    return [
        ("fleet", str(options["fleet"]), "where the clients run"),
        ("quorum", percent(options["quorum"]), "share of a round's reports that ends it"),
        ("seed", str(options["seed"]), seed_meaning),
    ]


def common_pictures(
    result: Mapping[str, Any], card: str, title: str, note: str = ""
) -> dict[str, tuple[Figure, str]]:
    """Draw the pictures that every run has: of its mechanism, and of what clients have spent.

    card: the certified table from which clients sample their reports, in hexadecimal digits.
    title: of the picture of the card. note: a sentence at the end of the other picture's caption.
    Return each figure with its caption, by the name of its file.
    """
    decoded = decode(bytes.fromhex(card))
    mechanism = card_plots.card_distribution(decoded, title)
    mechanism_caption = (
        "The mechanism, computed from the integers that the clients used. A client answers only "
        f"after it has proved the {measure(decoded)} of the card from these integers."
    )
    subject = epsilon_of(result)
    epsilon = accounts.epsilon_spent(spent(result), allowed=result["epsilon_paid"], what=subject)
    epsilon_caption = f"What each client has spent: {subject}. {note}"
    return {"card": (mechanism, mechanism_caption), "epsilon": (epsilon, epsilon_caption)}


def epsilon_of(result: Mapping[str, Any]) -> str:
    """Say what the epsilons in a result are about, such as "epsilon of a whole device"."""
    guarantee = _worst_of_run(result)
    if guarantee is None:
        return "epsilon"
    text = f"epsilon of {guarantee.protects}"
    if guarantee.content is not None:
        text += ", that it was there"
    is_at_delta = guarantee.bounds.pure is None  # no epsilon holds at delta 0
    if is_at_delta:
        text += f", at delta {guarantee.bounds.delta:g}"
    return text


def epsilon_words(result: Mapping[str, Any]) -> str:
    """Write the epsilon of those devices that lose most privacy in a run, as a label."""
    guarantee = _worst_of_run(result)
    if guarantee is None:
        return "without a guarantee"
    return f"epsilon {guarantee.bounds.words}"


def spent(result: Mapping[str, Any]) -> dict[float, int]:
    """Return how many clients have spent each epsilon in a run, such as {0.0: 12, 1.5: 88}.

    The result of a run on emulated boards has it from their ledgers. Otherwise it is estimated
    from the accepted reports, as if all clients had reported equally often: each client that has
    reported has then spent the same epsilon, and the others nothing.
    """
    ledgers = result["epsilon_spent"]
    if ledgers:
        return {float(epsilon): int(clients) for epsilon, clients in ledgers}
    reports_of_client = 1  # how many reports the run planned for each client
    for account in result.get("accounting", ()):
        for release in account["releases"]:
            reports_of_client = max(reports_of_client, release["times"])
    # The numbers are rounded up, since a client that has made only some of its reports counts, too.
    # The negations turn rounding down into rounding up.
    reporting_clients = -(-int(result["reports"]) // reports_of_client)
    asked_clients = -(-int(result["asked"]) // reports_of_client)
    clients_by_epsilon = {float(result["epsilon_paid"]): reporting_clients}
    if asked_clients > reporting_clients:
        clients_by_epsilon[0.0] = asked_clients - reporting_clients
    return clients_by_epsilon


def _picture(name: str, figure: Figure, caption: str) -> str:
    """Return the HTML of a picture with its caption.

    name: of the picture, which screen readers read out.
    """
    label = f"<svg role=img aria-label='{escape(name)}'"
    drawn = canvas.svg(figure, name).replace("<svg", label, 1)
    return f"<figure id={name}>{drawn}<figcaption>{as_html(caption)}</figcaption></figure>"


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in HTML. head: the names of its columns. rows: each begins with its name."""
    header = "".join(f"<th scope=col>{as_html(cell)}" for cell in head)
    lines = ""
    for row in rows:
        cells = "<td>".join(map(as_html, row))
        lines += f"<tr><th scope=row>{cells}"
    return f"<div class=wide><table><thead><tr>{header}</thead><tbody>{lines}</tbody></table></div>"


def percent(share: float) -> str:
    """Write a share in per cent, with a space before the sign at which no line breaks."""
    if share < 1:
        return f"{100 * share:.2f}\u00a0%"
    return "100\u00a0%"


STYLE = (files("ternhost.run.report") / "report.css").read_text()

PAGE = """<!doctype html>
<html lang=en>
<head>
<meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
