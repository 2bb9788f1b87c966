"""Draws the summary of a run for a terminal, however narrow, with rich."""

from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ternhost.extensions import Line
from ternhost.privacy.guarantee import Span, rounded
from ternhost.reach import absence
from ternhost.run.guarantees import OfClass, words_of, worst
from ternhost.store.boards import BoardRow
from ternhost.store.runs import FINISHED, RUNNING
from ternhost.text import brief, counted, visible
from ternhost.watch.curves import Curve, word
from ternhost.watch.fleet_view import budget, failed
from ternhost.watch.summary import Summary, breakdown
from ternhost.watch.words import ago, duration, epsilon_of, time_of

_WIDE = 70  # columns of a terminal for all columns of the boards
_CURVE_LINES = 5
_LONG, _CUT = ("board", "last error"), ("release",)  # columns of the boards that may be cut
# The bits of the dots of a Braille character (from U+2800), by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_STATUS_STYLE = {RUNNING: "green", FINISHED: "blue"}


def console() -> Console:
    """Standard output, on which text is printed as it is."""
    return Console(highlight=False, emoji=False, markup=False)


class Drawn:
    """A summary as rich prints it. boards: how many of the worst are listed; None: as many as there
    is room for.
    """

    def __init__(self, summary: Summary, boards: int | None = None) -> None:
        self._summary = summary
        self._boards = boards

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        summary = self._summary
        parts = list(_head(summary))
        if summary.run is not None:
            parts += _round(summary)
            parts += _learning(summary, options)
            parts += _refusals(summary)
            parts += _fleet(summary)
            parts += _privacy(summary)
            if summary.worst:
                most = self._boards
                if most is None:
                    above = len(console.render_lines(Group(*parts), options, pad=False))
                    most = max(1, options.size.height - above - 5)
                parts += _worst(summary, most, options.max_width)
        yield Group(*parts)


def _line(*words: str | tuple[str, str]) -> Text:
    """A line, or more where the terminal is narrow. words: plain, or with a style."""
    shown = [brief(word) if isinstance(word, str) else (brief(word[0]), word[1]) for word in words]
    return Text.assemble(*shown)


def _head(summary: Summary) -> Iterable[RenderableType]:
    if summary.note:
        yield _line((summary.note, "yellow"))
    run = summary.run
    if run is None:
        yield _line("waiting for a run in ", (summary.store, "bold"))
        return
    status = (run.status, _STATUS_STYLE.get(run.status, "yellow"))
    yield _line(("tern ", "bold"), status, f"  {run.name}")
    yield _line(f"{run.algorithm} on {run.fleet}")


def _round(summary: Summary) -> Iterable[RenderableType]:
    run, under_way, last = summary.run, summary.round, summary.last
    assert run is not None
    yield Text()
    planned = f" of {summary.rounds:,}" if summary.rounds else ""
    answers = f"{counted(run.reports, 'report')}, {counted(run.refusals, 'refusal')}"
    yield _line(("Rounds ", "bold"), f"{run.rounds:,}{planned}, {answers}")
    if under_way is not None:
        bar = Table.grid(expand=True)
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        bar.add_column(no_wrap=True)
        wanted = max(under_way.wanted, 1)
        progress = ProgressBar(total=wanted, completed=min(under_way.reports, wanted))
        counts = f" {under_way.reports:,}/{under_way.wanted:,}"
        bar.add_row(f"round {run.rounds + 1:,}{planned} ", progress, counts)
        yield bar
        if since := time_of(under_way, summary.at):
            yield _line((since, "dim"))
    elif last:
        yield _line(
            f"round {run.rounds:,}{planned}: {last.get('ended', '')}, {ago(last.get('finished'))}"
        )


def _learning(summary: Summary, options: ConsoleOptions) -> Iterable[RenderableType]:
    curve = summary.curve
    if curve is None:
        return
    yield Text()
    for name, value in summary.figures.items():
        figure = f"{word(name)} {value:.4f}"
        if name != curve.measure:
            yield _line(figure)
            continue
        beside = "  95 %: {:.3f} to {:.3f}".format(*summary.interval) if summary.interval else ""
        beside += "" if curve.optimum is None else f"  without privacy: {curve.optimum:.4f}"
        yield _line((figure, "bold"), (beside, "dim"))
    if len(curve.points) > 1 and not options.ascii_only:
        yield _curve(curve, options.max_width)


def _curve(curve: Curve, width: int) -> RenderableType:
    values = [y for _, y in curve.points]
    labels = [""] * _CURVE_LINES
    labels[0], labels[-1] = f"{max(values):.3f} ", f"{min(values):.3f} "
    room = max(map(len, labels))
    grid = Table.grid()
    for label, line in zip(
        labels, plot(curve.points, max(8, width - room), _CURVE_LINES), strict=True
    ):
        grid.add_row(Text(label, "dim", no_wrap=True), Text(line, "cyan", no_wrap=True))
    grid.add_row("", Text(f"by {curve.by}, {curve.points[-1][0]:,.0f} so far", "dim", no_wrap=True))
    return grid


