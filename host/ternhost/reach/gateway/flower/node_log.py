"""What the node of a site says of itself, for people."""

from __future__ import annotations

from ternhost.reach.gateway.flower.files import NODE_LOG, Site


class NodeLog:
    """Its log, of which the last line tells how it fares with the server."""

    def __init__(self, site: Site) -> None:
        self._path = site.directory / NODE_LOG
        self._written = self._time()
        self._told = ""

    def _time(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0

    @property
    def last(self) -> str:
        """The last line; "" where there is none."""
        try:
            return (self._path.read_text(errors="replace").splitlines() or [""])[-1]
        except OSError:
            return ""

    def news(self) -> str:
        """The last line if it was written since this was asked last, and is another than then; else ""."""
        if (written := self._time()) == self._written:
            return ""
        self._written = written
        if (last := self.last) == self._told:
            return ""
        self._told = last
        return last
