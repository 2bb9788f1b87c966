"""Draws the summary of a run for a terminal, however narrow, with rich."""

from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ternhost.extensions import Line
from ternhost.learn.collecting import estimate_rows
from ternhost.privacy.guarantee import Span, rounded
from ternhost.reach import absence
from ternhost.run.guarantees import ClassGuarantees, words_of, worst
from ternhost.store.boards import BoardRow
from ternhost.store.runs import FINISHED, RUNNING
from ternhost.store.snapshot import OpenRound
from ternhost.text import brief, counted, visible
from ternhost.watch.curves import Curve, word
from ternhost.watch.fleet_view import budget, failed
from ternhost.watch.summary import FleetSummary, breakdown
from ternhost.watch.words import ENDLESS, ago, duration, epsilon_of, time_of

_WIDE = 70  # columns of a terminal for all columns of the boards
_CURVE_LINES = 5
_MOST_ESTIMATES = 12  # lines
_NARROWEST_CURVE = 8  # characters
_LINES_AROUND_BOARDS = 5  # lines of the terminal around and below the table of boards
# Columns of the table of boards.
_NUMBERS = ("heard", "left", "errors")  # never cut
_CUT = ("release",)  # cut to _CUT_TO characters
_CUT_TO = 12
_LONG = ("board", "last error")  # share the room that is left
_BLANK_BRAILLE = 0x2800  # the code point of the Braille character without dots
# A Braille character has 4 rows of 2 dots. These are the bits of its code point for the dots.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
Row = list[str | Text]
_STATUS_STYLE = {RUNNING: "green", FINISHED: "blue"}


def console() -> Console:
    """Return a console of rich on standard output that prints text as it is.

    By default rich would colour numbers, and turn ":smile:" and "[bold]" into something else.
    """
    return Console(highlight=False, emoji=False, markup=False)


