"""Home Assistant on the broker of a fleet, where it is wanted: two users, and their rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ternhost.errors import UsageError
from ternhost.reach.broker.access import (
    HOME_ASSISTANT,
    HOST,
    PUBLISHER,
    Access,
    Rights,
    check_prefix,
)

if TYPE_CHECKING:
    from ternhost.reach.broker.notices import Notices

PUBLISHER_USER, HOME_USER = "tern-publisher", "home-assistant"


@dataclass(frozen=True)
class HomeAccess:
    """How tern reaches a broker to publish its fleet, and how Home Assistant does.

    The prefix of `home` is that of discovery topics.
    """

    publisher: Access
    home: Access

    @property
    def prefix(self) -> str:
        """Prefix of the fleet's topics."""
        return self.publisher.prefix

    @property
    def discovery(self) -> str:
        """The topic that describes the fleet to Home Assistant."""
        fleet_id = self.prefix.replace("/", "_").replace(".", "_")
        return f"{self.home.prefix}/device/{fleet_id}/config"

    @property
    def rights(self) -> dict[Access, Rights]:
        """The rights of the two users: one publishes the fleet, and one is Home Assistant."""
        figures = f"{self.prefix}/fleet/+"
        discovery_prefix = self.home.prefix
        frames = Rights.below(self.prefix, "", "", "round model down/+ up/+ hello/+ site/+")
        publisher_rights = Rights(write=[self.discovery, figures], read=[], denied=frames.denied)
        home_rights = Rights(
            write=[f"{discovery_prefix}/status"],
            read=[f"{discovery_prefix}/#", figures],
            denied=frames.denied,
        )
        return {self.publisher: publisher_rights, self.home: home_rights}

    def notices(self, will: tuple[str, bytes], warn: Callable[[str], None]) -> Notices:
        """Connect to the broker. will: (topic, payload) that it retains if this process is lost."""
        from ternhost.reach.broker.notices import Notices  # it needs an extra

        return Notices(self.publisher, will, warn)


def load(directory: str | Path) -> HomeAccess | None:
    """Load how the two users reach the broker of a directory.

    None if Home Assistant may not see the fleet. Raises UsageError and StorageError.
    """
    publisher = Path(directory) / PUBLISHER
    home = Path(directory) / HOME_ASSISTANT
    if not publisher.exists() or not home.exists():
        return None
    return HomeAccess(Access.load(publisher), Access.load(home))


def check(directory: str | Path, discovery: str | bool | None, fleet: str) -> None:
    """Raise UsageError for an invalid prefix, or one that overlaps with the fleet's.

    If they overlap, Home Assistant could read topics of the fleet. discovery: the prefix of its
    discovery topics; None: as before. fleet: the prefix of the fleet's topics.
    """
    discovery = _prefix(directory, discovery)
    if not isinstance(discovery, str):
        return
    check_prefix(discovery)
    is_below_fleet = f"{discovery}/".startswith(f"{fleet}/")
    is_above_fleet = f"{fleet}/".startswith(f"{discovery}/")
    if is_below_fleet or is_above_fleet:
        raise UsageError(
            f"Home Assistant's topics cannot begin with {discovery!r} where the fleet's begin with "
            f"{fleet!r}: it could read more than it may",
            "choose another --home-assistant prefix, or another --prefix for the fleet",
        )


def _prefix(directory: str | Path, discovery: str | bool | None) -> str | bool | None:
    """Return the prefix of discovery topics: the given one; for None the one of before, if any."""
    if discovery is not None:
        return discovery
    access = load(directory)
    if access is None:
        return None
    return access.home.prefix


def users(directory: Path, discovery: str | bool | None) -> dict[Path, Access]:
    """Return what the files of the two users are to say, by their paths.

    discovery: the prefix of discovery topics; None: as before. False removes the files.
    """
    discovery = _prefix(directory, discovery)
    if discovery is False:
        for name in (PUBLISHER, HOME_ASSISTANT):
            (directory / name).unlink(missing_ok=True)
    if not isinstance(discovery, str):
        return {}
    host = Access.load(directory / HOST)
    publisher = replace(host, user=PUBLISHER_USER, store=None)
    home = replace(host, user=HOME_USER, prefix=discovery, store=None)
    return {directory / PUBLISHER: publisher, directory / HOME_ASSISTANT: home}
