"""What the demo says: lines of progress, and tables at its end.

All of it fits into 40 columns or is wrapped to the terminal, and is ASCII, so that every terminal
shows it.
"""

import shutil
import textwrap
from collections.abc import Sequence

from ternhost.demo.jobs import BOARDS, DEVICES, Cost, Demo, Job, Quality, Spectator
from ternhost.privacy.guarantee import rounded
from ternhost.run.status import Status
from ternhost.terminal import Progress

_BAR = 24  # characters
_LINES = 10  # about rounds, of each job
_WIDEST = 79  # columns of a paragraph
# Columns of a table, which together have 40.
_NAMES, _VALUES = 16, 12

TABLE_NOTES = (
    "warned: of the tenth of the flights that a model warns of, how many were late.",
    "told apart: of a late and a punctual flight, how often a model tells which one is late (AUC).",
)


class Printer(Spectator):
    """Prints how the demo goes on: a line for some rounds, with a bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._guessing = 0.0
        self._without_privacy = 1.0

    def begins(self, job: Job, guessing: Quality, without_privacy: Quality) -> None:
        """Say what a job is, and begin its curve at guessing."""
        self._guessing = guessing.warned
        self._without_privacy = without_privacy.warned
        self._say("")
        if job.name == DEVICES.name:  # the first one
            self._say(
                "Which flights from New York will be late? A model learns it from the plan and the "
                "weather, through emulated boards. It then warns of a tenth of some other flights: "
                "of those at the highest risk."
            )
            self._say("")
        self._say(introduction(job))
        self._say("warned flights that were late, by round:")
        self._say(_bar_line("none", guessing.warned, self._without_privacy))

    def round_ends(self, status: Status, quality: Quality) -> None:
        """Print the quality of the model after this round, unless too many lines would come."""
        rounds = status.rounds or status.round
        is_shown = status.round * _LINES // rounds > (status.round - 1) * _LINES // rounds
        line = _bar_line(str(status.round), quality.warned, self._without_privacy)
        if is_shown or status.round == 1:
            self._progress.say(line)
        if status.round == rounds:
            self._progress.step("reading what each board has spent")
        else:
            self._progress.step(f"round {status.round + 1} of {rounds}")

    def waits(self, text: str) -> None:
        self._progress.step(text)

    def warns(self, text: str) -> None:
        self._say(f"warning: {text}")

    def _say(self, text: str) -> None:
        """Print a paragraph."""
        self._progress.say("\n".join(_wrapped(text, indent=2)))


def _wrapped(text: str, indent: int = 0) -> list[str]:
    """Break a paragraph into lines that fit the terminal.

    indent: columns at the left that something else takes.
    """
    columns = min(shutil.get_terminal_size().columns, _WIDEST)
    continued = " " * indent
    # The first line gets its indent from whoever prints it.
    lines = textwrap.wrap(continued + text, max(20, columns), subsequent_indent=continued)
    return [line[indent:] if number == 0 else line for number, line in enumerate(lines)] or [""]


def introduction(job: Job) -> str:
    """Say who learns, and how it is protected."""
    return f"{job.title}, {_holdings(job)}. {job.noise}."


def _holdings(job: Job) -> str:
    """Say how many flights a device of a job has."""
    records = job.options.get("records", 1)
    if records == 1:
        return "with one flight each"
    return f"with {records} flights each"


def _bar_line(name: str, share: float, full: float) -> str:
    """Return a line with a share of late flights as a bar, 38 columns wide.

    name: what comes first, such as the number of a round. full: the share that fills the bar.
    """
    filled = max(0, min(_BAR, round(_BAR * share / full)))
    bar = "#" * filled + "." * (_BAR - filled)
    return f"{name:>5}  {percent(share):>4}  {bar}"


def percent(share: float) -> str:
    """Write a share as whole per cent, such as "44 %"."""
    return f"{100 * share:.0f} %"


def summary(demo: Demo, report: str) -> list[str]:
    """Return the lines at the end: what was learned, what was protected, and what that cost.

    report: the path of the report.
    """
    lines = ["", *_rows(quality_table(demo)), ""]
    for note in TABLE_NOTES:
        lines += _wrapped(note)
    lines += ["", *_rows(cost_table(demo)), ""]
    for sentence in sentences(demo):
        lines += _wrapped(sentence)
    for learned in demo.learned:
        lines.append(f"run: {learned.result['directory']}")
    lines.append(f"report: {report}")
    return lines


def quality_table(demo: Demo) -> list[list[str]]:
    """Return what was learned: a row for each way of learning, from guessing to no privacy."""
    rows = [["", "warned", "told apart"], _quality_row("guessing", demo.guessing)]
    for learned in demo.learned:
        rows.append(_quality_row(learned.job.title, learned.curve[-1]))
    rows.append(_quality_row("no privacy", demo.without_privacy))
    return rows


def _quality_row(name: str, quality: Quality) -> list[str]:
    return [name, percent(quality.warned), percent(quality.told_apart)]


def cost_table(demo: Demo) -> list[list[str]]:
    """Return what was protected and what that cost, with a column for each job."""
    titles = {DEVICES.name: "a device", BOARDS.name: "a board"}
    columns = [
        [titles[learned.job.name], *_cost_column(learned.job, learned.cost)]
        for learned in demo.learned
    ]
    names = [
        "what it cost",
        "protected",
        "epsilon",
        "delta",
        "flights it has",
        "reports it sends",
        "bytes of these",
        "time on a Pico",
    ]
    return [list(row) for row in zip(names, *columns, strict=True)]


def _cost_column(job: Job, cost: Cost) -> list[str]:
    """Return what a job costs each of its devices, from top to bottom."""
    return [
        job.protects,
        rounded(cost.epsilon),
        f"{cost.delta:g}",
        f"{cost.records:,}",
        f"{cost.reports:,}",
        f"{cost.bytes_sent:,}",
        duration(cost.pico_seconds),
    ]


def duration(seconds: float) -> str:
    """Write a time in milliseconds or seconds."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.0f} s"


def sentences(demo: Demo) -> list[str]:
    """Say what the numbers of the cost table mean."""
    return [f"{learned.job.title}: {learned.guarantee}." for learned in demo.learned]


def _rows(table: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table in lines of at most 40 columns."""
    lines = []
    for name, *values in table:
        cells = "".join(f"{value:>{_VALUES}}" for value in values)
        lines.append(f"{name:<{_NAMES}}{cells}")
    return lines
