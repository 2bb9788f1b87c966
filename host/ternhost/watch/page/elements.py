"""The elements of the page: sections, charts, cards, tables.

In their HTML, everything from a store is escaped.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from nicegui import ui

from ternhost.store.snapshot import Snapshot
from ternhost.text import as_html, brief
from ternhost.watch import words
from ternhost.watch.page import terms
from ternhost.watch.page.live_store import LiveStore, Others
from ternhost.watch.words import Tile

_FEW_COLUMNS = 8  # a table with more becomes cards in a wider window already
_LONG_EXPLANATION = 60  # characters, from which on a tile is twice as wide
# A text that counts as a number in a table: "3.5", "1 to 2", "20 %", "4 min".
_AMOUNT = re.compile(r"[\d.,]+( (to [\d.,]+|%|ms|s|min|h|d))?")


class Section:
    """A part of the page, made inside its panel and updated only while the panel is open."""

    def __init__(self, live: LiveStore, others: Others) -> None:
        """Make the elements of the section, for the newest snapshot and the runs to compare."""
        self.live = live
        self.others = others
        self.build()

    def build(self) -> None:
        """Make the elements of the section."""
        raise NotImplementedError

    def show(self, now: Snapshot) -> None:
        """Show a snapshot, after a change of the store or when the section is opened."""
        raise NotImplementedError

    def tick(self, now: Snapshot) -> None:
        """Update the parts that change with time."""


class Html:
    """An element of the page with HTML, which is sent to the browser only if it has changed."""

    def __init__(self) -> None:
        """Make the element, which is empty at first."""
        self._element = ui.html(sanitize=False)

    def set(self, content: str) -> None:
        """Show this HTML; hide the element if it is empty."""
        if self._element.content != content:
            self._element.content = content
        self._element.set_visibility(bool(content))


class Chart:
    """A picture, sent again only if it has changed, or a message if there is nothing to draw."""

    def __init__(self, label: str, classes: str = "chart") -> None:
        """Make the element, which is hidden at first.

        label: for those who cannot see the picture. classes: of CSS.
        """
        self._element = ui.echart({}, renderer="svg").classes(classes)
        self._element.props(f'role=img aria-label="{label}"')
        self._element.set_visibility(False)
        self._key: Any = None  # what the picture was drawn from
        self._message = Html()

    @property
    def deleted(self) -> bool:
        """Whether its page was closed."""
        return bool(self._element.is_deleted)

    def set(self, key: Any, make: Callable[[], dict[str, Any] | str]) -> bool:
        """Draw the picture that `make` returns, or show its message, unless `key` is the last one.

        key: what the picture depends on. make: returns options of ECharts, or a message if there is
        nothing to draw; it is called only for a new key. Returns whether there is a picture now.
        """
        if key != self._key:
            self._key = key
            self._draw(make())
        return bool(self._element.visible)

    def _draw(self, picture: dict[str, Any] | str) -> None:
        """Draw a picture from options of ECharts; a text hides the picture and is shown instead."""
        if isinstance(picture, str):
            self._element.set_visibility(False)
            self._message.set(empty(picture) if picture else "")
            return
        self._element.set_visibility(True)
        self._message.set("")
        self._element.options.clear()
        self._element.options.update(picture)
        self._element.update()


def toggle(
    label: str, on_change: Callable[[], None], options: dict[str, str] | None = None
) -> ui.toggle:
    """Make a row of buttons of which one is pressed, at first the first one.

    label: for those who cannot see the buttons. on_change: called without parameters when another
    one is pressed. options: the text of each button by its value; None: there are none yet.
    """
    if options is None:
        options = {}
    first_value = next(iter(options), None)
    # The lambda takes no event, so NiceGUI passes none to `on_change`.
    buttons = ui.toggle(options, value=first_value, on_change=lambda: on_change())
    return buttons.props(f"dense no-caps aria-label={label}")


def offer(buttons: ui.toggle, options: Mapping[Any, str]) -> None:
    """Let the user choose among these options, by their values with a text for each.

    The button that is pressed stays pressed if it is still there; otherwise the first one is.
    """
    new_options = {value: brief(text, 40) for value, text in options.items()}
    if buttons.options == new_options:
        return
    value = buttons.value
    if value not in new_options:
        value = next(iter(new_options), None)
    buttons.set_options(new_options, value=value)


def card(title: str, wide: bool = False) -> ui.element:
    """Make a box with a heading; elements that are made in its `with` block are inside it."""
    box = ui.element("section").classes("card wide" if wide else "card")
    with box:
        ui.element("h2")._text = title
    return box


def picture(title: str, about: str) -> Chart:
    """Make a box with a heading, a line of text (`about`) and a low chart; return the chart."""
    with card(title):
        ui.label(about).classes("soft")
        return Chart(title.lower(), "chart low")


def cards() -> ui.element:
    """Make a container, for a `with` block, that has boxes side by side where there is room."""
    return ui.element("div").classes("cards")


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table; columns of numbers and amounts are aligned to the right.

    Where there is little room, each row becomes a card (page.css), in which each value stands behind
    the name of its column. Headings that are in `terms` explain themselves on hover.

    rows: the values of each row, one for each heading.
    """
    # Each cell with its text, and whether it is a number.
    cells_of_rows = []
    for row in rows:
        cells_of_rows.append([_cell(value) for value in row])
    attributes = [""] * len(headings)  # of the cells of each column
    for index, cells_of_column in enumerate(zip(*cells_of_rows, strict=True)):
        if _is_numeric(cells_of_column):
            attributes[index] = " class=number"

    # In HTML the end tags of rows and cells may be left out.
    header = ""
    for name, attribute in zip(headings, attributes, strict=True):
        header += f"<th scope=col{attribute}>{explained(name)}"
    body = ""
    for cells in cells_of_rows:
        body += "<tr>"
        for name, (text, _is_number), attribute in zip(headings, cells, attributes, strict=True):
            if text:
                body += f"<td{attribute} data-name='{escape(brief(name))}'>{as_html(text)}"
            else:
                body += "<td class=nothing>"
    width = "few" if len(headings) <= _FEW_COLUMNS else "many"
    return (
        f"<div class='table-box {width}' tabindex=0><table>"
        f"<thead><tr>{header}</thead><tbody>{body}</table></div>"
    )


