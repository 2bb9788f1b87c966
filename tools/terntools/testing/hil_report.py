"""The reports of `tern hil`: one page, and one JUnit file, of all boards."""

import html
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement

from terntools.testing.board_run import BoardResult

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
    """Write report.html and junit.xml into a folder."""
    (directory / "report.html").write_text(page(results), encoding="utf-8")
    root = Element("testsuites")
    for result in results:
        root.extend(_suites(result))
    tree = ElementTree(root)
    tree.write(directory / "junit.xml", encoding="utf-8", xml_declaration=True)


def _suites(result: BoardResult) -> list[Element]:
    """Return the suites of a board for JUnit; a lost board has one more, with an error."""
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
    """Return the HTML of a report on all boards."""
    from ternhost.run.report import page as report  # loads matplotlib

    heading = f"<h1>Hardware in the loop</h1><p>{time.strftime('%Y-%m-%d %H:%M')}</p>"
    overview = report.table(_COLUMNS, [_row(result) for result in results])
    details = []
    for result in results:
        details.append(f"<h2>{html.escape(f'{result.board.id}: {result.word}')}</h2>")
        for note in (result.board.notes, result.lost):
            if note:
                details.append(f"<p>{html.escape(note)}</p>")
        rows = [(case.name, case.state, case.message) for case in result.cases]
        details.append(report.table(("test", "result", "message"), rows))

    style = f"{report.STYLE}td:last-child {{ white-space: pre-wrap; overflow-wrap: anywhere; }}"
    body = "\n".join((heading, overview, *details))
    return report.PAGE.format(title="tern: hardware in the loop", style=style, body=body)


def _row(result: BoardResult) -> tuple[str, ...]:
    """Return a board's row in the overview, by _COLUMNS."""
    properties = result.properties
    return (
        result.board.id,
        properties.get("board", result.board.platform),
        properties.get("firmware", "?"),
        properties.get("tern", "?"),
        result.word,
        *(str(count) for count in result.counts.values()),
        f"{result.seconds:.0f}",
    )
