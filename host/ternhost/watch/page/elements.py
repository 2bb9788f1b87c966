"""The elements of the page: its style, HTML in which everything from a store is escaped, sections, charts, cards."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nicegui import ui

from ternhost.store.snapshot import Snapshot
from ternhost.watch import words
from ternhost.watch.page.live_store import LiveStore, Others
from ternhost.watch.words import Tile

_AMOUNT = re.compile(r"[\d.,]+( (to [\d.,]+|%|ms|s|min|h|d))?")


class Section:
    """A part of the page, made within its panel and updated only while the panel is open."""

    def __init__(self, live: LiveStore, others: Others) -> None:
        self.live = live
        self.others = others
        self.build()

    def build(self) -> None:
        """Make its elements."""
        raise NotImplementedError

    def show(self, now: Snapshot) -> None:
        """Show a snapshot: the store has changed, or the section was opened."""
        raise NotImplementedError

    def tick(self, now: Snapshot) -> None:
        """Update what changes with time."""


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
    """A picture, sent again only where it has changed; a message in its place where there is nothing to draw."""

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

    def set(self, key: Any, make: Callable[[], dict[str, Any] | None], otherwise: str) -> bool:
        """Draw the options that `make` gives, or show the text `otherwise`; whether there is a picture.

        The same `key` stands for the same picture, which is not made again.
        """
        if key != self._key:
            self._key = key
            options = make()
            self._element.set_visibility(options is not None)
            if options is not None:
                self._element.options.clear()
                self._element.options.update(options)
                self._element.update()
        drawn = bool(self._element.visible)
        self._none.set("" if drawn else empty(otherwise))
        return drawn


def card(title: str, wide: bool = False) -> ui.element:
    """A box with a heading; to be used with `with`."""
    box = ui.element("section").classes("card wide" if wide else "card")
    with box:
        ui.element("h2")._text = title
    return box


def cards() -> ui.element:
    """Boxes side by side where there is room."""
    return ui.element("div").classes("cards")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table; columns of numbers and amounts are aligned to the right."""
    lines = [[_cell(value) for value in row] for row in rows]
    right = [
        any(number for _, number in column) and all(number or text in ("–", "") for text, number in column)
        for column in zip(*lines, strict=True)
    ]
    right = right or [False] * len(head)
    tags = [" class=number" if numbers else "" for numbers in right]
    header = "".join(f"<th scope=col{tag}>{text(name)}" for name, tag in zip(head, tags, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{tag}>{text(cell)}" for (cell, _), tag in zip(line, tags, strict=True))
        for line in lines
    )
    return (
        f"<div class=scroll tabindex=0><table><thead><tr>{header}</thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: Any) -> tuple[str, bool]:
    if value is None:
        return "–", False
    if isinstance(value, float):
        return f"{value:.4g}", True
    if isinstance(value, int):
        return f"{value:,}", True
    return str(value), _AMOUNT.fullmatch(str(value)) is not None


def tile_html(shown: Iterable[Tile]) -> str:
    """HTML of the tiles."""
    return "".join(
        f"<div class=tile><div class=name>{text(name)}</div><div class=value>{text(value)}</div>"
        f"<div class=more>{text(more)}</div></div>"
        for name, value, more in shown
    )


def first(now: Snapshot) -> str:
    """The head and the tiles without JavaScript, for the time until the page's program has been loaded."""
    return (
        f"<div id=first class=tern><div class=tern-head><h1>{text(words.title(now))}</h1>"
        f"<span class=badge>{text(words.status(now))}</span><span class=soft>{text(words.lead(now))}</span></div>"
        f"<div class=tiles>{tile_html(words.tiles(now))}</div></div>"
    )


def empty(message: str) -> str:
    """A message for an empty element, as HTML; commands stand between backquotes."""
    parts = text(message).split("`")
    return f"<p class=empty>{''.join(f'<code>{p}</code>' if i % 2 else p for i, p in enumerate(parts))}</p>"


def text(value: Any) -> str:
    """A value as escaped HTML."""
    return html.escape(str(value), quote=True)


_LIGHT = """
  --page: #f6f7f9; --surface: #ffffff; --ink: #1d2530; --soft: #5a6675; --line: #d9dee5; --warn: #8a3b00;
  --c1: #0072b2; --c2: #d55e00; --c3: #1d2530; --c4: #009e73; --c5: #cc79a7; --c6: #e69f00; --c7: #56b4e9;
"""
_DARK = """
  --page: #12161c; --surface: #1b212a; --ink: #e8ecf1; --soft: #a3aebb; --line: #36404d; --warn: #ffb37a;
  --c1: #56b4e9; --c2: #e69f00; --c3: #e8ecf1; --c4: #2fc297; --c5: #dd9cc0; --c6: #f0e442; --c7: #3d8fc4;
"""

CSS = (
    f"""
:root {{ {_LIGHT} color-scheme: light; }}
@media (prefers-color-scheme: dark) {{ :root:not(:has(body.body--light)) {{ {_DARK} color-scheme: dark; }} }}
:root:has(body.body--dark) {{ {_DARK} color-scheme: dark; }}
"""
    + """
body { background: var(--page) !important; color: var(--ink) !important;
  font: 1rem/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
.nicegui-content { padding: 0; gap: 0; }
.tern { width: 100%; max-width: 82rem; margin: 0 auto; padding: .75rem 1rem 3rem; box-sizing: border-box; }
.tern-head { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem .75rem; }
.tern-head h1 { font-size: 1.35rem; line-height: 1.2; font-weight: 650; margin: 0; }
.tern-head .grow { flex: 1; }
.soft { color: var(--soft); font-size: .9rem; }
.badge { border: 1px solid var(--line); border-radius: 1rem; padding: 0 .6rem; font-size: .85rem;
  background: var(--surface); }
.note { width: 100%; box-sizing: border-box; margin: .6rem 0 0; padding: .45rem .75rem; border: 1px solid var(--warn);
  border-radius: .5rem; color: var(--warn); background: var(--surface); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; width: 100%;
  margin: .8rem 0; }
.tile { background: var(--surface); border: 1px solid var(--line); border-radius: .6rem; padding: .55rem .8rem;
  min-width: 0; }
.tile .name { color: var(--soft); font-size: .8rem; }
.tile .value { font-size: 1.45rem; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.25;
  overflow-wrap: anywhere; }
.tile .more { color: var(--soft); font-size: .78rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: .8rem;
  width: 100%; }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: .6rem; padding: .8rem; min-width: 0;
  box-sizing: border-box; width: 100%; }
.card.wide { grid-column: 1 / -1; }
.card h2 { font-size: 1rem; line-height: 1.3; font-weight: 650; margin: 0 0 .35rem; }
.card p { margin: 0 0 .5rem; }
.chart { width: 100%; height: 20rem; }
.chart.low { height: 14rem; }
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin-bottom: .4rem; width: 100%; }
.scroll { overflow-x: auto; width: 100%; scrollbar-width: thin; }
.scroll:has(> table) {
  background: linear-gradient(to right, var(--surface) 30%, transparent) 0 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--surface) 30%, transparent) 100% 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--soft), transparent) 0 0 / .6rem 100% no-repeat scroll,
  linear-gradient(to left, var(--soft), transparent) 100% 0 / .6rem 100% no-repeat scroll; } /* more is beside it */
.scroll table { border-collapse: collapse; width: 100%; font-size: .9rem; }
.scroll th, .scroll td { padding: .3rem .8rem .3rem 0; text-align: left; border-bottom: 1px solid var(--line);
  white-space: nowrap; font-variant-numeric: tabular-nums; }
.scroll th { color: var(--soft); font-weight: 600; }
.scroll .number { text-align: right; }
.empty { color: var(--soft); padding: .6rem 0; max-width: 46rem; }
.empty code { color: var(--ink); }
.board-grid { width: 100%; height: min(70vh, 44rem); --ag-background-color: var(--surface);
  --ag-foreground-color: var(--ink);
  --ag-header-background-color: var(--page); --ag-odd-row-background-color: var(--surface);
  --ag-border-color: var(--line);
  --ag-data-font-size: 13px; --ag-spacing: 6px; }
.controls .q-input { min-width: 19rem; }
.controls .q-select, .q-chip { max-width: 100%; }
.q-tab { min-height: 40px; padding: 0 .7rem; }
.q-tabs { color: var(--ink); border-bottom: 1px solid var(--line); width: 100%; }
.q-tab-panels, .q-tab-panel { background: transparent !important; padding: 0; width: 100%; }
.q-tab-panel { padding: .8rem 0 0; }
.q-tab__label { text-transform: none; font-size: .95rem; }
.q-btn { text-transform: none; }
.tern-head .q-btn { color: var(--ink) !important; border: 1px solid var(--line); }
.q-btn-group { box-shadow: none; border: 1px solid var(--line); }
progress { width: 100%; height: 1rem; accent-color: var(--c1); }
#first:has(~ #app > *) { display: none; }
@media (max-width: 30rem) { .tern { padding: .6rem .6rem 2rem; } .chart { height: 17rem;
  } .tile .value { font-size: 1.2rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); } .q-tab { padding: 0 .45rem; } }
"""
)
