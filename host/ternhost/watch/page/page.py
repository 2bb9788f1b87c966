"""The page: a head with the main figures, and sections; only the open one is updated."""

from typing import Any

from nicegui import ui

from ternhost.watch import words
from ternhost.watch.page import elements
from ternhost.watch.page.elements import Section
from ternhost.watch.page.fleet import FleetSection
from ternhost.watch.page.learning import CompareSection, LearningSection
from ternhost.watch.page.live_store import EVERY, LiveStore, Others
from ternhost.watch.page.privacy import PrivacySection
from ternhost.watch.page.rounds import RoundsSection

SECTIONS: dict[str, type[Section]] = {
    "Learning": LearningSection,
    "Fleet": FleetSection,
    "Round": RoundsSection,
    "Privacy": PrivacySection,
    "Runs": CompareSection,
}
_DARK = {None: "auto", False: "light", True: "dark"}


def add_to(app: Any, live: LiveStore) -> None:
    """Put the page of a store on a FastAPI app, and the address of the rows of its board table."""
    others = Others(live.path)

    @app.get("/boards")  # type: ignore[untyped-decorator]
    def boards(
        first: int = 0, last: int = 100, search: str = "", sort: str = "", descending: bool = False
    ) -> dict[str, Any]:
        count, rows = live.table.page(max(0, first), max(0, last), search, sort, descending)
        return {"count": count, "rows": rows}

    @ui.page("/", title="tern")
    async def page(section: str = "") -> None:
        await live.look()
        named = [name for name in SECTIONS if name.lower() == section.lower()]
        Page(live, others, named[0] if named else "Learning")


class Page:
    """One open page."""

    def __init__(self, live: LiveStore, others: Others, section: str) -> None:
        """Build the elements of the page, with one panel for each section.

        section: the name of the one that is open at first.
        """
        self._live = live
        self._shown: tuple[int, str | None, str] | None = None
        self._head_shown: tuple[int, str] | None = None
        ui.add_css(elements.CSS)
        ui.add_body_html(elements.first(live.now))
        ui.colors(primary="#0072b2")
        self._dark = ui.dark_mode(None)
        with ui.element("main").classes("tern"):
            with ui.element("div").classes("tern-head"):
                self._title = ui.html(sanitize=False).classes("title")
                ui.element("span").classes("grow")
                self._switch = ui.button(
                    f"Colours: {_DARK[None]}", color=None, on_click=self._next_dark
                )
                self._switch.props(
                    'flat dense no-caps aria-label="light, dark, or as the system has it"'
                )
            self._note = ui.label().classes("note").props("role=status")
            self._tiles = ui.html(sanitize=False).classes("tiles").mark("tiles")
            with ui.tabs().props("dense align=left outside-arrows mobile-arrows") as tabs:
                for name in SECTIONS:
                    ui.tab(name)
            with ui.tab_panels(tabs, value=section, animated=False):
                self._sections: dict[str, Section] = {}
                for name, section_class in SECTIONS.items():
                    with ui.tab_panel(name):
                        self._sections[name] = section_class(live, others)
        self._tabs = tabs
        self._show()
        tabs.on_value_change(self._open)
        ui.timer(EVERY, self._look, immediate=False)

    async def _look(self) -> None:
        await self._live.look()
        self._show()

    def _open(self) -> None:
        self._shown = None
        self._show()

    def _next_dark(self) -> None:
        order = list(_DARK)
        self._dark.value = order[(order.index(self._dark.value) + 1) % len(order)]
        self._switch.text = f"Colours: {_DARK[self._dark.value]}"

    def _show(self) -> None:
        """Update the head, and the open section if the snapshot has changed."""
        snapshot = self._live.now
        note = words.problem(snapshot)
        self._note.set_visibility(note is not None)
        self._note.text = note or ""
        head_state = snapshot.serial, words.status(snapshot)
        if self._head_shown != head_state:
            self._head_shown = head_state
            self._title.content = elements.head_html(snapshot)
            self._tiles.content = elements.tile_html(words.tiles(snapshot))
        name = str(self._tabs.value)
        section = self._sections[name]
        section.tick(snapshot)
        if self._shown != (snapshot.serial, snapshot.note, name):
            self._shown = (snapshot.serial, snapshot.note, name)
            section.show(snapshot)
