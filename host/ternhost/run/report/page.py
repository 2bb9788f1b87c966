"""The look of a run's report: one HTML file with everything in it, and its pictures as PNG beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ternhost.files import storage_errors, write_file
from ternhost.privacy.cards import decode
from ternhost.run.report import plots

NAME = "report.html"

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Page:
    """Pictures by file name, each with a caption; rows of (name, value, meaning); and more sections as HTML."""

    title: str
    lead: str
    pictures: Mapping[str, tuple[Figure, str]]
    results: Sequence[Row]
    settings: Sequence[Row]
    more: Sequence[str] = field(default_factory=tuple)


def write(page: Page, directory: str | Path) -> Path:
    """Write report.html and its pictures, and return the report's path. Raises StorageError."""
    directory = Path(directory)
    pictures = {name: plots.png(figure) for name, (figure, _) in page.pictures.items()}
    files = {f"{name}.png": data for name, data in pictures.items()}
    files[NAME] = render(page, pictures).encode()
    for name, data in files.items():
        with storage_errors("make room, or choose another folder", f"{directory / name} cannot be written"):
            write_file(directory / name, data)
    return directory / NAME


def render(page: Page, pictures: Mapping[str, bytes]) -> str:
    """The HTML of a report, with its pictures (PNG) inside."""
    body = [
        f"<h1>{text(page.title)}</h1>",
        f"<p class=lead>{text(page.lead)}</p>",
        *(_picture(name, pictures[name], caption) for name, (_, caption) in page.pictures.items()),
        "<h2>Results</h2>",
        _table(("result", "value", "what it means"), page.results),
        "<h2>Settings</h2>",
        _table(("setting", "value", "what it means"), page.settings),
        *page.more,
    ]
    return _PAGE.format(title=text(page.title), style=_STYLE, body="\n".join(body))


def common_results(result: Mapping[str, Any]) -> list[Row]:
    """The results of every run: its reports, its privacy and its time."""
    rows: list[Row] = [
        ("reports", f"{result['reports']:,}", "accepted, each counted once"),
        ("rounds", f"{result['rounds']:,}", "that have ended"),
    ]
    if result["missing"]:
        words = "reports that were asked for and refused, or did not come"
        rows.append(("missing", f"{result['missing']:,}", words))
    if "epsilon_per_client" in result:
        words = "certified: no report makes any input more than exp(epsilon) times as likely as another"
        rows.append(("epsilon a client", f"{result['epsilon_per_client']:.6g}", words))
    if result["epsilon_before"]:
        words = "the most that a client had spent before this run"
        rows.append(("epsilon before", f"{result['epsilon_before']:.6g}", words))
    if ledgers := result["epsilon_spent"]:
        most = max(epsilon for epsilon, _ in ledgers)
        rows.append(("most spent", f"{most:.6g}", "the largest epsilon in any client's ledger"))
    return [
        *rows,
        ("duration", f"{result['seconds']:,.1f} s", f"{result['reports_per_second']:,.0f} reports a second"),
    ]


def common_settings(result: Mapping[str, Any]) -> list[Row]:
    """The settings of every run: its fleet and its rounds."""
    options: Mapping[str, Any] = result["options"]
    return [
        ("fleet", str(options["fleet"]), "where the clients run"),
        ("quorum", percent(options["quorum"]), "share of a round's reports that ends it"),
        ("seed", str(options["seed"]), "deals clients and records; no client's noise depends on it"),
    ]


def common_pictures(
    result: Mapping[str, Any], card: str, title: str, note: str = ""
) -> dict[str, tuple[Figure, str]]:
    """The mechanism, of a card in hexadecimal digits, and what clients have spent; note: ends the caption of that."""
    return {
        "card": (
            plots.card_distribution(decode(bytes.fromhex(card)), title),
            "The mechanism itself, computed from the integers that the clients obeyed, not from a formula. Above: "
            "the probability of each reported value for some inputs. Below: how far any output can move the odds "
            "between two inputs; no output may pass the dashed line, and each client checked that itself.",
        ),
        "epsilon": (
            plots.epsilon_spent(spent(result), result["epsilon_per_client"]),
            "What each client has spent of its privacy, from first to last. " + note,
        ),
    }


def spent(result: Mapping[str, Any]) -> dict[float, int]:
    """The number of clients by the epsilon that they spent in the run, from their ledgers or their reports."""
    if ledgers := result["epsilon_spent"]:
        return {float(epsilon): int(clients) for epsilon, clients in ledgers}
    clients = {float(result["epsilon_per_client"]): int(result["reports"])}
    if silent := result["asked"] - result["reports"]:
        clients[0.0] = silent
    return clients


def _picture(name: str, png: bytes, caption: str) -> str:
    data = base64.b64encode(png).decode()
    return (
        f"<figure><img src='data:image/png;base64,{data}' alt='{text(name)}: {text(caption)}'>"
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def _table(head: Iterable[str], rows: Iterable[Row]) -> str:
    header = "".join(f"<th scope=col>{text(cell)}" for cell in head)
    lines = "".join(
        f"<tr><th scope=row>{text(name)}<td>{text(value)}<td>{text(meaning)}" for name, value, meaning in rows
    )
    return f"<div class=wide><table><thead><tr>{header}</thead><tbody>{lines}</tbody></table></div>"


def percent(share: float) -> str:
    """A share, for people."""
    return f"{100 * share:.2f} %" if share < 1 else "100 %"


def text(value: str) -> str:
    """A text as HTML."""
    return html.escape(value, quote=True)


_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 44rem; padding: 1.5rem 1rem 4rem; background: #fff; color: #222;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
.lead { font-size: 1.1rem; }
figure { margin: 2rem 0; }
img { display: block; width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; margin-top: .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { border-bottom: 1px solid #ddd; padding: .35rem .6rem .35rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; }
tbody td:nth-child(2) { font-variant-numeric: tabular-nums; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.model td { padding-top: .15rem; padding-bottom: .15rem; }
.bar { width: 45%; min-width: 8rem; }
.bar i { display: block; height: .8rem; background: #14406b; margin-left: 50%; }
.bar .down { background: repeating-linear-gradient(135deg, #c46a1b 0 3px, #fff 3px 5px); margin-left: auto;
  margin-right: 50%; }
@media (max-width: 30rem) { table { font-size: .85rem; } }
"""

_PAGE = """<!doctype html>
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
