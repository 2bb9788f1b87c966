"""Guests of a broker: programs that show a fleet to people, such as a dashboard at home.

A guest sees a fleet only if the owner of the broker lets it. The broker then has two more users: the
guest itself, and a publisher, which is tern when it writes what the guest reads. Neither may read or
write the messages of boards, host and sites. Guests come from extensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from ternhost.errors import UsageError
from ternhost.extensions import EXTENSIONS
from ternhost.reach.broker.access import HOST, TO_ALL_BOARDS, Access, Rights, check_prefix

# The topics of messages between boards, host and sites, after the prefix of the fleet.
_MESSAGES = f"{TO_ALL_BOARDS} down/+ up/+ hello/+ site/+"

GuestPrefixes = Mapping[str, str | None]
"""Which guests to let in or out: by the name of a guest, the prefix of its own topics, or None for one
that may no longer see the fleet. Guests that are not in it stay as they were.
"""
NO_CHANGES: GuestPrefixes = MappingProxyType({})


@dataclass(frozen=True)
class GuestAccess:
    """How the two users of a guest reach the broker."""

    publisher: Access  # its prefix is that of the fleet's topics
    guest: Access  # its prefix is that of the guest's own topics


class Guest:
    """The base class of guests.

    Users let a guest in with `tern broker config DIR --guest NAME[:PREFIX]`, and out with `--guest
    NAME:none`. An observer of the same name (see `ternhost.run.observer`) publishes what the guest
    reads.
    """

    name: ClassVar[str]  # in small letters with underscores
    title: ClassVar[str]  # for people
    about: ClassVar[str]  # the help text about it
    default_prefix: ClassVar[str]  # of its own topics

    # The names of its users, and of the files like host.json that say how each reaches the broker.
    user: ClassVar[str]
    file: ClassVar[str]
    publisher: ClassVar[str]
    publisher_file: ClassVar[str]

    @property
    def option(self) -> str:
        """Its name on the command line, with hyphens."""
        return self.name.replace("_", "-")

    def rights(self, fleet_prefix: str, own_prefix: str) -> tuple[Rights, Rights]:
        """Return the topics that the publisher and the guest may write and read.

        fleet_prefix: the beginning of the fleet's topics. own_prefix: that of the guest's own ones.
        """
        raise NotImplementedError

    def load(self, directory: Path) -> GuestAccess | None:
        """Load how its users reach the broker of a directory; None if it may not see the fleet.

        Raises UsageError and StorageError.
        """
        publisher = directory / self.publisher_file
        guest = directory / self.file
        if not publisher.exists() or not guest.exists():
            return None
        return GuestAccess(Access.load(publisher), Access.load(guest))

    def prefix(self, directory: Path, prefixes: GuestPrefixes) -> str | None:
        """Return the prefix that its topics are to have; None if it is not to see the fleet."""
        if self.name in prefixes:
            return prefixes[self.name]
        access = self.load(directory)
        if access is None:
            return None
        return access.guest.prefix

    def check(self, directory: Path, prefixes: GuestPrefixes, fleet_prefix: str) -> None:
        """Raise UsageError if the guest's topics cannot begin with the prefix that is meant for them.

        The prefix may be invalid, or it may overlap with that of the fleet's topics. Then the guest
        (a program that may see the state of the fleet, such as a dashboard) could read messages of
        the fleet.
        """
        prefix = self.prefix(directory, prefixes)
        if prefix is None:
            return
        check_prefix(prefix)
        is_below_fleet = f"{prefix}/".startswith(f"{fleet_prefix}/")
        is_above_fleet = f"{fleet_prefix}/".startswith(f"{prefix}/")
        if is_below_fleet or is_above_fleet:
            raise UsageError(
                f"{self.title}'s topics cannot begin with {prefix!r} where the fleet's begin with "
                f"{fleet_prefix!r}: it could read more than it may",
                f"choose another prefix: --guest {self.option}:PREFIX, or --prefix for the fleet",
            )

    def accesses(self, directory: Path, prefixes: GuestPrefixes) -> dict[Path, Access]:
        """Return how the guest's users are to reach the broker, by the paths of the files for that.

        A guest is a program, such as a dashboard, that may see the state of the fleet. It has two
        users, each with a file: the publisher, with which the host writes, and the guest itself.
        The result is empty if it may not see the fleet. If the user has just withdrawn that right,
        its files are removed.

        directory: that of the broker's files. prefixes: which guests the user has let in or out
        just now, with the prefix of the topics of each, or None.
        """
        publisher_file = directory / self.publisher_file
        guest_file = directory / self.file
        prefix = self.prefix(directory, prefixes)
        if prefix is None:
            was_let_out = self.name in prefixes
            if was_let_out:
                publisher_file.unlink(missing_ok=True)
                guest_file.unlink(missing_ok=True)
            return {}
        host = Access.load(directory / HOST)
        return {
            publisher_file: replace(host, user=self.publisher, store=None),
            guest_file: replace(host, user=self.user, prefix=prefix, store=None),
        }


def registered() -> list[Guest]:
    """Return the guests of all extensions."""
    return [guest for extension in EXTENSIONS.available() for guest in extension.guests]


def check(directory: Path, prefixes: GuestPrefixes, fleet_prefix: str) -> None:
    """Raise UsageError if the topics of a guest cannot begin with the prefix that they are to have."""
    for guest in registered():
        guest.check(directory, prefixes, fleet_prefix)


def rights(directory: Path) -> dict[Access, Rights]:
    """Return the topics that the users of all guests of a broker may write and read.

    A guest is a program such as a dashboard that may see the state of the fleet, but none of its
    messages. It has two users: a publisher, with which the host writes that state into topics of
    the guest, and the guest itself, which reads them. The keys of the result say how each user
    reaches the broker.

    directory: that of the broker's files.
    """
    rights_by_user = {}
    for guest in registered():
        access = guest.load(directory)
        if access is None:
            continue
        fleet_prefix = access.publisher.prefix
        # Neither user may read or write the topics with the messages of the fleet.
        messages = Rights.below(fleet_prefix, write="", read="", denied=_MESSAGES).denied
        of_publisher, of_guest = guest.rights(fleet_prefix, access.guest.prefix)
        rights_by_user[access.publisher] = replace(of_publisher, denied=messages)
        rights_by_user[access.guest] = replace(of_guest, denied=messages)
    return rights_by_user
