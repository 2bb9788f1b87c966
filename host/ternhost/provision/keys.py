"""Makes, replaces and revokes the keys of a fleet's devices, also while a host serves it.

After a device was revoked, its reports are rejected. The key of the fleet, which its board knows,
is replaced. A broker refuses the board once `tern broker config` was run again.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tern import wire
from ternhost.errors import UsageError
from ternhost.provision.boards import new_keys
from ternhost.store import sleepers
from ternhost.store.fleet_key import FleetKey, fleet_key, rotate_fleet
from ternhost.store.store import Store

__all__ = [
    "Device",
    "add",
    "fleet_key",
    "list_devices",
    "parse_ids",
    "revoke",
    "rotate",
    "rotate_fleet",
]

MAX_AT_ONCE = 1_000_000  # devices in one command
LAST = wire.FLEET - 1  # the largest id of a device
_ID_OR_RANGE = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


@dataclass(frozen=True)
class Device:
    """A device that has a key in the store, or had one. Times are in seconds since 1970."""

    id: int
    revoked: float | None  # when its key was revoked; None: it has a key
    wake: int | None = None  # it sleeps, and wakes every so many seconds; None: it is always awake
    heard: float | None = None  # when a device that sleeps last sent something


def add(store: Store, devices: Sequence[int]) -> dict[int, bytes]:
    """Give each of these new devices a key, store the keys, and return them by device.

    Raises UsageError for an id that no device may have, and for one that has a key already.
    """
    _check(devices)
    existing = sorted(set(devices) & store.keys().keys())
    if existing:
        hint = "'tern keys rotate' gives it a new one"
        raise UsageError(f"device {existing[0]} has a key already", hint=hint)
    keys = new_keys(devices)
    store.add_devices(keys)
    return keys


def rotate(store: Store, devices: Sequence[int]) -> dict[int, bytes]:
    """Replace the key of each of these devices, and return the new keys by device.

    Raises UsageError if a device has no key.
    """
    _require(store, devices)
    keys = new_keys(devices)
    store.add_devices(keys)
    return keys


def revoke(store: Store, devices: Sequence[int]) -> FleetKey:
    """Revoke the keys of these devices, and return the new key of the fleet.

    The boards of revoked devices know the old key of the fleet, so it is replaced. Both happen in
    one transaction: otherwise a host that serves the fleet might send them the new key in between.
    Raises UsageError if a device has no key.
    """
    with store.transaction():
        _require(store, devices)
        store.revoke_devices(devices)
        return rotate_fleet(store)


def list_devices(store: Store) -> list[Device]:
    """Return every device that has a key in the store or had one, ordered by id."""
    keys, revoked = store.keys(), store.revoked()
    wakes, heard = sleepers.wakes(store), sleepers.heard(store)
    devices = []
    for device in sorted(keys.keys() | revoked.keys()):
        revoked_at = None
        if device not in keys:
            revoked_at = revoked[device]
        devices.append(Device(device, revoked_at, wakes.get(device), heard.get(device)))
    return devices


def parse_range(text: str) -> range:
    """Parse an id such as `7`, or a range of ids such as `10-19`. Raises UsageError."""
    match = _ID_OR_RANGE.fullmatch(text)
    if not match:
        raise UsageError(f"{text!r} is not a device", hint="give an id, or a range such as 10-19")
    first, last = match[1], match[2]
    if last is None:
        last = first
    ids = range(int(first), int(last) + 1)
    if not ids:
        raise UsageError(f"{text!r} is an empty range", hint="give the smaller id first")
    if ids[0] < 1 or ids[-1] > LAST:
        raise UsageError(f"a device's id must be 1 to {LAST}, and {text!r} is not")
    return ids


def check_apart(sites: Mapping[str, range]) -> None:
    """Raise UsageError if the ranges of device ids of two sites overlap.

    sites: the ids of the devices of each site, by the site's name.
    """
    by_first_id = sorted(sites, key=lambda site: (sites[site].start, sites[site].stop, site))
    for site, next_site in itertools.pairwise(by_first_id):
        first_of_next = sites[next_site].start
        if first_of_next < sites[site].stop:
            message = f"sites {site} and {next_site} would both have device {first_of_next}"
            raise UsageError(message, hint="give each site ids of its own")


def parse_ids(words: Iterable[str]) -> list[int]:
    """Parse ids and ranges of ids, such as `7` and `10-19`, into one list of ids.

    Raises UsageError, also for too many ids, for none, and for an id that is there twice.
    """
    devices: list[int] = []
    for word in words:
        span = parse_range(word)
        if len(devices) + len(span) > MAX_AT_ONCE:
            raise UsageError(f"at most {MAX_AT_ONCE} devices can be named at once")
        devices += span
    _check(devices)
    return devices


def _check(devices: Sequence[int]) -> None:
    """Raise UsageError unless all of these can be ids of devices, and each is there once."""
    if len(set(devices)) < len(devices):
        raise UsageError("a device is named twice", hint="name each once")
    if not devices or not 1 <= min(devices) <= max(devices) <= LAST:
        raise UsageError(f"name at least one device, by an id of 1 to {LAST}")


def _require(store: Store, devices: Sequence[int]) -> None:
    """Raise UsageError unless each of these devices has a key in the store."""
    missing = sorted(set(devices) - store.keys().keys())
    if missing:
        text = f"device {missing[0]} has no key in this store"
        raise UsageError(text, hint="see 'tern keys list'")
