"""The page: a head with the main figures, and sections; only the open one is updated."""

from typing import Any

from nicegui import ui

from ternhost.watch import words
from ternhost.watch.page import elements, terms
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
_DARK = {None: "auto", False: "light", True: "dark"}  # the names of NiceGUI's modes of colours


def add_to(app: Any, live: LiveStore) -> None:
    """Put the page of a store on a FastAPI app, and the address /boards with the rows of boards."""
    others = Others(live.path)

    @app.get("/boards")  # type: ignore[untyped-decorator]
    def boards(
        first: int = 0, last: int = 100, search: str = "", sort: str = "", descending: bool = False
    ) -> dict[str, Any]:
        """Answer a request for rows of the table of boards; the parameters are those of its URL."""
        count, rows = live.table.page(
            first=max(0, first),
            last=max(0, last),
            search=search,
            sort=sort,
            descending=descending,
        )
        return {"count": count, "rows": rows}

    @ui.page("/", title="tern")
    async def page(section: str = "") -> None:
        """Make the page for a browser that opens it. section: of its URL, in any case."""
        await live.look()
        first_section = "Learning"
        for name in SECTIONS:
            if name.lower() == section.lower():
                first_section = name
        Page(live, others, first_section)


class Page:
    """A page that is open in a browser."""

    def __init__(self, live: LiveStore, others: Others, section: str) -> None:
        """Build the elements of the page, with one panel for each section.

        live: the store that it shows. others: the runs to compare. section: the name of the section
        that is open at first.
        """
        self._live = live
        # What the open section shows, and what the head shows: if that is the same, nothing is sent.
        self._section_state: tuple[int, str | None, str] | None = None
        self._head_state: tuple[int, str] | None = None

        # The document.
        ui.add_css(elements.CSS)
        ui.add_body_html(elements.first(live.now))
        ui.colors(primary="#0072b2")
        self._dark = ui.dark_mode(None)
        with ui.element("main").classes("tern"):
            # The head.
            with ui.element("div").classes("tern-head"):
                self._title = ui.html(sanitize=False).classes("title")
                ui.element("span").classes("grow")
                self._switch = ui.button(
                    f"Colours: {_DARK[None]}", color=None, on_click=self._next_colours
                )
                self._switch.props(
                    'flat dense no-caps aria-label="light, dark, or as the system has it"'
                )
            self._note = ui.label().classes("note").props("role=status")
            self._tiles = ui.html(sanitize=False).classes("tiles").mark("tiles")

            # The sections.
            with ui.tabs().props("dense align=left outside-arrows mobile-arrows") as self._tabs:
                for name in SECTIONS:
                    ui.tab(name)
            with ui.tab_panels(self._tabs, value=section, animated=False):
                self._sections: dict[str, Section] = {}
                for name, section_class in SECTIONS.items():
                    with ui.tab_panel(name):
                        self._sections[name] = section_class(live, others)

            ui.html(terms.list_html(), sanitize=False)

        self._show()
        self._tabs.on_value_change(self._open_section)
        ui.timer(EVERY, self._update, immediate=False)

    async def _update(self) -> None:
        """Read the store if it is time to, and show what has changed."""
        await self._live.look()
        self._show()

    def _open_section(self) -> None:
        """Show the section that the user has opened."""
        self._section_state = None
        self._show()

    def _next_colours(self) -> None:
        """Change from the system's colours to light ones, to dark ones, and back."""
        modes = list(_DARK)
        next_index = (modes.index(self._dark.value) + 1) % len(modes)
        self._dark.value = modes[next_index]
        self._switch.text = f"Colours: {_DARK[self._dark.value]}"

    def _show(self) -> None:
        """Update the note, and the head and the open section if the snapshot has changed."""
        snapshot = self._live.now
        note = words.problem(snapshot)
        self._note.set_visibility(note is not None)
        self._note.text = note or ""

        head_state = (snapshot.serial, words.status(snapshot))
        if self._head_state != head_state:
            self._head_state = head_state
            self._title.content = elements.head_html(snapshot)
            self._tiles.content = elements.tile_html(words.tiles(snapshot))

        name = str(self._tabs.value)
        section = self._sections[name]
        section.tick(snapshot)
        section_state = (snapshot.serial, snapshot.note, name)
        if self._section_state != section_state:
            self._section_state = section_state
            section.show(snapshot)
