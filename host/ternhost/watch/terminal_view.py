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
from ternhost.run.guarantees import ClassGuarantees, words_of, worst
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
_NARROWEST_CURVE = 8  # characters
_LINES_AROUND_BOARDS = 5  # of the terminal: around and below the table of boards
# Columns of the boards that may be cut, to the room that is left, and to 12 characters.
_LONG = ("board", "last error")
_CUT = ("release",)
_CUT_TO = 12
_NUMBERS = ("heard", "left", "errors")
_BLANK_BRAILLE = 0x2800  # the code point of the Braille character without dots
# The bits of the dots of a Braille character, by row and column.
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
        """Yield the parts of the summary for rich, and as many boards as there is room for."""
        summary = self._summary
        parts = list(_head(summary))
        if summary.run is not None:
            parts += _round(summary)
            parts += _learning(summary, options)
            parts += _refusals(summary)
            parts += _fleet(summary)
            parts += _privacy(summary)
        if summary.worst:
            board_count = self._boards
            if board_count is None:
                lines_above = len(console.render_lines(Group(*parts), options, pad=False))
                board_count = max(1, options.size.height - lines_above - _LINES_AROUND_BOARDS)
            parts += _worst(summary, board_count, options.max_width)
        yield Group(*parts)


def _line(*words: str | tuple[str, str]) -> Text:
    """Join words, plain or with a style, into a line of text, which a narrow terminal breaks."""
    line = Text()
    for part in words:
        if isinstance(part, str):
            line.append(brief(part))
        else:
            text, style = part
            line.append(brief(text), style)
    return line


def _head(summary: Summary) -> Iterable[RenderableType]:
    """Yield the note, if there is one, and the name, status, algorithm and fleet of the run."""
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
    """Yield the numbers of rounds and reports, and the progress of the open round."""
    run, open_round, last_entry = summary.run, summary.round, summary.last
    assert run is not None
    yield Text()
    planned = f" of {summary.rounds:,}" if summary.rounds else ""
    answers = f"{counted(run.reports, 'report')}, {counted(run.refusals, 'refusal')}"
    yield _line(("Rounds ", "bold"), f"{run.rounds:,}{planned}, {answers}")
    if open_round is not None:
        yield _progress(f"round {run.rounds + 1:,}{planned} ", open_round)
        open_time = time_of(open_round, summary.at)
        if open_time:
            yield _line((open_time, "dim"))
    elif last_entry:
        ending = f"{last_entry.get('ended', '')}, {ago(last_entry.get('finished'))}"
        yield _line(f"round {run.rounds:,}{planned}: {ending}")


def _progress(name: str, open_round: OpenRound) -> Table:
    """Draw the name of a round, a bar, and the number of its reports."""
    row = Table.grid(expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)  # the bar takes the room that is left
    row.add_column(no_wrap=True)
    wanted_reports = max(open_round.wanted, 1)
    bar = ProgressBar(total=wanted_reports, completed=min(open_round.reports, wanted_reports))
    row.add_row(name, bar, f" {open_round.reports:,}/{open_round.wanted:,}")
    return row


def _learning(summary: Summary, options: ConsoleOptions) -> Iterable[RenderableType]:
    """Yield the figures of the model, and the learning curve where the terminal can show it."""
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
    """Draw a curve of characters, with its largest and smallest value at the left.

    width: columns of the terminal.
    """
    values = [y for _, y in curve.points]
    labels = [""] * _CURVE_LINES  # one for each line; only the first and the last say something
    labels[0] = f"{max(values):.3f} "
    labels[-1] = f"{min(values):.3f} "
    width_of_labels = max(map(len, labels))
    lines = plot(curve.points, max(_NARROWEST_CURVE, width - width_of_labels), _CURVE_LINES)
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
    """Yield the lines of extensions, and counts of boards by state, age, release and error."""
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
    """Yield what is guaranteed to devices, what they have spent, and what they have left."""
    run = summary.run
    assert run is not None
    classes = [ClassGuarantees.from_json(each) for each in run.guarantees]
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


