"""What the sections of the page have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from ternhost.store.snapshot import Snapshot
from ternhost.watch.page.live_store import LiveStore, Others


class Section:
    """A part of the page. Made within its panel; only shown while that is open."""

    def __init__(self, live: LiveStore, others: Others) -> None:
        self.live = live
        self.others = others
        self.build()

    def build(self) -> None:
        """Make its elements."""
        raise NotImplementedError

    def show(self, now: Snapshot) -> None:
        """The store has changed, or the section was opened."""
        raise NotImplementedError

    def tick(self, now: Snapshot) -> None:
        """Some time has passed."""


class Html:
    """HTML of ours, sent again only where it has changed."""

    def __init__(self) -> None:
        self._element = ui.html(sanitize=False)

    def set(self, content: str) -> None:
        """Show it; nothing for an empty text."""
        if self._element.content != content:
            self._element.content = content
        self._element.set_visibility(bool(content))


class Chart:
    """A picture, sent again only where it has changed, and not there where there is nothing to draw."""

    def __init__(self, label: str, classes: str = "chart") -> None:
        self._element = ui.echart({}, renderer="svg").classes(classes)
        self._element.props(f'role=img aria-label="{label}"')
        self._key: Any = None
        self._element.set_visibility(False)

    @property
    def deleted(self) -> bool:
        """Whether its page was closed."""
        return bool(self._element.is_deleted)

    def set(self, key: Any, make: Callable[[], dict[str, Any] | None]) -> bool:
        """Draw what `make` gives, unless the same `key` is drawn; whether there is anything."""
        if key != self._key:
            self._key = key
            options = make()
            self._element.set_visibility(options is not None)
            if options is not None:
                self._element.options.clear()
                self._element.options.update(options)
                self._element.update()
        return bool(self._element.visible)


def card(title: str, wide: bool = False) -> ui.element:
    """A box with a heading; to be used with `with`."""
    box = ui.element("section").classes("card wide" if wide else "card")
    with box:
        ui.element("h2")._text = title
    return box


def cards() -> ui.element:
    """Boxes side by side where there is room."""
    return ui.element("div").classes("cards")
