"""What all pictures share: size, colours, axes and legends, and how a picture is written.

Pictures are matplotlib Figures. Everything can be told apart without colour.
"""

import os
import re
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternhost.errors import StorageError, UsageError
from ternhost.files import replacing, storage_errors
from ternhost.text import brief

Floats = npt.NDArray[np.float64]

INK = "#222222"
DARK = "#14406b"
MIDDLE = "#c46a1b"
LIGHT = "#a9bfd3"
GRID = "#dddddd"
SHADES = (DARK, "#4f83b5", LIGHT, "#dfa36b", MIDDLE)
HATCHES = ("", "//", "..", "\\\\", "xx")
SMALL = 9  # points
LONGEST = 40  # characters of a name
LEGEND: dict[str, Any] = {
    "frameon": False,
    "fontsize": SMALL,
    "columnspacing": 0.8,
    "handlelength": 1.4,
}

WIDTH = 4.2  # inches: text stays readable where the picture is as wide as a phone
DPI = 240
# Colours of a picture inside a page follow the page's scheme. A background is transparent.
_VARIABLES = {
    "#000000": "ink",
    INK: "ink",
    GRID: "line",
    "#ffffff": "page",
    SHADES[0]: "c1",
    SHADES[1]: "c2",
    SHADES[2]: "c3",
    SHADES[3]: "c4",
    SHADES[4]: "c5",
}


def blank(width: float, height: float) -> Figure:
    """An empty figure of that many inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def single(height: float) -> tuple[Figure, Axes]:
    """A figure of that many inches with one pair of axes."""
    figure = blank(WIDTH, height)
    axes = figure.subplots()
    dress(axes)
    return figure, axes


def dress(axes: Axes) -> None:
    """Give axes the look of all the pictures here."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def legend_above(axes: Axes, columns: int) -> None:
    """Put the legend over the axes, where it hides nothing."""
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, borderaxespad=0.3, **LEGEND
    )


def plain(name: str, most: int = LONGEST) -> str:
    """A name from a table of data as a picture shows it.

    Dollars do not make a formula of it, as they would in matplotlib.
    """
    return brief(name, most).replace("$", r"\$")


def check_place(path: Path) -> None:
    """Check that a picture can be written to `path`, before it is drawn.

    Raises UsageError for a name with an unknown ending, StorageError for a place that cannot be
    written to.
    """
    formats = blank(1, 1).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in ("", *formats):
        text = f"{path}: there is no format {path.suffix}"
        raise UsageError(text, "end its name in .png, .svg or .pdf")
    # A file is replaced, which writes to its folder; something else, such as a device, is written
    # to itself (see `replacing`).
    place = path.parent
    if path.exists() and not path.is_file():
        place = path
    if path.is_dir() or not os.access(place, os.W_OK):
        hint = "name a file in a folder that is there"
        raise StorageError(f"{path} cannot be written", hint)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file, whole or not at all.

    Its format is what the ending of the name says, by default PNG. Raises StorageError.
    """
    with (
        storage_errors("make room, or choose another folder", f"{path} cannot be written"),
        replacing(path) as temporary,
    ):
        figure.savefig(temporary, dpi=DPI, format=path.suffix[1:] or "png")


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    figure.set_layout_engine("none")  # another format needs no other layout
    return buffer.getvalue()


def svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element of a page, whose font and colours it takes.

    name: of the picture, which makes its ids differ from those of other pictures in the page.
    """
    buffer = StringIO()
    no_metadata = {"Date": None, "Creator": None}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    element = buffer.getvalue()

    # Leave out what a page does not need: the prologue, metadata, ids that nothing refers to, the
    # fixed size, name spaces and fonts.
    element = element[element.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r' id="[\w.]+_\d+"| (width|height)="[\d.]+pt"', "", element)
    element = re.sub(r' xmlns(:xlink)?="[^"]*"|xlink:(?=href)', "", element)
    element = re.sub(r'font-family: [^;"]*(; )?', "", element)
    for colour, variable in _VARIABLES.items():
        element = element.replace(colour, f"var(--{variable})")
    return element
