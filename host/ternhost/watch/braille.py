"""A curve in a few lines of a terminal: eight dots a character."""

from __future__ import annotations

from collections.abc import Sequence

# Of the dots of a Braille character (U+2800 on), by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """`height` lines of `width` characters through points whose x ascends; empty lines without any.

    The lowest and the highest value lie on the lowest and the highest row of dots; a curve that is flat in the middle.
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
