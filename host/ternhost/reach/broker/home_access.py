"""Home Assistant on the broker of a fleet, where it is wanted: two users, and their rights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ternhost.errors import UsageError
from ternhost.reach.broker.access import HOME_ASSISTANT, HOST, PUBLISHER, Access
from ternhost.reach.fleet import HomeTopics

if TYPE_CHECKING:
    from ternhost.reach.broker.notices import Notices

PUBLISHER_USER, HOME_USER = "tern-publisher", "home-assistant"

# Only where it is asked for: a user of its own tells Home Assistant of the fleet, and another is Home Assistant. What
# every board may, by the patterns, they may not.
_HOME_ACCESS = """\
user {publisher}
topic write {discovery}
topic write {prefix}/fleet/+
{denied}
user {home}
topic read {home_prefix}/#
topic read {prefix}/fleet/+
topic write {home_prefix}/status
{denied}
"""
_DENIED = "".join(
    f"topic deny {{prefix}}/{name}\n" for name in ("round", "model", "down/+", "up/+", "hello/+", "site/+")
)


def home_access(directory: str | Path) -> tuple[Access, Access] | None:
    """How tern reaches the broker of a directory for Home Assistant, and how Home Assistant does; None: not at all.

    The prefix of the second is that of discovery. Raises UsageError and StorageError.
    """
    paths = [Path(directory) / name for name in (PUBLISHER, HOME_ASSISTANT)]
    if not all(path.exists() for path in paths):
        return None
    publisher, home = (Access.load(path) for path in paths)
    return publisher, home


def discovery_topic(publisher: Access, home: Access) -> str:
    """Where Home Assistant is told what there is to know of a fleet."""
    return f"{home.prefix}/device/{publisher.prefix.replace('/', '_').replace('.', '_')}/config"


def topics_of(directory: Path) -> HomeTopics | None:
    """What tells Home Assistant of the fleet of a broker's directory; None where it may not see the fleet."""
    users = home_access(directory)
    return None if users is None else _Topics(users[0].prefix, discovery_topic(*users), users[0])


@dataclass(frozen=True)
class _Topics:
    prefix: str
    discovery: str
    publisher: Access

    def notices(self, will: tuple[str, bytes], warn: Callable[[str], None]) -> Notices:
        from ternhost.reach.broker.notices import Notices  # it needs an extra

        return Notices(self.publisher, will, warn)


def check_apart(directory: str | Path, home: str | bool | None, fleet: str) -> None:
    """Raise UsageError where Home Assistant, by its prefix `home`, could read topics of the fleet of the prefix
    `fleet`, or one of its boards those of discovery. home: as of `users_of`."""
    if home is None and (before := home_access(directory)):
        home = before[1].prefix
    if isinstance(home, str) and (f"{home}/".startswith(f"{fleet}/") or f"{fleet}/".startswith(f"{home}/")):
        raise UsageError(
            f"Home Assistant's topics cannot begin with {home!r} where the fleet's begin with {fleet!r}: "
            "it could read what is not for it",
            hint="name another for one of them: the first is of --home-assistant, the second of --prefix",
        )


def users_of(directory: Path, prefix: str | bool | None) -> dict[Path, Access]:
    """The files of the two users, whom Home Assistant's `prefix` of discovery topics lets in; False: nobody any more,
    and what there was is removed; None: as before.
    """
    if prefix is None and (before := home_access(directory)):
        prefix = before[1].prefix
    if prefix is None:
        return {}
    if not isinstance(prefix, str):
        for name in (PUBLISHER, HOME_ASSISTANT):
            (directory / name).unlink(missing_ok=True)
        return {}
    host = json.loads((directory / HOST).read_text())
    return {
        directory / name: Access(host["host"], host["port"], user, "", host["authority"], of)
        for name, user, of in (
            (PUBLISHER, PUBLISHER_USER, host["prefix"]),
            (HOME_ASSISTANT, HOME_USER, prefix),
        )
    }


def access_list(directory: Path) -> str:
    """What the two users may do; empty where there are none."""
    users = home_access(directory)
    if users is None:
        return ""
    publisher, home = users
    return _HOME_ACCESS.format(
        publisher=publisher.user,
        discovery=discovery_topic(publisher, home),
        prefix=publisher.prefix,
        denied=_DENIED.format(prefix=publisher.prefix),
        home=home.user,
        home_prefix=home.prefix,
    )