def explained(name: str) -> str:
    """Return a name as HTML, with what it means on hover if it needs an explanation."""
    text = terms.meaning(name)
    if not text:
        return as_html(name)
    return f"<abbr title='{escape(text)}'>{as_html(name)}</abbr>"


def _is_numeric(column: Sequence[tuple[str, bool]]) -> bool:
    """Return whether a column has numbers, and beside them only gaps.

    column: for each cell the text, and whether it is a number, as `_cell` returns them.
    """
    has_numbers = any(is_number for _text, is_number in column)
    other_texts = {text for text, is_number in column if not is_number}
    gaps = {"–", ""}
    return has_numbers and other_texts <= gaps


def _cell(value: Any) -> tuple[str, bool]:
    """Return the text of a cell, and whether it is a number or an amount with a unit."""
    if value is None:
        return "–", False
    if isinstance(value, float):
        return f"{value:.4g}", True
    if isinstance(value, int):
        return f"{value:,}", True
    return str(value), _AMOUNT.fullmatch(str(value)) is not None


def tile_html(tiles: Iterable[Tile]) -> str:
    """Return the HTML of the tiles at the top; that of refusals is marked if there are any.

    tiles: for each the name, the value and an explanation.
    """
    html = ""
    for name, value, explanation in tiles:
        needs_attention = name == words.REFUSALS and value != "0"
        css_class = "tile"
        if needs_attention:
            css_class += " warn"
        if len(explanation) > _LONG_EXPLANATION:
            css_class += " wide"
        html += (
            f"<div class='{css_class}'>"
            f"<div class=name>{explained(name)}</div>"
            f"<div class=value>{as_html(value)}</div>"
            f"<div class=more>{as_html(explanation)}</div></div>"
        )
    return html


def head_html(now: Snapshot) -> str:
    """Return the HTML of the head of the page: the name of the run, its status, and what it does."""
    title = as_html(words.title(now))
    status = as_html(words.status(now))
    lead = as_html(words.lead(now))
    badge = f"<span class='badge {words.tone(now)}'>{status}</span>"
    return f"<h1>{title}</h1>{badge}<span class=soft>{lead}</span>"


def first(now: Snapshot) -> str:
    """Return the head and the tiles as plain HTML, for the time until the page's program is loaded."""
    tiles = f"<div class=tiles>{tile_html(words.tiles(now))}</div>"
    return f"<div id=first class=tern><div class=tern-head>{head_html(now)}</div>{tiles}</div>"


def empty(message: str) -> str:
    """Return the HTML of a message that stands in place of an element without content.

    message: plain text; commands in it stand between backquotes.
    """
    html = ""
    for index, part in enumerate(as_html(message).split("`")):
        is_command = index % 2 == 1  # every second part was between backquotes
        html += f"<code>{part}</code>" if is_command else part
    return f"<p class=empty>{html}</p>"


CSS = (files("ternhost.watch.page") / "page.css").read_text()
