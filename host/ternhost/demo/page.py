"""The report of the demo: both curves in one picture, and a table of all facts."""

from pathlib import Path

from matplotlib.figure import Figure

from ternhost.demo import words
from ternhost.demo.jobs import Demo
from ternhost.plots import runs
from ternhost.run.report.page import Page, common_settings, privacy_rows, write
from ternhost.text import as_html


def write_report(demo: Demo) -> Path:
    """Write report.html and its picture into the demo's directory, and return its path.

    Raises StorageError.
    """
    return write(_page(demo), demo.directory)


def _page(demo: Demo) -> Page:
    """Return the contents of the report."""
    results = []
    settings = []
    links = ""
    for learned in demo.learned:
        title = learned.job.title
        for sentence, meaning in privacy_rows(learned.result):
            results.append((title, sentence, meaning))
        for name, value, meaning in common_settings(learned.result):
            settings.append((f"{title}: {name}", value, meaning))
        report = Path("..", learned.result["run"], Path(learned.result["report"]).name)
        links += f"<li><a href='{as_html(report.as_posix())}'>{as_html(title)}</a>"
    introductions = " ".join(words.introduction(learned.job) for learned in demo.learned)
    return Page(
        title="Which flights will be late? Learned in private, in two ways",
        lead=f"{introductions} {' '.join(words.TABLE_NOTES)}",
        pictures={"curves": (curves(demo), _CAPTION)},
        figures=_table(demo),
        results=results,
        settings=settings,
        more={"The reports of both runs": f"<ul>{links}</ul>"},
    )


_CAPTION = (
    "How many of the flights that the model warned of were late, after each round. It warns of a "
    "tenth of those flights that no device has. Before the first round it can only guess."
)


def curves(demo: Demo) -> Figure:
    """Draw the quality of both models by the share of the rounds that have ended."""
    lines = {}
    for learned in demo.learned:
        shares = [demo.guessing.warned, *(quality.warned for quality in learned.curve)]
        lines[learned.job.title] = shares
    return runs.progress(
        lines,
        lowest=runs.Reference(demo.guessing.warned, "guessing"),
        highest=runs.Reference(demo.without_privacy.warned, "without privacy"),
        label="late, of the warned flights",
    )


def _table(demo: Demo) -> list[list[str]]:
    """Return a table of quality and cost, with a column for each way of learning."""
    quality = [list(row) for row in zip(*words.quality_table(demo), strict=True)]
    cost = words.cost_table(demo)
    head, *measures = quality
    rows = [head, *measures]
    for name, *values in cost[1:]:
        rows.append([name, "", *values, ""])  # guessing and no privacy cost nothing to compare
    return rows