def _worst(summary: Summary, board_count: int, width: int) -> Iterable[RenderableType]:
    """Yield a table of the boards that need attention first, as wide as the terminal, and a remark."""
    is_wide = width >= _WIDE
    columns = ["board", "", *_NUMBERS]
    if is_wide:
        columns += ["release", "last error"]
    rows = []
    for board in summary.worst[:board_count]:
        rows.append(_cells(board, summary.at)[: len(columns)])

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for name, column_width in _sizes(columns, rows, width).items():
        side: Literal["right", "left"] = "right" if name in _NUMBERS else "left"
        table.add_column(name, justify=side, no_wrap=True, width=column_width, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    yield Text()
    yield table
    reported = "left, release" if is_wide else "left"
    yield _line((f"{reported}: as the board reported when it connected, unverified", "dim"))


def _sizes(columns: Sequence[str], rows: Sequence[Row], width: int) -> dict[str, int]:
    """Return the width of each column of the table of boards, by name.

    A number is never cut, since it would become another number. The columns in `_LONG` share the
    room that the others leave.
    """
    widths = {}
    for index, name in enumerate(columns):
        widths[name] = max(len(name), *(len(row[index]) for row in rows))
        if name in _CUT:
            widths[name] = min(widths[name], _CUT_TO)

    flexible_columns = [name for name in columns if name in _LONG]
    fixed_width = len(columns) - 1  # the spaces between columns
    for name in columns:
        if name not in flexible_columns:
            fixed_width += widths[name]
    room = max(4, (width - fixed_width) // len(flexible_columns))
    for name in flexible_columns:
        widths[name] = min(widths[name], room)
    return widths


def _cells(board: BoardRow, now: float) -> Row:
    """Return the cells of a board, in the order of the columns of `_worst`.

    now: seconds since 1970.
    """
    if failed(board):
        state = Text("failed", "bold red")
    elif board.online:
        state = Text("online")
    else:
        state = Text("offline", "yellow")
    time_since_heard = duration(max(0.0, now - board.heard))
    budget_left = budget(board)
    budget_text = "" if budget_left is None else f"{budget_left:g}"
    errors = f"{board.errors:,}" if board.errors else ""
    release = visible(str(board.hello.get("release") or ""))
    error = visible(board.error or absence.describe(board.hello))
    return [visible(board.name), state, time_since_heard, budget_text, errors, release, error]


def plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Draw a curve in Braille characters, scaled to the extreme values.

    Each character has 2 columns and 4 rows of dots. width, height: in characters. The x of the
    points must ascend. Returns a text for each line.
    """
    dots = [[0] * width for _ in range(height)]  # the bits of each character, by line and column
    pixels = _scaled(points, columns=2 * width, rows=4 * height)
    for (start_x, start_y), (end_x, end_y) in zip(pixels, pixels[1:] or pixels, strict=False):
        steps = max(abs(end_x - start_x), abs(end_y - start_y), 1)
        for step in range(steps + 1):
            x = start_x + round((end_x - start_x) * step / steps)
            y = start_y + round((end_y - start_y) * step / steps)
            dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    lines = []
    for line_bits in dots:
        lines.append("".join(chr(_BLANK_BRAILLE + bits) for bits in line_bits))
    return lines


def _scaled(
    points: Sequence[tuple[float, float]], columns: int, rows: int
) -> list[tuple[int, int]]:
    """Return the column and the row of each point in a grid of dots; row 0 is the topmost one.

    Points with equal x are in the first column, points with equal y in the middle row.
    """
    if not points:
        return []
    y_values = [y for _, y in points]
    first, last = points[0][0], points[-1][0]
    low, high = min(y_values), max(y_values)

    def column_of(x: float) -> int:
        if last == first:
            return 0
        return round((x - first) / (last - first) * (columns - 1))

    def row_of(y: float) -> int:
        if high == low:
            return rows // 2
        return round((high - y) / (high - low) * (rows - 1))

    return [(column_of(x), row_of(y)) for x, y in points]
