"""Writes a privacy statement: as one HTML file with its picture, as Markdown, and as JSON."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from tern import wire
from ternhost.files import storage_errors, write_file
from ternhost.plots import accounts, canvas
from ternhost.privacy.guarantee import Span
from ternhost.run.report import page as report
from ternhost.statement import sentences
from ternhost.statement.evidence import Evidence, find
from ternhost.statement.facts import Facts
from ternhost.statement.sentences import Section, Sentence, Table
from ternhost.text import as_html, visible

HTML, MARKDOWN, PICTURE = "privacy.html", "privacy.md", "privacy.png"
BEHIND = "What stands behind this"
_PICTURED = (Span.RUN, Span.LIFE, Span.BUDGET)
_CAPTION = (
    "What an observer can come to believe about what is protected, if it believed 50 %, 10 % or 1 % before. At delta, "
    "where the table above names one."
)
# Characters that mean something in Markdown.
_MARKS = re.compile(r"([\\`*_\[\]<>|])")
_STYLE = """sup { color: var(--soft); } h2 { font-size: 1.125rem; margin: 1.5rem 0 .25rem; }
p { margin: .4rem 0; } figure svg { max-width: 40rem; } code { font-size: .8125rem; overflow-wrap: anywhere; }
.evidence { font-size: .875rem; color: var(--soft); }
@media print { body { font-size: 10pt; max-width: none; } h2 { break-after: avoid; } }"""


def title(facts: Facts) -> str:
    """The heading of the page."""
    return f"Privacy statement of the {facts.kind.value} {facts.name}"


def numbered(sections: Sequence[Section]) -> dict[str, int]:
    """Return the number of each piece of evidence, by its key.

    The numbers begin at 1 and follow the order in which the page refers to the evidence, as do the
    numbers of footnotes. A part of a section, a sentence or a table, has the keys of its evidence.
    """
    numbers: dict[str, int] = {}
    for section in sections:
        for part in section.parts:
            for key in part.keys:
                if key not in numbers:
                    numbers[key] = len(numbers) + 1
    return numbers


def stamp(facts: Facts) -> str:
    """Return a line on when and by which versions of the programs the statement was made."""
    made = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(facts.made))
    programs = f"tern {version('tern-ldp')}, Python {platform.python_version()}"
    return f"Made on {made} by {programs}. Wire schema {wire.SCHEMA.hex()}."


def picture(facts: Facts) -> Figure | None:
    """Draw what the guarantees mean for an observer's beliefs; None if there are no guarantees.

    A bar stands for an epsilon. A guarantee about a device has one bar. A guarantee about a run of
    records has two: for whether the run was there, and for what it says.
    """
    epsilon_of_bar: dict[str, float] = {}  # by the bar's label
    for guarantee in sentences.shown(facts):
        if guarantee.span not in _PICTURED:
            continue
        about = sentences.SPANS[guarantee.span]
        if guarantee.content is None:  # about a device
            epsilon_of_bar[about] = guarantee.bounds.epsilon
        else:
            epsilon_of_bar[f"{about}\nwas it there?"] = guarantee.bounds.epsilon
            epsilon_of_bar[f"{about}\nwhat does it say?"] = guarantee.content.epsilon
    if not epsilon_of_bar:
        return None
    return accounts.beliefs(list(epsilon_of_bar.items()), sentences.PRIORS)


# HTML


def html(facts: Facts) -> str:
    """Return the statement as one HTML file, with its picture inside."""
    sections = sentences.sections(facts)
    numbers = numbered(sections)
    body = [f"<h1>{as_html(title(facts))}</h1>", f"<p class=evidence>{as_html(stamp(facts))}</p>"]
    for section in sections:
        body.append(f"<h2>{escape(section.title)}</h2>")
        for part in section.parts:
            body.append(_part_as_html(part, numbers))
        if section.title == sentences.HOW_WELL:
            body += _figure_as_html(facts)

    body.append(f"<h2>{BEHIND}</h2><ol class=evidence>")
    for key in numbers:  # in the order of their numbers, which the list repeats
        body.append(f"<li>{_evidence_as_html(find(key))}</li>")
    body.append("</ol>")

    heading = escape(visible(title(facts)))
    style = f"{report.STYLE}\n{_STYLE}"
    return report.PAGE.format(title=heading, style=style, body="\n".join(body))


def _figure_as_html(facts: Facts) -> Iterable[str]:
    """Yield the picture of beliefs with its caption, if there is one."""
    figure = picture(facts)
    if figure is not None:
        svg = canvas.svg(figure, "beliefs")
        svg = svg.replace("<svg", "<svg role=img aria-label='beliefs'", 1)
        yield f"<figure>{svg}<figcaption>{as_html(_CAPTION)}</figcaption></figure>"


def _part_as_html(part: Sentence | Table, numbers: Mapping[str, int]) -> str:
    """Return a sentence or a table as HTML, followed by the numbers of its evidence."""
    marks = f"<sup>{_refer(part.keys, numbers)}</sup>"
    if isinstance(part, Sentence):
        return f"<p>{as_html(part.text)} {marks}</p>"
    return f"{report.table(part.head, part.rows)}<p class=evidence>{marks}</p>"


def _refer(keys: Iterable[str], numbers: Mapping[str, int]) -> str:
    """Return the numbers of the evidence with these keys in ascending order, such as "1, 4"."""
    ascending = sorted(numbers[key] for key in keys)
    return ", ".join(str(number) for number in ascending)


def _evidence_as_html(evidence: Evidence) -> str:
    """Return a piece of evidence as HTML: what it shows, its sources and its tests."""
    html = as_html(_claim(evidence))
    for label, names in _places(evidence):
        codes = [f"<code>{as_html(name)}</code>" for name in names]
        html += f" {label}: {', '.join(codes)}."
    return html


def _claim(evidence: Evidence) -> str:
    """Return what the evidence shows as a sentence, with a capital letter and a full stop."""
    return f"{evidence.shows[:1].upper()}{evidence.shows[1:]}."


def _places(evidence: Evidence) -> list[tuple[str, tuple[str, ...]]]:
    """Return where the evidence is written, and which tests try to break it.

    Each entry is a label and the names of files of the repository; what is empty is left out.
    """
    places = []
    if evidence.sources:
        places.append(("Where", evidence.sources))
    if evidence.tests:
        places.append(("Tests", evidence.tests))
    return places


# Markdown


def markdown(facts: Facts) -> str:
    """Return the statement as Markdown, which refers to the picture as a file beside it."""
    sections = sentences.sections(facts)
    numbers = numbered(sections)
    has_picture = bool(facts.promised or facts.budgets)
    lines = [f"# {_plain(title(facts))}", "", _plain(stamp(facts))]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for part in section.parts:
            lines += ["", *_part_as_markdown(part, numbers)]
        if section.title == sentences.HOW_WELL and has_picture:
            lines += ["", f"![{_plain(_CAPTION)}]({PICTURE})"]

    lines += ["", f"## {BEHIND}", ""]
    for key, number in numbers.items():
        lines.append(f"{number}. {_evidence_as_markdown(find(key))}")
    return "\n".join(lines) + "\n"


def _part_as_markdown(part: Sentence | Table, numbers: Mapping[str, int]) -> list[str]:
    """Return the lines of a sentence or a table, with the numbers of its evidence at the end."""
    marks = f"({_refer(part.keys, numbers)})"
    if isinstance(part, Sentence):
        return [f"{_plain(part.text)} {marks}"]
    rules = ["---"] * len(part.head)  # the line between head and rows
    lines = [_row_as_markdown(part.head), f"| {' | '.join(rules)} |"]
    lines += [_row_as_markdown(row) for row in part.rows]
    return [*lines, "", marks]


def _row_as_markdown(row: Sequence[str]) -> str:
    """Return the cells of a row as a line of a Markdown table."""
    cells = [_plain(cell) for cell in row]
    return f"| {' | '.join(cells)} |"


def _evidence_as_markdown(evidence: Evidence) -> str:
    """Return a piece of evidence as Markdown: what it shows, its sources and its tests."""
    text = _plain(_claim(evidence))
    for label, names in _places(evidence):
        codes = [f"`{name}`" for name in names]
        text += f" {label}: {', '.join(codes)}."
    return text


def _plain(text: str) -> str:
    """Return a text in one line, with the characters escaped that mean something in Markdown."""
    one_line = " ".join(visible(text).split())
    return _MARKS.sub(r"\\\1", one_line)


# JSON and files


def as_json(facts: Facts) -> dict[str, Any]:
    """Return the exact guarantees and the sections of the statement, ready for JSON."""
    sections = sentences.sections(facts)
    evidence = {}
    for key in numbered(sections):
        evidence[str(key)] = asdict(find(key))
    versions = {
        "tern": version("tern-ldp"),
        "schema": wire.SCHEMA.hex(),
        "python": platform.python_version(),
    }
    return {
        "kind": facts.kind.value,
        "name": facts.name,
        "made": facts.made,
        "versions": versions,
        "guarantees": [guarantee.as_json() for guarantee in facts.guarantees],
        "cards": [report.card.hex() for report in facts.report_formats],
        "sections": [asdict(section) for section in sections],
        "evidence": evidence,
    }


def write(facts: Facts, directory: Path) -> dict[str, str]:
    """Write the statement as HTML and Markdown, and its picture as PNG, into a folder.

    directory: the folder, which is made if it does not exist. Returns the path of each file by the
    ending of its name: html, md, png (which is missing if there is no picture). Raises
    StorageError.
    """
    contents = {HTML: html(facts).encode(), MARKDOWN: markdown(facts).encode()}
    figure = picture(facts)
    if figure is not None:
        contents[PICTURE] = canvas.png(figure)
    with storage_errors("name another folder: --output DIR", f"{directory} cannot be made"):
        directory.mkdir(parents=True, exist_ok=True)

    path_by_ending = {}
    for name, data in contents.items():
        path = directory / name
        with storage_errors(
            what=f"{path} cannot be written", afterwards="or choose another folder"
        ):
            write_file(path, data)
        path_by_ending[path.suffix.removeprefix(".")] = str(path)
    return path_by_ending
