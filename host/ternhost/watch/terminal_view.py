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
from ternhost.store.snapshot import OpenRound
from ternhost.text import brief, counted, visible
from ternhost.watch.curves import Curve, word
from ternhost.watch.fleet_view import budget, failed
from ternhost.watch.summary import Summary, breakdown
from ternhost.watch.words import ago, duration, epsilon_of, time_of

_WIDE = 70  # columns of a terminal for all columns of the boards
_CURVE_LINES = 5
# Columns of the boards that may be cut, to the room that is left, and to 12 characters.
_LONG = ("board", "last error")
_CUT = ("release",)
_CUT_TO = 12
_NUMBERS = ("heard", "left", "errors")
# The bits of the dots of a Braille character (from U+2800), by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
Row = list[str | Text]
_STATUS_STYLE = {RUNNING: "green", FINISHED: "blue"}


def console() -> Console:
    """Standard output, on which text is printed as it is."""
    return Console(highlight=False, emoji=False, markup=False)


class Drawn:
    """A summary as rich prints it."""

    def __init__(self, summary: Summary, boards: int | None = None) -> None:
        """boards: how many of the worst are listed; None: as many as there is room for."""
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
                lines_above = len(console.render_lines(Group(*parts), options, pad=False))
                most = max(1, options.size.height - lines_above - 5)
            parts += _worst(summary, most, options.max_width)
        yield Group(*parts)


def _line(*words: str | tuple[str, str]) -> Text:
    """A line, or more where the terminal is narrow. words: plain, or with a style."""
    line = Text()
    for part in words:
        if isinstance(part, str):
            line.append(brief(part))
        else:
            text, style = part
            line.append(brief(text), style)
    return line


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
        yield _progress(f"round {run.rounds + 1:,}{planned} ", under_way)
        time = time_of(under_way, summary.at)
        if time:
            yield _line((time, "dim"))
    elif last:
        ending = f"{last.get('ended', '')}, {ago(last.get('finished'))}"
        yield _line(f"round {run.rounds:,}{planned}: {ending}")


def _progress(name: str, under_way: OpenRound) -> Table:
    """The name of a round, a bar, and its counts."""
    row = Table.grid(expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    wanted = max(under_way.wanted, 1)
    bar = ProgressBar(total=wanted, completed=min(under_way.reports, wanted))
    row.add_row(name, bar, f" {under_way.reports:,}/{under_way.wanted:,}")
    return row


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
        comparison = ""
        if summary.interval:
            low, high = summary.interval
            comparison += f"  95 %: {low:.3f} to {high:.3f}"
        if curve.optimum is not None:
            comparison += f"  without privacy: {curve.optimum:.4f}"
        yield _line((figure, "bold"), (comparison, "dim"))
    if len(curve.points) > 1 and not options.ascii_only:
        yield _curve(curve, options.max_width)


def _curve(curve: Curve, width: int) -> RenderableType:
    values = [y for _, y in curve.points]
    labels = [""] * _CURVE_LINES
    labels[0] = f"{max(values):.3f} "
    labels[-1] = f"{min(values):.3f} "
    width_of_labels = max(len(label) for label in labels)
    lines = plot(curve.points, max(8, width - width_of_labels), _CURVE_LINES)
    grid = Table.grid()
    for label, line in zip(labels, lines, strict=True):
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
    has_ended = summary.run.status == FINISHED
    remark = "; no host listens to them since the run ended" if has_ended else ""
    counts = f"{fleet.boards:,}: {breakdown(fleet.states)}"
    yield _line(("Boards ", "bold"), counts, (remark, "dim"))
    yield _line("heard within ", breakdown(fleet.ages))
    if fleet.releases:
        yield _line("release ", breakdown(fleet.releases))
    if fleet.errors:
        yield _line("last error ", (breakdown(fleet.errors), "yellow"))
    without_entropy = fleet.generators.get("failed")
    if without_entropy:
        yield _line((f"entropy failed on {without_entropy:,}", "bold red"))


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
    lines = []
    if report is not None:
        lines.append(report.words())
    lines += words_of(classes)
    spent = summary.epsilon.get("spent")
    if spent is not None:
        amount = f"{epsilon_of(run)} {rounded(spent)}"
        lines.append(f"spent so far, mean of devices, by accepted reports: {amount}")
    left = summary.epsilon.get("left")
    if left is not None:
        lines.append(f"{left:g} is left on the board with the least")
    if lines:
        yield Text()
        yield _line(("Privacy", "bold"))
        yield from map(_line, lines)


def _worst(summary: Summary, most: int, width: int) -> Iterable[RenderableType]:
    """The boards that need attention first, in a table that fits the width."""
    is_wide = width >= _WIDE
    columns = ["board", "", *_NUMBERS]
    if is_wide:
        columns += ["release", "last error"]
    rows = []
    for board in summary.worst[:most]:
        rows.append(_cells(board, summary.at)[: len(columns)])

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for name, size in _sizes(columns, rows, width).items():
        side: Literal["right", "left"] = "right" if name in _NUMBERS else "left"
        table.add_column(name, justify=side, no_wrap=True, width=size, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    yield Text()
    yield table
    reported = "left, release" if is_wide else "left"
    yield _line((f"{reported}: as the board reported when it connected, unverified", "dim"))


def _sizes(columns: Sequence[str], rows: Sequence[Row], width: int) -> dict[str, int]:
    """The width of each column. A number is never cut: it would become another one."""
    sizes = {}
    for i, name in enumerate(columns):
        size = max(len(name), *(len(row[i]) for row in rows))
        sizes[name] = min(size, _CUT_TO) if name in _CUT else size

    long = [name for name in columns if name in _LONG]
    taken = sum(size for name, size in sizes.items() if name not in long)
    spaces = len(columns) - 1
    room = max(4, (width - taken - spaces) // len(long))
    for name in long:
        sizes[name] = min(sizes[name], room)
    return sizes


def _cells(board: BoardRow, now: float) -> Row:
    state = Text("online") if board.online else Text("offline", "yellow")
    if failed(board):
        state = Text("failed", "bold red")
    heard = duration(max(0.0, now - board.heard))
    left = budget(board)
    left_text = "" if left is None else f"{left:g}"
    errors = f"{board.errors:,}" if board.errors else ""
    release = visible(str(board.hello.get("release") or ""))
    error = visible(board.error or absence.describe(board.hello))
    return [visible(board.name), state, heard, left_text, errors, release, error]


def plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Draw a curve in Braille characters, scaled to the extreme values.

    width, height: in characters. The x of the points must ascend.
    """
    dots = [[0] * width for _ in range(height)]  # bits of each character
    pixels = _scaled(points, columns=2 * width, rows=4 * height)
    for (x0, y0), (x1, y1) in zip(pixels, pixels[1:] or pixels, strict=False):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(steps + 1):
            x = x0 + round((x1 - x0) * i / steps)
            y = y0 + round((y1 - y0) * i / steps)
            dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    return ["".join(chr(0x2800 + bits) for bits in line) for line in dots]


def _scaled(
    points: Sequence[tuple[float, float]], columns: int, rows: int
) -> list[tuple[int, int]]:
    """The column and the row, from the top, of each point."""
    if not points:
        return []
    first, last = points[0][0], points[-1][0]
    low = min(y for _, y in points)
    high = max(y for _, y in points)

    def column(x: float) -> int:
        return round((x - first) / (last - first) * (columns - 1)) if last > first else 0

    def row(y: float) -> int:
        return round((high - y) / (high - low) * (rows - 1)) if high > low else rows // 2

    return [(column(x), row(y)) for x, y in points]
