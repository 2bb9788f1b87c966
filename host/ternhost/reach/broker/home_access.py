"""Lets Home Assistant see a fleet on the fleet's broker, if that is wanted.

The broker then has two more users: tern's publisher, which writes status figures of the fleet, and
Home Assistant, which reads them.
"""

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
    """How the two users reach the broker."""

    publisher: Access  # tern, which publishes status figures; with the prefix of the fleet's topics
    home: Access  # Home Assistant; with the prefix of its own discovery topics

    @property
    def prefix(self) -> str:
        """The prefix of the fleet's topics."""
        return self.publisher.prefix

    @property
    def discovery(self) -> str:
        """The topic at which Home Assistant discovers the fleet."""
        fleet_id = self.prefix.replace("/", "_").replace(".", "_")
        return f"{self.home.prefix}/device/{fleet_id}/config"

    @property
    def rights(self) -> dict[Access, Rights]:
        """The topics that each of the two users may write and read.

        Neither may read or write the messages of boards, hosts and sites.
        """
        figures = f"{self.prefix}/fleet/+"
        discovery_prefix = self.home.prefix
        frames = Rights.below(
            self.prefix, write="", read="", denied="round model down/+ up/+ hello/+ site/+"
        )
        publisher_rights = Rights(write=[self.discovery, figures], read=[], denied=frames.denied)
        home_rights = Rights(
            write=[f"{discovery_prefix}/status"],
            read=[f"{discovery_prefix}/#", figures],
            denied=frames.denied,
        )
        return {self.publisher: publisher_rights, self.home: home_rights}

    def notices(self, will: tuple[str, bytes], warn: Callable[[str], None]) -> Notices:
        """Connect to the broker as publisher.

        will: the topic and payload of a message that the broker retains if this process is lost.
        warn: is called with a sentence if the broker refuses this host.
        """
        from ternhost.reach.broker.notices import Notices  # it needs an extra

        return Notices(self.publisher, will, warn)


def load(directory: str | Path) -> HomeAccess | None:
    """Load how the two users reach the broker of a directory.

    Return None if Home Assistant may not see the fleet. Raises UsageError and StorageError.
    """
    publisher = Path(directory) / PUBLISHER
    home = Path(directory) / HOME_ASSISTANT
    if not publisher.exists() or not home.exists():
        return None
    return HomeAccess(Access.load(publisher), Access.load(home))


def check(directory: str | Path, discovery: str | bool | None, fleet_prefix: str) -> None:
    """Raise UsageError if Home Assistant's topics cannot begin with this prefix.

    The prefix may be invalid, or it may overlap with that of the fleet's topics. Then Home
    Assistant could read messages of the fleet.

    directory: the broker's directory. discovery: the prefix of Home Assistant's discovery topics;
    None for the one that is configured already, and False for no Home Assistant. fleet_prefix:
    the prefix of the fleet's topics.
    """
    discovery = _discovery_prefix(directory, discovery)
    if not isinstance(discovery, str):
        return
    check_prefix(discovery)
    is_below_fleet = f"{discovery}/".startswith(f"{fleet_prefix}/")
    is_above_fleet = f"{fleet_prefix}/".startswith(f"{discovery}/")
    if is_below_fleet or is_above_fleet:
        raise UsageError(
            f"Home Assistant's topics cannot begin with {discovery!r} where the fleet's begin with "
            f"{fleet_prefix!r}: it could read more than it may",
            "choose another --home-assistant prefix, or another --prefix for the fleet",
        )


def _discovery_prefix(directory: str | Path, discovery: str | bool | None) -> str | bool | None:
    """Return the prefix of Home Assistant's discovery topics.

    discovery: the given prefix, or False for no Home Assistant; both are returned as they are. For
    None it is the prefix that is configured already, or None if there is none.
    """
    if discovery is not None:
        return discovery
    access = load(directory)
    if access is None:
        return None
    return access.home.prefix


def users(directory: Path, discovery: str | bool | None) -> dict[Path, Access]:
    """Return how the two users are to reach the broker, by the paths of the files to write that to.

    The result is empty if Home Assistant may not see the fleet.

    directory: the broker's directory. discovery: the prefix of Home Assistant's discovery topics;
    None for the one that is configured already. False removes the two files.
    """
    discovery = _discovery_prefix(directory, discovery)
    if discovery is False:
        for name in (PUBLISHER, HOME_ASSISTANT):
            (directory / name).unlink(missing_ok=True)
    if not isinstance(discovery, str):
        return {}
    host = Access.load(directory / HOST)
    publisher = replace(host, user=PUBLISHER_USER, store=None)
    home = replace(host, user=HOME_USER, prefix=discovery, store=None)
    return {directory / PUBLISHER: publisher, directory / HOME_ASSISTANT: home}