def _refusals(summary: Summary) -> Iterable[RenderableType]:
    if summary.reasons:
        yield Text()
        yield _line(("Refusals ", "bold"), (breakdown(summary.reasons), "yellow"))


def _fleet(summary: Summary) -> Iterable[RenderableType]:
    for view in summary.views:
        for line in view.lines():
            yield from _of_extension(line)
    fleet = summary.fleet
    if fleet is None or summary.run is None:
        return
    yield Text()
    beside = "; no host listens to them since the run ended" * (summary.run.status == FINISHED)
    yield _line(
        ("Boards ", "bold"), f"{fleet.boards:,}: {breakdown(fleet.states)}", (beside, "dim")
    )
    yield _line("heard within ", breakdown(fleet.ages))
    for what, counts, style in (
        ("release ", fleet.releases, ""),
        ("last error ", fleet.errors, "yellow"),
    ):
        if counts:
            yield _line(what, (breakdown(counts), style))
    if count := fleet.generators.get("failed"):
        yield _line((f"entropy failed on {count:,}", "bold red"))


def _of_extension(line: Line) -> Iterable[RenderableType]:
    """A line of an extension: one that needs attention belongs to the one above it."""
    if line.warns:
        yield _line(f"{line.heading} ", (line.text, "yellow"))
    else:
        yield Text()
        yield _line((f"{line.heading} ", "bold"), line.text)


def _privacy(summary: Summary) -> Iterable[RenderableType]:
    run = summary.run
    assert run is not None
    classes = [OfClass.from_json(each) for each in run.guarantees]
    report = worst(classes, Span.REPORT)
    lines = [] if report is None else [report.words()]
    lines += words_of(classes)
    if (spent := summary.epsilon.get("spent")) is not None:
        lines.append(
            f"spent so far, mean of devices, by accepted reports: {epsilon_of(run)} {rounded(spent)}"
        )
    if (left := summary.epsilon.get("left")) is not None:
        lines.append(f"{left:g} is left on the board with the least")
    if lines:
        yield Text()
        yield _line(("Privacy", "bold"))
        yield from map(_line, lines)


def _worst(summary: Summary, most: int, width: int) -> Iterable[RenderableType]:
    wide = width >= _WIDE
    columns = ["board", "", "heard", "left", "errors"] + ["release", "last error"] * wide
    rows = [_cells(board, summary.at)[: len(columns)] for board in summary.worst[:most]]
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    wholes = [max(len(name), *(len(row[i]) for row in rows)) for i, name in enumerate(columns)]
    wholes = [
        min(whole, 12) if name in _CUT else whole
        for whole, name in zip(wholes, columns, strict=True)
    ]
    long = [name for name in columns if name in _LONG]
    taken = sum(whole for whole, name in zip(wholes, columns, strict=True) if name not in _LONG)
    most_of_long = max(4, (width - taken - len(columns) + 1) // len(long))
    for name, whole in zip(columns, wholes, strict=True):
        # A number is never cut: it would become another one.
        size = min(whole, most_of_long) if name in _LONG else whole
        side: Literal["right", "left"] = "right" if name in ("heard", "left", "errors") else "left"
        table.add_column(name, justify=side, no_wrap=True, width=size, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    yield Text()
    yield table
    reported = "left, release" if wide else "left"
    yield _line((f"{reported}: as the board reported when it connected, unverified", "dim"))


def _cells(board: BoardRow, now: float) -> list[str | Text]:
    state = ("online", "") if board.online else ("offline", "yellow")
    if failed(board):
        state = "failed", "bold red"
    left, release = budget(board), visible(str(board.hello.get("release") or ""))
    numbers = ["" if left is None else f"{left:g}", f"{board.errors:,}" if board.errors else ""]
    heard, error = (
        duration(max(0.0, now - board.heard)),
        board.error or absence.describe(board.hello),
    )
    return [visible(board.name), Text(*state), heard, *numbers, release, visible(error)]


def plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Draw a curve in Braille characters, scaled to the extreme values.

    The x of the points must ascend.
    """
    cells = [[0] * width for _ in range(height)]
    if points:
        columns, rows = 2 * width, 4 * height
        first, last = points[0][0], points[-1][0]
        low, high = min(y for _, y in points), max(y for _, y in points)

        def column(x: float) -> int:
            return round((x - first) / (last - first) * (columns - 1)) if last > first else 0

        def row(y: float) -> int:
            return round((high - y) / (high - low) * (rows - 1)) if high > low else rows // 2

        at = [(column(x), row(y)) for x, y in points]
        for (x0, y0), (x1, y1) in zip(at, at[1:] or at, strict=False):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            for i in range(steps + 1):
                x, y = x0 + round((x1 - x0) * i / steps), y0 + round((y1 - y0) * i / steps)
                cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    return ["".join(chr(0x2800 + cell) for cell in line) for line in cells]
