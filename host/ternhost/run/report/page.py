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

    pictures: by file name, each with a caption. results, settings: rows of (name, value, meaning).
    figures: the main results, a table whose first row is its head. more: sections, by heading, in
    HTML. Pictures and figures alone are open at first.
    """

    title: str
    lead: str
    pictures: Mapping[str, tuple[Figure, str]]
    results: Sequence[Row]
    settings: Sequence[Row]
    figures: Sequence[Sequence[str]] = ()
    more: Mapping[str, str] = field(default_factory=dict)


def write(page: Page, directory: str | Path) -> Path:
    """Write report.html and its pictures, and return the report's path. Raises StorageError."""
    directory = Path(directory)
    contents = {}
    for name, (figure, _) in page.pictures.items():
        contents[f"{name}.png"] = canvas.png(figure)
    contents[NAME] = render(page).encode()
    for name, data in contents.items():
        path = directory / name
        with storage_errors("make room, or choose another folder", f"{path} cannot be written"):
            write_file(path, data)
    return directory / NAME


def render(page: Page) -> str:
    """Return the HTML of a report, with its pictures inside as SVG."""
    results = table(("result", "value", "what it means"), page.results)
    settings = table(("setting", "value", "what it means"), page.settings)
    sections = {"Results": results, "Settings": settings, **page.more}
    body = [f"<h1>{as_html(page.title)}</h1>", f"<p class=lead>{as_html(page.lead)}</p>"]
    if page.figures:
        head, *rows = page.figures
        body.append(table(head, rows))
    else:
        body.append("")
    body.append("<div class=pictures>")
    for name, (figure, caption) in page.pictures.items():
        body.append(_picture(name, figure, caption))
    body.append("</div>")
    for heading, text in sections.items():
        body.append(f"<details><summary>{escape(heading)}</summary>{text}</details>")
    return PAGE.format(title=escape(brief(page.title)), style=STYLE, body="\n".join(body))


