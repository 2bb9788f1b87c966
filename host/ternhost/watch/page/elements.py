"""The elements of the page: sections, charts, cards, tables.

In their HTML, everything from a store is escaped.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from nicegui import ui

from ternhost.store.snapshot import Snapshot
from ternhost.text import as_html, brief
from ternhost.watch import words
from ternhost.watch.page.live_store import LiveStore, Others
from ternhost.watch.words import Tile

_AMOUNT = re.compile(r"[\d.,]+( (to [\d.,]+|%|ms|s|min|h|d))?")


class Section:
    """A part of the page, made inside its panel and updated only while the panel is open."""

    def __init__(self, live: LiveStore, others: Others) -> None:
        self.live = live
        self.others = others
        self.build()

    def build(self) -> None:
        """Make its elements."""
        raise NotImplementedError

    def show(self, now: Snapshot) -> None:
        """Show a snapshot, after a change of the store or when the section is opened."""
        raise NotImplementedError

    def tick(self, now: Snapshot) -> None:
        """Update the parts that change with time."""


class Html:
    """HTML, sent again only where it has changed."""

    def __init__(self) -> None:
        self._element = ui.html(sanitize=False)

    def set(self, content: str) -> None:
        """Show it; hide the element for an empty text."""
        if self._element.content != content:
            self._element.content = content
        self._element.set_visibility(bool(content))


class Chart:
    """A picture, sent again only where it has changed, or a message if there is nothing to draw."""

    def __init__(self, label: str, classes: str = "chart") -> None:
        self._element = ui.echart({}, renderer="svg").classes(classes)
        self._element.props(f'role=img aria-label="{label}"')
        self._key: Any = None
        self._element.set_visibility(False)
        self._none = Html()

    @property
    def deleted(self) -> bool:
        """Whether its page was closed."""
        return bool(self._element.is_deleted)

    def set(self, key: Any, make: Callable[[], dict[str, Any] | str]) -> bool:
        """Draw the options from `make`, or show its message, unless `key` is unchanged.

        Returns whether there is a picture.
        """
        if key != self._key:
            self._key = key
            self._draw(make())
        return bool(self._element.visible)

    def _draw(self, picture: dict[str, Any] | str) -> None:
        """Draw the options of a picture; for a text, hide the picture and show the text."""
        if isinstance(picture, str):
            self._element.set_visibility(False)
            self._none.set(empty(picture) if picture else "")
            return
        self._element.set_visibility(True)
        self._none.set("")
        self._element.options.clear()
        self._element.options.update(picture)
        self._element.update()


def toggle(
    label: str, on_change: Callable[[], None], options: dict[str, str] | None = None
) -> ui.toggle:
    """Buttons, one of them pressed: at first the first of `options` (value -> text)."""
    first_value = next(iter(options or ()), None)
    buttons = ui.toggle(options or {}, value=first_value, on_change=lambda: on_change())
    return buttons.props(f"dense no-caps aria-label={label}")


def offer(buttons: ui.toggle, options: Mapping[Any, str]) -> None:
    """Let the user choose among these options (value -> text).

    The button that is pressed stays pressed if it is still there.
    """
    shown = {value: brief(text, 40) for value, text in options.items()}
    if buttons.options != shown:
        first_value = next(iter(shown), None)
        value = buttons.value if buttons.value in shown else first_value
        buttons.set_options(shown, value=value)


def card(title: str, wide: bool = False) -> ui.element:
    """A box with a heading; to be used with `with`."""
    box = ui.element("section").classes("card wide" if wide else "card")
    with box:
        ui.element("h2")._text = title
    return box


def picture(title: str, about: str) -> Chart:
    """A box with a heading, a line of text and a low chart."""
    with card(title):
        ui.label(about).classes("soft")
        return Chart(title.lower(), "chart low")


def cards() -> ui.element:
    """Boxes side by side where there is room."""
    return ui.element("div").classes("cards")


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table; columns of numbers and amounts are aligned to the right."""
    lines = [[_cell(value) for value in row] for row in rows]
    classes = [""] * len(headings)
    for index, column in enumerate(zip(*lines, strict=True)):
        if _is_numeric(column):
            classes[index] = " class=number"
    header = ""
    for name, css_class in zip(headings, classes, strict=True):
        header += f"<th scope=col{css_class}>{as_html(name)}"
    body = ""
    for line in lines:
        body += "<tr>"
        for (text, _), css_class in zip(line, classes, strict=True):
            body += f"<td{css_class}>{as_html(text)}"
    return (
        "<div class=scroll tabindex=0><table>"
        f"<thead><tr>{header}</thead><tbody>{body}</table></div>"
    )


def _is_numeric(column: Sequence[tuple[str, bool]]) -> bool:
    """Return whether a column has numbers, and beside them only gaps.

    column: for each cell the text, and whether it is a number, as `_cell` returns them.
    """
    others = {text for text, is_number in column if not is_number}
    has_numbers = any(is_number for _, is_number in column)
    return has_numbers and others <= {"–", ""}


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
    """Return the HTML of the tiles; that of refusals is marked if there are any."""
    html = ""
    for name, value, explanation in tiles:
        needs_attention = name == words.REFUSALS and value != "0"
        css_class = "tile warn" if needs_attention else "tile"
        html += (
            f"<div class='{css_class}'>"
            f"<div class=name>{as_html(name)}</div>"
            f"<div class=value>{as_html(value)}</div>"
            f"<div class=more>{as_html(explanation)}</div></div>"
        )
    return html


def head_html(now: Snapshot) -> str:
    """HTML of the name of the run, its status, and what it does."""
    badge = f"<span class='badge {words.tone(now)}'>{as_html(words.status(now))}</span>"
    return f"<h1>{as_html(words.title(now))}</h1>{badge}<span class=soft>{as_html(words.lead(now))}</span>"


def first(now: Snapshot) -> str:
    """The head and the tiles without JavaScript, until the page's program has been loaded."""
    tiles = f"<div class=tiles>{tile_html(words.tiles(now))}</div>"
    return f"<div id=first class=tern><div class=tern-head>{head_html(now)}</div>{tiles}</div>"


def empty(message: str) -> str:
    """Return a message for an empty element, as HTML; commands stand between backquotes."""
    html = ""
    for index, part in enumerate(as_html(message).split("`")):
        is_command = index % 2 == 1  # every second part was between backquotes
        html += f"<code>{part}</code>" if is_command else part
    return f"<p class=empty>{html}</p>"


CSS = (files("ternhost.watch.page") / "page.css").read_text()
