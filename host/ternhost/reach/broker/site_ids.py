"""Which devices are at which site, so that the broker of one cannot speak for the boards of another.

An access list limits the topics of a site's broker, which tell the first client of a board; not what its HELLO says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Ids = Mapping[str, range]  # of the devices of sites, by name; a site that was given none is not there

RESENT = 3.0  # seconds in which the broker of a site that is back tells what it has kept
_AGAIN = 60.0  # seconds from one such time of a site to the next that counts


class SiteIds:
    """The ids of sites, and which sites are back just now."""

    def __init__(self, load: Callable[[], Ids] = dict) -> None:
        """load: the ids as they are now; it is called when a site is back, or the host is connected."""
        self._load = load
        self._ids: Ids = {}
        self._back: dict[str, float] = {}  # when they were, by name

    def renew(self) -> None:
        """Sites may have been added."""
        self._ids = self._load()

    def back(self, site: str, now: float) -> None:
        """A site's broker says that it is connected again: this does not count too often, since anybody can say it."""
        if now - self._back.get(site, -_AGAIN) >= _AGAIN:
            self.renew()
            self._back[site] = now

    def resent(self, first: int, now: float) -> bool:
        """Whether what the board of this first client seems to say may be from before: its site is back just now."""
        return any(now - then < RESENT and self._may_speak(site, first) for site, then in self._back.items())

    def _may_speak(self, site: str, device: int) -> bool:
        # A site without ids, for any board that is not at another.
        if site in self._ids:
            return device in self._ids[site]
        return not any(device in ids for ids in self._ids.values())

    def cut(self, clients: range) -> range:
        """Of the clients that a board claims, those that are where its first is."""
        stop = clients.stop
        for ids in self._ids.values():
            for end in (ids.start, ids.stop):
                if clients.start < end:
                    stop = min(stop, end)
        return range(clients.start, stop)
