"""Refuses a copy of a broker's directory that is used beside its original on the same machine.

Both have the same keys of devices. If both were used at once, the two stores would use the same
numbers of rounds, and neither would know what the devices have paid for the other. A directory may
be moved, though, and a copy may be used on another machine, in place of the original.

A copy has the same password of the host as its original. So a broker and a host hold a name (see
`ternhost.machine_names`) that follows from this password.
"""

import hashlib
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.files import Closing
from ternhost.machine_names import HeldName, NameIsHeld, is_held
from ternhost.reach.broker.access import Access

_ID_DIGITS = 32


class RunningBroker(Closing):
    """The names of a broker that runs, held until `close`."""

    def __init__(self, directory: Path, access: Access) -> None:
        """Take the names. Raises UsageError if this broker or a copy runs already."""
        check_original(directory, access)
        try:
            self._name = HeldName(_broker_name(access))
        except NameIsHeld:
            raise UsageError(
                f"the broker of {directory} runs already",
                hint="end the other 'tern broker run' first, or use it",
            ) from None
        try:
            self._place = HeldName(_place_name(directory, access))
        except NameIsHeld:
            self._name.close()
            raise

    def close(self) -> None:
        self._place.close()
        self._name.close()


def check_original(directory: Path, access: Access) -> None:
    """Raise UsageError if the broker of another directory runs of which this one is a copy.

    The other one may be the copy, too. access: how the host reaches the broker of `directory`.
    """
    runs = is_held(_broker_name(access))
    if runs and not is_held(_place_name(directory, access)):
        raise UsageError(
            f"{directory} is a copy of the directory of a broker that is running here, or its original",
            hint=_REMEDY,
        )


def hold_host(access: Access) -> HeldName:
    """Take the name of the only host that a broker has on this machine.

    access: how the host reaches the broker. Raises UsageError if there is another host.
    """
    try:
        return HeldName(f"tern host {_id(access)}")
    except NameIsHeld:
        raise UsageError(
            f"another tern on this machine reaches the boards of the broker at {access.host} "
            f"port {access.port}, from its directory or from a copy of it",
            hint=f"wait until it has ended, or end it. {_REMEDY}",
        ) from None


_REMEDY = (
    "use either the original or the copy: a directory may be moved, and a copy may serve on another "
    "machine in place of the original. Another fleet needs a broker of its own: tern broker config OTHER"
)


def _broker_name(access: Access) -> str:
    return f"tern broker {_id(access)}"


def _place_name(directory: Path, access: Access) -> str:
    """Return the name that says in which directory a broker runs, however that is called."""
    status = directory.stat()
    return f"{_broker_name(access)} {status.st_dev} {status.st_ino}"


def _id(access: Access) -> str:
    """Return what a broker and its copies have in common, without telling the host's password."""
    return hashlib.sha256(f"tern broker {access.password}".encode()).hexdigest()[:_ID_DIGITS]
