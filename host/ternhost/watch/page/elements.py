"""The elements of the page: sections, charts, cards, tables, and HTML in which everything from a
store is escaped.
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

        Return whether there is a picture.
        """
        if key != self._key:
            self._key = key
            made = make()
            self._element.set_visibility(isinstance(made, dict))
            self._none.set(empty(made) if made and isinstance(made, str) else "")
            if isinstance(made, dict):
                self._element.options.clear()
                self._element.options.update(made)
                self._element.update()
        return bool(self._element.visible)


def toggle(
    label: str, on_change: Callable[[], None], options: dict[str, str] | None = None
) -> ui.toggle:
    """Buttons, one of them pressed: at first the first of `options` (value -> text)."""
    made = ui.toggle(
        options or {}, value=next(iter(options or ()), None), on_change=lambda: on_change()
    )
    return made.props(f"dense no-caps aria-label={label}")


def offer(made: ui.toggle, options: Mapping[Any, str]) -> None:
    """Offer these options; the one that is pressed stays if it is still there."""
    shown = {value: brief(text, 40) for value, text in options.items()}
    if made.options != shown:
        value = made.value if made.value in shown else next(iter(shown), None)
        made.set_options(shown, value=value)


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


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table; columns of numbers and amounts are aligned to the right."""
    lines = [[_cell(value) for value in row] for row in rows]
    right = [
        any(number for _, number in column)
        and all(number or text in ("–", "") for text, number in column)
        for column in zip(*lines, strict=True)
    ]
    right = right or [False] * len(head)
    tags = [" class=number" if numbers else "" for numbers in right]
    header = "".join(
        f"<th scope=col{tag}>{as_html(name)}" for name, tag in zip(head, tags, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{tag}>{as_html(cell)}" for (cell, _), tag in zip(line, tags, strict=True))
        for line in lines
    )
    return f"<div class=scroll tabindex=0><table><thead><tr>{header}</thead><tbody>{body}</table></div>"


def _cell(value: Any) -> tuple[str, bool]:
    if value is None:
        return "–", False
    if isinstance(value, float):
        return f"{value:.4g}", True
    if isinstance(value, int):
        return f"{value:,}", True
    return str(value), _AMOUNT.fullmatch(str(value)) is not None


def tile_html(shown: Iterable[Tile]) -> str:
    """HTML of the tiles. Refusals need attention."""
    return "".join(
        f"<div class='tile{' warn' * (name == words.REFUSALS and value != '0')}'><div class=name>{as_html(name)}</div>"
        f"<div class=value>{as_html(value)}</div><div class=more>{as_html(more)}</div></div>"
        for name, value, more in shown
    )


def head_html(now: Snapshot) -> str:
    """HTML of the name of the run, its status, and what it does."""
    badge = f"<span class='badge {words.tone(now)}'>{as_html(words.status(now))}</span>"
    return f"<h1>{as_html(words.title(now))}</h1>{badge}<span class=soft>{as_html(words.lead(now))}</span>"


def first(now: Snapshot) -> str:
    """The head and the tiles without JavaScript, for the time until the page's program has been
    loaded.
    """
    tiles = f"<div class=tiles>{tile_html(words.tiles(now))}</div>"
    return f"<div id=first class=tern><div class=tern-head>{head_html(now)}</div>{tiles}</div>"


def empty(message: str) -> str:
    """A message for an empty element, as HTML; commands stand between backquotes."""
    parts = as_html(message).split("`")
    return f"<p class=empty>{''.join(f'<code>{p}</code>' if i % 2 else p for i, p in enumerate(parts))}</p>"


CSS = (files("ternhost.watch.page") / "page.css").read_text()