def common_results(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate the results that every run has: its reports, its privacy and its time."""
    rows: list[Row] = [
        ("reports", f"{result['reports']:,}", "accepted, each counted once"),
        ("rounds", f"{result['rounds']:,}", "that have ended"),
    ]
    if result["missing"]:
        meaning = "reports that were asked for but refused or lost"
        rows.append(("missing", f"{result['missing']:,}", meaning))
    for sentence, meaning in privacy_rows(result):
        rows.append(("privacy", sentence, meaning))
    most = 0.0
    for epsilon, _clients in result["epsilon_spent"]:
        most = max(most, epsilon)
    if most:
        rows.append(("most spent", rounded(most), f"in any client's ledger: {epsilon_of(result)}"))
    for extension in EXTENSIONS.available():
        rows += extension.rows(result)
    speed = f"{result['reports_per_second']:,.0f} reports a second"
    return [*rows, ("duration", f"{result['seconds']:,.1f} s", speed)]


def privacy_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a run promises as sentences.

    Each comes with a text that says against whom it holds, and what it rests on.
    """
    rows = []
    for of_class in guarantees.classes_of(result):
        meaning = f"against {of_class.run.against}; {_RESTS_ON}"
        for sentence in (of_class.report.words(), *of_class.words()):
            rows.append((sentence, meaning))
    return rows


def promised(result: Mapping[str, Any]) -> str:
    """Write the guarantee of the devices that lose most, for a report's first paragraph."""
    guarantee = _worst_of_run(result)
    if guarantee is None:
        return "Nothing is protected."
    words = guarantee.words()
    return f"{words[0].upper()}{words[1:]}, against {guarantee.against}."


def _worst_of_run(result: Mapping[str, Any]) -> Guarantee | None:
    """Return the guarantee of the devices that lose most in the run, if any is protected."""
    return guarantees.worst(guarantees.classes_of(result), Span.RUN)


def common_settings(result: Mapping[str, Any]) -> list[Row]:
    """Tabulate the settings that every run has: its fleet, its rounds and its seed."""
    options: Mapping[str, Any] = result["options"]
    seed = "deals clients and records; no client's noise depends on it"
    kind = str(options["fleet"]).partition(":")[0]  # a result may name any fleet
    if kind in fleet.KINDS and fleet.KINDS[kind].simulated:
        seed = "deals clients and records, and fixes the noise of simulated clients, "
        seed += "which protects nobody"
    return [
        ("fleet", str(options["fleet"]), "where the clients run"),
        ("quorum", percent(options["quorum"]), "share of a round's reports that ends it"),
        ("seed", str(options["seed"]), seed),
    ]


def common_pictures(
    result: Mapping[str, Any], card: str, title: str, note: str = ""
) -> dict[str, tuple[Figure, str]]:
    """Draw the pictures that every run has: of its mechanism, and of what clients have spent.

    card: in hexadecimal digits. title: of its picture. note: ends the caption of what was spent.
    Return each figure with its caption, by the name of its file.
    """
    decoded = decode(bytes.fromhex(card))
    mechanism = card_plots.card_distribution(decoded, title)
    mechanism_caption = (
        "The mechanism, computed from the integers that the clients used. A client answers only "
        f"after it has proved the {measure(decoded)} of the card from these integers."
    )
    subject = epsilon_of(result)
    epsilon = accounts.epsilon_spent(spent(result), result["epsilon_paid"], subject)
    epsilon_caption = f"What each client has spent: {subject}. {note}"
    return {"card": (mechanism, mechanism_caption), "epsilon": (epsilon, epsilon_caption)}


def epsilon_of(result: Mapping[str, Any]) -> str:
    """Say what the epsilons of a result are about, such as "epsilon of a whole device"."""
    guarantee = _worst_of_run(result)
    if guarantee is None:
        return "epsilon"
    text = f"epsilon of {guarantee.protects}"
    if guarantee.content is not None:
        text += ", that it was there"
    if guarantee.bounds.pure is None:
        text += f", at delta {guarantee.bounds.delta:g}"
    return text


def epsilon_words(result: Mapping[str, Any]) -> str:
    """Write the epsilon of the devices that lose most in a run, for the labels of pictures."""
    guarantee = _worst_of_run(result)
    if guarantee is None:
        return "without a guarantee"
    return f"epsilon {guarantee.bounds.words}"


def spent(result: Mapping[str, Any]) -> dict[float, int]:
    """Return the number of clients by the epsilon that they have spent in the run.

    It is known from their ledgers if tern made the boards. Otherwise it follows from the accepted
    reports, as if all clients had reported equally often.
    """
    ledgers = result["epsilon_spent"]
    if ledgers:
        return {float(epsilon): int(clients) for epsilon, clients in ledgers}
    times = 1
    for account in result.get("accounting", ()):
        for release in account["releases"]:
            times = max(times, release["times"])
    # Divisions that round up: a client that has begun counts.
    reporting_clients = -(-int(result["reports"]) // times)
    asked_clients = -(-int(result["asked"]) // times)
    clients_by_epsilon = {float(result["epsilon_paid"]): reporting_clients}
    if asked_clients > reporting_clients:
        clients_by_epsilon[0.0] = asked_clients - reporting_clients
    return clients_by_epsilon


def _picture(name: str, figure: Figure, caption: str) -> str:
    """Return the HTML of a picture with its caption; its SVG is labelled for screen readers."""
    label = f"<svg role=img aria-label='{escape(name)}'"
    drawn = canvas.svg(figure, name).replace("<svg", label, 1)
    return f"<figure id={name}>{drawn}<figcaption>{as_html(caption)}</figcaption></figure>"


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the HTML of a table whose rows begin with their names."""
    header = "".join(f"<th scope=col>{as_html(cell)}" for cell in head)
    lines = ""
    for row in rows:
        cells = "<td>".join(map(as_html, row))
        lines += f"<tr><th scope=row>{cells}"
    return f"<div class=wide><table><thead><tr>{header}</thead><tbody>{lines}</tbody></table></div>"


def percent(share: float) -> str:
    """A share, for people; no line breaks before its sign."""
    return f"{100 * share:.2f}\u00a0%" if share < 1 else "100\u00a0%"


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
