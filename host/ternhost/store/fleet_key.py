"""The key of a whole fleet (wire.md) and its epoch.

The epoch is the second in which the key was made. So no two keys share one after a store is
restored from a copy, unless the clock is wrong or two copies make a key in the same second.
"""

import secrets
import time
from typing import NamedTuple

from tern import frames, host_frames, wire
from ternhost.errors import StorageError
from ternhost.store.store import Store

OWN_KEY_ONLY = 2**32 - 1  # the epoch of a board without the fleet's key; none follows it

_STATE = "fleet key"  # in the store: [hexadecimal digits, epoch]
_FIRST_SECOND = 1_577_836_800  # 2020-01-01 UTC; 2**32 seconds later it is 2156


class FleetKey(NamedTuple):
    """The key of a fleet, 32 bytes, and its epoch, 1 or more."""

    key: bytes
    epoch: int

    def frame(self, device: int, key: bytes) -> bytes:
        """Encode the FLEET_KEY frame for a board. device, key: of the board's first client."""
        buffer = bytearray(wire.MAX_FRAME)
        size = host_frames.encode_fleet_key(buffer, key, device, self.epoch, self.key)
        return bytes(buffer[:size])

    def seal(self, frame: bytes) -> bytes:
        """Append the tag under this key to a frame for the whole fleet."""
        return frame + bytes(frames.tag(self.key, frame))


def fleet_key(store: Store) -> FleetKey:
    """Return the fleet's key; make it if the store has none."""
    return _read(store) or rotate_fleet(store)


def rotate_fleet(store: Store) -> FleetKey:
    """Make a new key of the fleet, with a later epoch than the last one, and store it.

    Raises StorageError if no later epoch is left: the clock was wrong by a century.
    """
    with store.transaction():
        current = _read(store)
        epoch = int(time.time()) - _FIRST_SECOND
        least_epoch = 1 if current is None else current.epoch + 1
        epoch = max(epoch, least_epoch)
        if epoch >= OWN_KEY_ONLY:
            raise StorageError(
                "there is no later epoch for a fleet key", hint="set this machine's clock"
            )
        new_key = FleetKey(secrets.token_bytes(wire.KEY_BYTES), epoch)
        store.save_state({_STATE: (new_key.key.hex(), epoch)})
    return new_key


def _read(store: Store) -> FleetKey | None:
    state = store.state(_STATE)
    if not state:
        return None
    digits, epoch = state
    return FleetKey(bytes.fromhex(digits), epoch)
