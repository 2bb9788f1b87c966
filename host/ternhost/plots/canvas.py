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
SOFT = "#555555"
SHADES = (DARK, "#4f83b5", LIGHT, "#dfa36b", MIDDLE)
HATCHES = ("", "//", "..", "\\\\", "xx")
SMALL = 9  # size of small text in points
LONGEST = 40  # characters of a name in a picture
LEGEND: dict[str, Any] = {
    "frameon": False,
    "fontsize": SMALL,
    "columnspacing": 0.8,
    "handlelength": 1.4,
}

WIDTH = 4.2  # inches: text stays readable if the picture is shrunk to the width of a phone
DPI = 240  # of PNG files
# In a page, these colours become variables of the page's style, which has a dark scheme, too.
_VARIABLES = {
    "#000000": "ink",
    INK: "ink",
    SOFT: "soft",
    GRID: "line",
    "#ffffff": "page",
    SHADES[0]: "c1",
    SHADES[1]: "c2",
    SHADES[2]: "c3",
    SHADES[3]: "c4",
    SHADES[4]: "c5",
}


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of this width and height in inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def single(height: float) -> tuple[Figure, Axes]:
    """Return a figure of this height in inches, of the usual width, and its only axes."""
    figure = blank(WIDTH, height)
    axes = figure.subplots()
    dress(axes)
    return figure, axes


def dress(axes: Axes) -> None:
    """Give axes the look that all pictures have: a light grid, no frame above and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def legend_above(axes: Axes, columns: int) -> None:
    """Put the legend above the axes, where it hides nothing. columns: of the legend."""
    axes.legend(
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns, borderaxespad=0.3, **LEGEND
    )


def plain(name: str, most: int = LONGEST) -> str:
    """Return a name from a table of data as it can be written in a picture.

    It is shortened to `most` characters, and dollar signs are escaped: matplotlib would read what
    is between two of them as a formula.
    """
    return brief(name, most).replace("$", r"\$")


def check_place(path: Path) -> None:
    """Check that a picture can be written to `path`, before the work of drawing it.

    Raises UsageError for a name with an unknown ending, StorageError if it cannot be written there.
    """
    formats = blank(1, 1).canvas.get_supported_filetypes()
    ending = path.suffix[1:].lower()  # without its dot
    if ending not in ("", *formats):
        text = f"{path}: there is no format {path.suffix}"
        raise UsageError(text, "end its name in .png, .svg or .pdf")
    # A file is replaced by a new one, which needs permission to write to its folder. A device or a
    # pipe is written to itself (`replacing`).
    place = path.parent
    if path.exists() and not path.is_file():
        place = path
    if path.is_dir() or not os.access(place, os.W_OK):
        hint = "name a file in a folder that exists"
        raise StorageError(f"{path} cannot be written", hint)


def save(figure: Figure, path: Path) -> None:
    """Write a figure to a file; if that fails, the old file stays.

    The ending of the name says in which format; without an ending it is PNG. Raises StorageError.
    """
    ending = path.suffix[1:]  # without its dot
    with (
        storage_errors(what=f"{path} cannot be written", afterwards="or choose another folder"),
        replacing(path) as temporary,
    ):
        figure.savefig(temporary, dpi=DPI, format=ending or "png")


def png(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    # The layout has been computed. Computing it again for another format would take time.
    figure.set_layout_engine("none")
    return buffer.getvalue()


def svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element, to be put into an HTML page.

    It uses the page's font, and colours that are variables of the page's style. name: of the
    picture; it makes the ids in the element differ from those of other pictures in the page.
    """
    buffer = StringIO()
    no_metadata = {"Date": None, "Creator": None}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    element = buffer.getvalue()

    # Remove what a page does not need.
    prologue_end = element.index("<svg")
    element = element[prologue_end:]
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    unused_ids_and_sizes = r' id="[\w.]+_\d+"| (width|height)="[\d.]+pt"'
    element = re.sub(unused_ids_and_sizes, "", element)
    name_spaces = r' xmlns(:xlink)?="[^"]*"|xlink:(?=href)'
    element = re.sub(name_spaces, "", element)
    fonts = r'font-family: [^;"]*(; )?'
    element = re.sub(fonts, "", element)
    for colour, variable in _VARIABLES.items():
        element = element.replace(colour, f"var(--{variable})")
    return element
