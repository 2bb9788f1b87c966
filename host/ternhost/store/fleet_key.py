"""The key of a whole fleet (wire.md), which its store keeps with its epoch: each epoch is of one key only.

That holds of copies of a store, too, where one is restored: an epoch is the second in which its key was made, as the
clock says. It rests on that clock, and on no two copies making a key in the same second.
"""

from __future__ import annotations

import secrets
import time
from typing import NamedTuple

from tern import frames, host_frames, wire
from ternhost.errors import StorageError
from ternhost.store.store import Store

OWN_KEY_ONLY = 2**32 - 1  # the epoch of a board that has no part in the fleet's key; none follows it

_STATE = "fleet key"  # of a store: [hexadecimal digits, epoch]; before there were epochs, the digits
_FIRST_SECOND = 1_577_836_800  # 2020-01-01 UTC; 2**32 seconds later it is 2156


class FleetKey(NamedTuple):
    """The key of a fleet, 32 bytes, and its epoch, 1 or more."""

    key: bytes
    epoch: int

    def frame(self, device: int, key: bytes) -> bytes:
        """The FLEET_KEY that brings it to the board whose first client is `device`, with `key`."""
        out = bytearray(wire.MAX_FRAME)
        return bytes(out[: host_frames.encode_fleet_key(out, key, device, self.epoch, self.key)])

    def seal(self, frame: bytes) -> bytes:
        """A frame for the whole fleet, given without its tag, with the tag under this key."""
        return frame + bytes(frames.tag(self.key, frame))


def fleet_key(store: Store) -> FleetKey:
    """The fleet's key, made when first asked for."""
    return _read(store) or rotate_fleet(store)


def rotate_fleet(store: Store) -> FleetKey:
    """Make another key, of a later epoch: whoever has the one before can ask nothing with it any more.

    Raises StorageError where there is no later epoch: the clock was wrong by a century.
    """
    with store.transaction():
        there = _read(store)
        epoch = max(there.epoch + 1 if there else 1, int(time.time()) - _FIRST_SECOND)
        if epoch >= OWN_KEY_ONLY:
            raise StorageError("there is no later epoch for a fleet key", hint="set this machine's clock")
        made = FleetKey(secrets.token_bytes(wire.KEY_BYTES), epoch)
        store.save_state({_STATE: (made.key.hex(), made.epoch)})
    return made


def _read(store: Store) -> FleetKey | None:
    state = store.state(_STATE)
    if state is None:
        return None
    digits, epoch = (state, 1) if isinstance(state, str) else state
    return FleetKey(bytes.fromhex(digits), epoch)
