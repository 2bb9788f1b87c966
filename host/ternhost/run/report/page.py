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
from ternhost.privacy.guarantee import Span, rounded
from ternhost.reach import fleet
from ternhost.run import guarantees
from ternhost.text import as_html, brief

NAME = "report.html"
_RESTS_ON = "proved from the integers of the cards, by the host and again by each device"


@dataclass(frozen=True)
class Page:
    """Pictures by file name, each with a caption; rows of (name, value, meaning); `figures`: the
    main results, a table whose first row is its head; and more sections (heading, HTML). Pictures
    and figures alone are open at first.
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
    pictures = {name: canvas.png(figure) for name, (figure, _) in page.pictures.items()}
    contents = {f"{name}.png": data for name, data in pictures.items()}
    contents[NAME] = render(page).encode()
    for name, data in contents.items():
        with storage_errors(
            "make room, or choose another folder", f"{directory / name} cannot be written"
        ):
            write_file(directory / name, data)
    return directory / NAME


def render(page: Page) -> str:
    """The HTML of a report, with its pictures (SVG) inside."""
    results = table(("result", "value", "what it means"), page.results)
    settings = table(("setting", "value", "what it means"), page.settings)
    sections = {"Results": results, "Settings": settings, **page.more}
    body = [
        f"<h1>{as_html(page.title)}</h1>",
        f"<p class=lead>{as_html(page.lead)}</p>",
        table(page.figures[0], page.figures[1:]) if page.figures else "",
        "<div class=pictures>",
        *(_picture(name, figure, caption) for name, (figure, caption) in page.pictures.items()),
        "</div>",
    ]
    body += [
        f"<details><summary>{escape(name)}</summary>{text}</details>"
        for name, text in sections.items()
    ]
    return PAGE.format(title=escape(brief(page.title)), style=STYLE, body="\n".join(body))


def common_results(result: Mapping[str, Any]) -> list[Row]:
    """The results of every run: its reports, its privacy and its time."""
    rows: list[Row] = [
        ("reports", f"{result['reports']:,}", "accepted, each counted once"),
        ("rounds", f"{result['rounds']:,}", "that have ended"),
    ]
    if result["missing"]:
        rows.append(
            ("missing", f"{result['missing']:,}", "reports that were asked for but refused or lost")
        )
    rows += [("privacy", line, meaning) for line, meaning in privacy_rows(result)]
    if most := max((epsilon for epsilon, _ in result["epsilon_spent"]), default=0.0):
        rows.append(("most spent", rounded(most), f"in any client's ledger: {epsilon_of(result)}"))
    for extension in EXTENSIONS.available():
        rows += extension.rows(result)
    speed = f"{result['reports_per_second']:,.0f} reports a second"
    return [*rows, ("duration", f"{result['seconds']:,.1f} s", speed)]


def privacy_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a run promises, sentence by sentence, each with whom it holds against and what it rests
    on.
    """
    rows = []
    for each in guarantees.classes_of(result):
        sentences = [each.report.words(), *each.words()]
        rows += [(line, f"against {each.run.against}; {_RESTS_ON}") for line in sentences]
    return rows


def promised(result: Mapping[str, Any]) -> str:
    """The guarantee of a run, of the devices that lose most, as a sentence of a report's first
    paragraph.
    """
    found = guarantees.worst(guarantees.classes_of(result), Span.RUN)
    if found is None:
        return "Nothing is protected."
    words = found.words()
    return f"{words[0].upper()}{words[1:]}, against {found.against}."


def common_settings(result: Mapping[str, Any]) -> list[Row]:
    """The settings of every run: its fleet and its rounds."""
    options: Mapping[str, Any] = result["options"]
    seed = "deals clients and records; no client's noise depends on it"
    kind = str(options["fleet"]).partition(":")[0]  # a result may name any fleet
    if kind in fleet.KINDS and fleet.KINDS[kind].simulated:
        seed = "deals clients and records, and fixes the noise of simulated clients, which protects nobody"
    return [
        ("fleet", str(options["fleet"]), "where the clients run"),
        ("quorum", percent(options["quorum"]), "share of a round's reports that ends it"),
        ("seed", str(options["seed"]), seed),
    ]


def common_pictures(
    result: Mapping[str, Any], card: str, title: str, note: str = ""
) -> dict[str, tuple[Figure, str]]:
    """The mechanism, of a card in hexadecimal digits, and what clients have spent; note: ends the
    caption of that.
    """
    decoded = decode(bytes.fromhex(card))
    what = measure(decoded)
    mechanism = "The mechanism, computed from the integers that the clients used. A client answers only after it has "
    mechanism += f"proved the {what} of the card from these integers."
    drawn = card_plots.card_distribution(decoded, title)
    of_what = epsilon_of(result)
    epsilon = accounts.epsilon_spent(spent(result), result["epsilon_paid"], of_what)
    caption = f"What each client has spent: {of_what}. {note}"
    return {"card": (drawn, mechanism), "epsilon": (epsilon, caption)}


def epsilon_of(result: Mapping[str, Any]) -> str:
    """What the epsilons of a result are about, for people."""
    found = guarantees.worst(guarantees.classes_of(result), Span.RUN)
    if found is None:
        return "epsilon"
    text = f"epsilon of {found.protects}"
    if found.content is not None:
        text += ", that it was there"
    if found.bounds.pure is None:
        text += f", at delta {found.bounds.delta:g}"
    return text


def epsilon_words(result: Mapping[str, Any]) -> str:
    """The epsilon of a run, of the devices that lose most, for the labels of pictures."""
    found = guarantees.worst(guarantees.classes_of(result), Span.RUN)
    return "without a guarantee" if found is None else f"epsilon {found.bounds.words}"


def spent(result: Mapping[str, Any]) -> dict[float, int]:
    """The number of clients by the epsilon that they spent in the run, from their ledgers or their
    reports.
    """
    if ledgers := result["epsilon_spent"]:
        return {float(epsilon): int(clients) for epsilon, clients in ledgers}
    releases = [each for account in result.get("accounting", ()) for each in account["releases"]]
    times = max([1, *(each["times"] for each in releases)])
    reporting, asked = (-(-int(result[count]) // times) for count in ("reports", "asked"))
    silent = {0.0: asked - reporting} if asked > reporting else {}
    return {float(result["epsilon_paid"]): reporting, **silent}


def _picture(name: str, figure: Figure, caption: str) -> str:
    drawn = canvas.svg(figure, name).replace(
        "<svg", f"<svg role=img aria-label='{escape(name)}'", 1
    )
    return f"<figure id={name}>{drawn}<figcaption>{as_html(caption)}</figcaption></figure>"


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """The HTML of a table whose rows begin with their names."""
    header = "".join(f"<th scope=col>{as_html(cell)}" for cell in head)
    lines = "".join(f"<tr><th scope=row>{'<td>'.join(map(as_html, row))}" for row in rows)
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