class Drawn:
    """A summary as rich prints it."""

    def __init__(self, summary: FleetSummary, boards: int | None = None) -> None:
        """Take a summary to print.

        boards: how many boards that need attention are listed; None: as many as there is room for.
        """
        self._summary = summary
        self._boards = boards

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts of the summary; rich calls this when it prints or redraws."""
        summary = self._summary
        parts = list(_head(summary))
        if summary.run is not None:
            parts += _round(summary)
            parts += _learning(summary, options)
            parts += _estimates(summary)
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
    """Join words into a line of text, which a narrow terminal breaks.

    words: each is a text, or a pair of a text and a style of rich.
    """
    line = Text()
    for part in words:
        if isinstance(part, str):
            line.append(brief(part))
        else:
            text, style = part
            line.append(brief(text), style)
    return line


def _head(summary: FleetSummary) -> Iterable[RenderableType]:
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


def _round(summary: FleetSummary) -> Iterable[RenderableType]:
    """Yield the numbers of rounds and reports, and the progress of the open round.

    Without an open round, the last one is described.
    """
    run = summary.run
    assert run is not None
    yield Text()
    of_planned = f" of {summary.rounds:,}" if summary.rounds else ""
    answers = f"{counted(run.reports, 'report')}, {counted(run.refusals, 'refusal')}"
    yield _line(("Rounds ", "bold"), f"{run.rounds:,}{of_planned}, {answers}")
    if summary.round is not None:
        yield _progress(f"round {run.rounds + 1:,}{of_planned} ", summary.round)
        open_time = time_of(summary.round, summary.at)
        if open_time:
            yield _line((open_time, "dim"))
    elif summary.last:
        how_it_ended = summary.last.get("ended", "")
        ended_ago = ago(summary.last.get("finished"))
        yield _line(f"round {run.rounds:,}{of_planned}: {how_it_ended}, {ended_ago}")


def _progress(name: str, open_round: OpenRound) -> Table:
    """Return a line with the name of a round, a bar, and the number of its reports so far."""
    row = Table.grid(expand=True)
    row.add_column(no_wrap=True)
    row.add_column(ratio=1)  # the bar takes the room that is left
    row.add_column(no_wrap=True)
    wanted_reports = max(open_round.wanted, 1)
    bar = ProgressBar(total=wanted_reports, completed=min(open_round.reports, wanted_reports))
    row.add_row(name, bar, f" {open_round.reports:,}/{open_round.wanted:,}")
    return row


def _learning(summary: FleetSummary, options: ConsoleOptions) -> Iterable[RenderableType]:
    """Yield the figures of the model, and the learning curve if the terminal can show it.

    The main figure, that of the curve, stands with its interval and the value without privacy.
    """
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
    can_draw = not options.ascii_only  # the curve is of Braille characters
    if can_draw and len(curve.points) > 1:
        yield _curve(curve, options.max_width)


def _estimates(summary: FleetSummary) -> Iterable[RenderableType]:
    """Yield the first estimates of a run that collects."""
    if not summary.estimates:
        return
    yield Text()
    yield _line(("Collected", "bold"))
    rows = list(islice(estimate_rows.rows_of(summary.estimates), _MOST_ESTIMATES + 1))
    for row in rows[:_MOST_ESTIMATES]:
        interval = f"  95 %: {row.interval}" if row.interval else ""
        yield _line(f"{row.what} {row.value}", (interval, "dim"))
    if len(rows) > _MOST_ESTIMATES:
        yield _line("and more: see the report, or tern dashboard")


def _curve(curve: Curve, width: int) -> RenderableType:
    """Draw a curve of characters, with its largest and smallest value at the left.

    width: of the terminal, in characters.
    """
    values = [y for _x, y in curve.points]
    labels = [""] * _CURVE_LINES  # one for each line; only the first and the last say something
    labels[0] = f"{max(values):.3f} "
    labels[-1] = f"{min(values):.3f} "
    width_of_labels = max(len(label) for label in labels)
    width_of_curve = max(_NARROWEST_CURVE, width - width_of_labels)
    lines = plot(curve.points, width_of_curve, _CURVE_LINES)

    grid = Table.grid()
    for label, line in zip(labels, lines, strict=True):
        grid.add_row(Text(label, "dim", no_wrap=True), Text(line, "cyan", no_wrap=True))
    last_x, _last_y = curve.points[-1]
    grid.add_row("", Text(f"by {curve.by}, {last_x:,.0f} so far", "dim", no_wrap=True))
    return grid


def _refusals(summary: FleetSummary) -> Iterable[RenderableType]:
    """Yield the number of refusals by reason, if there are any."""
    if summary.reasons:
        yield Text()
        yield _line(("Refusals ", "bold"), (breakdown(summary.reasons), "yellow"))


def _fleet(summary: FleetSummary) -> Iterable[RenderableType]:
    """Yield the lines of extensions, and counts of boards by state, age, release and error."""
    for view in summary.views:
        for line in view.lines():
            yield from _of_extension(line)
    fleet = summary.fleet
    if fleet is None or summary.run is None:
        return
    yield Text()
    remark = ""
    if summary.run.status == FINISHED:
        remark = "; no host listens to them since the run ended"
    counts = f"{fleet.boards:,}: {breakdown(fleet.states)}"
    yield _line(("Boards ", "bold"), counts, (remark, "dim"))
    yield _line("heard within ", breakdown(fleet.ages))
    if fleet.releases:
        yield _line("release ", breakdown(fleet.releases))
    if fleet.errors:
        yield _line("last error ", (breakdown(fleet.errors), "yellow"))
    failed_generators = fleet.generators.get("failed")
    if failed_generators:
        yield _line((f"entropy failed on {failed_generators:,}", "bold red"))


def _of_extension(line: Line) -> Iterable[RenderableType]:
    """Yield a line of an extension under an empty line.

    A line that needs attention belongs to the one above it, and has no empty line before.
    """
    if line.warns:
        yield _line(f"{line.heading} ", (line.text, "yellow"))
    else:
        yield Text()
        yield _line((f"{line.heading} ", "bold"), line.text)


def _privacy(summary: FleetSummary) -> Iterable[RenderableType]:
    """Yield what is guaranteed to devices, what they have spent, and what they have left."""
    run = summary.run
    assert run is not None
    lines = []

    # What is guaranteed: of a report to the class of devices that loses most, of the run to all.
    classes = [ClassGuarantees.from_json(guarantees) for guarantees in run.guarantees]
    guarantee_of_report = worst(classes, Span.REPORT)
    if guarantee_of_report is not None:
        lines.append(guarantee_of_report.words())
    if run.is_endless:
        lines.append(ENDLESS)
    else:
        lines += words_of(classes)

    # What was spent, and what is left.
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
        for line in lines:
            yield _line(line)


def _worst(summary: FleetSummary, board_count: int, width: int) -> Iterable[RenderableType]:
    """Yield a table of the boards that need attention first, and a remark about its columns.

    board_count: how many boards it has. width: of the terminal; a narrow one gets fewer columns.
    """
    is_wide = width >= _WIDE
    columns = ["board", "", *_NUMBERS]
    if is_wide:
        columns += ["release", "last error"]
    rows = []
    for board in summary.worst[:board_count]:
        cells = _cells(board, summary.at)
        rows.append(cells[: len(columns)])

    one_space_at_the_right = (0, 1, 0, 0)
    table = Table(box=None, padding=one_space_at_the_right, header_style="bold", pad_edge=False)
    for name, column_width in _column_widths(columns, rows, width).items():
        side: Literal["right", "left"] = "right" if name in _NUMBERS else "left"
        table.add_column(name, justify=side, no_wrap=True, width=column_width, overflow="ellipsis")
    for row in rows:
        table.add_row(*row)
    yield Text()
    yield table
    reported = "left, release" if is_wide else "left"
    yield _line((f"{reported}: as the board reported when it connected, unverified", "dim"))


def _column_widths(columns: Sequence[str], rows: Sequence[Row], width: int) -> dict[str, int]:
    """Return the width of each column of the table of boards in characters, by its name.

    Numbers are never cut, since they would become other numbers. The columns in `_LONG` share the
    room that the others leave. columns: their names. rows: the cells. width: of the terminal.
    """
    # What each column needs.
    widths = {}
    for index, name in enumerate(columns):
        cell_widths = [len(row[index]) for row in rows]
        widths[name] = max(len(name), *cell_widths)
        if name in _CUT:
            widths[name] = min(widths[name], _CUT_TO)

    # What is left for the long columns.
    long_columns = [name for name in columns if name in _LONG]
    spaces_between_columns = len(columns) - 1
    width_of_others = sum(widths[name] for name in columns if name not in long_columns)
    room = width - spaces_between_columns - width_of_others
    room_for_each = max(4, room // len(long_columns))
    for name in long_columns:
        widths[name] = min(widths[name], room_for_each)
    return widths


def _cells(board: BoardRow, now: float) -> Row:
    """Return the cells of a board in the table of boards, in the order of its columns.

    They are its name, state, the time since it was heard, the epsilon left, errors, release and
    last error. now: seconds since 1970.
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
    """Draw a curve in Braille characters, scaled to its extreme values; return a text for each line.

    A Braille character is a grid of 4 rows and 2 columns of dots, so that the curve is finer than
    the characters. points: (x, y) with ascending x. width, height: of the picture in characters.
    """
    # The bits of each character, by line and column: which of its dots are black.
    characters = [[0] * width for _line in range(height)]
    dots = _scaled(points, columns=2 * width, rows=4 * height)
    if len(dots) == 1:
        dots = dots * 2  # a line from the only dot to itself
    for (start_x, start_y), (end_x, end_y) in pairwise(dots):
        # A straight line from one dot to the next, without gaps.
        steps = max(abs(end_x - start_x), abs(end_y - start_y), 1)
        for step in range(steps + 1):
            x = start_x + round((end_x - start_x) * step / steps)
            y = start_y + round((end_y - start_y) * step / steps)
            characters[y // 4][x // 2] |= _DOTS[y % 4][x % 2]

    lines = []
    for line_bits in characters:
        lines.append("".join(chr(_BLANK_BRAILLE + bits) for bits in line_bits))
    return lines


def _scaled(
    points: Sequence[tuple[float, float]], columns: int, rows: int
) -> list[tuple[int, int]]:
    """Return where each point is in a grid of dots: its column and its row.

    The first point is in the first column and the last one in the last; the largest y is in row 0,
    at the top. If all x are equal, the column is the first one; if all y are equal, the row is the
    middle one.
    """
    if not points:
        return []
    y_values = [y for _x, y in points]
    lowest, highest = min(y_values), max(y_values)
    first_x, _y = points[0]
    last_x, _y = points[-1]

    def column_of(x: float) -> int:
        """Return the column of an x coordinate."""
        if last_x == first_x:
            return 0
        return round((x - first_x) / (last_x - first_x) * (columns - 1))

    def row_of(y: float) -> int:
        """Return the row of a y coordinate."""
        if highest == lowest:
            return rows // 2
        return round((highest - y) / (highest - lowest) * (rows - 1))

    return [(column_of(x), row_of(y)) for x, y in points]
