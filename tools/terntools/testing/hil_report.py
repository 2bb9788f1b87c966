"""Writes the reports of `tern hil` about all boards: a page, and an XML file in JUnit's format."""

import html
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement

from terntools.testing.board_run import BoardResult

# Of the table with a row for each board.
_COLUMNS = (
    "board",
    "platform",
    "firmware",
    "tern",
    "result",
    "passed",
    "failed",
    "skipped",
    "seconds",
)


def write(results: Sequence[BoardResult], directory: Path) -> None:
    """Write report.html and junit.xml about these boards into a folder."""
    (directory / "report.html").write_text(page(results), encoding="utf-8")
    root = Element("testsuites")
    for result in results:
        root.extend(_suites(result))
    tree = ElementTree(root)
    tree.write(directory / "junit.xml", encoding="utf-8", xml_declaration=True)


def _suites(result: BoardResult) -> list[Element]:
    """Return the XML elements `testsuite` of a board for the JUnit file.

    They get a property with the board's platform. A lost board has one more, with an error.
    """
    suites = list(result.suites)
    for suite in suites:
        properties = suite.find("properties")
        if properties is None:
            properties = SubElement(suite, "properties")
        SubElement(properties, "property", name="platform", value=result.board.platform)
    if result.lost:
        lost = Element("testsuite", name=result.board.id, tests="1", errors="1")
        test_case = SubElement(lost, "testcase", classname=result.board.id, name="is there")
        SubElement(test_case, "error", message=result.lost)
        suites.append(lost)
    return suites


def page(results: Sequence[BoardResult]) -> str:
    """Return the report on all boards as HTML: an overview, and then the tests of each board."""
    from ternhost.run.report import page as report  # loads matplotlib

    heading = f"<h1>Hardware in the loop</h1><p>{time.strftime('%Y-%m-%d %H:%M')}</p>"
    overview = report.table(_COLUMNS, [_row(result) for result in results])
    details = []
    for result in results:
        title = html.escape(f"{result.board.id}: {result.word}")
        details.append(f"<h2>{title}</h2>")
        for note in (result.board.notes, result.lost):
            if note:
                details.append(f"<p>{html.escape(note)}</p>")
        rows = [(case.name, case.state, case.message) for case in result.cases]
        details.append(report.table(("test", "result", "message"), rows))

    # Messages are long and have several lines.
    style = f"{report.STYLE}td:last-child {{ white-space: pre-wrap; overflow-wrap: anywhere; }}"
    body = "\n".join((heading, overview, *details))
    return report.PAGE.format(title="tern: hardware in the loop", style=style, body=body)


def _row(result: BoardResult) -> tuple[str, ...]:
    """Return a board's row in the overview: a text for each of _COLUMNS."""
    properties = result.properties
    return (
        result.board.id,
        properties.get("board", result.board.platform),
        properties.get("firmware", "?"),
        properties.get("tern", "?"),
        result.word,
        *map(str, result.counts.values()),
        f"{result.seconds:.0f}",
    )
