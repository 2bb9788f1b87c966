"""The key that all devices of a fleet share (wire.md), and its epoch.

The host signs with it what it sends to all devices at once. The epoch is a number that grows with
every new key: a board takes only a key with a later epoch. It is the second in which the key was
made, so that no two keys have the same epoch even after a store is restored from a copy, unless
the clock is wrong or two copies make a key in the same second.
"""

import secrets
import time
from typing import NamedTuple

from tern import frames, host_frames, wire
from ternhost.errors import StorageError
from ternhost.store.store import Store

# The epoch of a board that has only its own key. It is the largest one (an epoch has 32 bits), so
# that such a board takes no key of the fleet.
OWN_KEY_ONLY = 2**32 - 1

_STATE = "fleet key"  # name in the store's state: [key in hexadecimal digits, epoch]
_FIRST_SECOND = 1_577_836_800  # 2020-01-01 UTC: epochs count from here, and last until 2156


class FleetKey(NamedTuple):
    """The key of a fleet, 32 bytes, and its epoch, 1 or more."""

    key: bytes
    epoch: int

    def frame(self, device: int, key: bytes) -> bytes:
        """Return the FLEET_KEY frame that hands this key to a board.

        device, key: the id and the own key of the board's first device. Under that key the frame
        is encrypted and authenticated.
        """
        buffer = bytearray(wire.MAX_FRAME)
        size = host_frames.encode_fleet_key(buffer, key, device, self.epoch, self.key)
        return bytes(buffer[:size])

    def seal(self, frame: bytes) -> bytes:
        """Return a frame for the whole fleet with its authentication tag under this key."""
        tag = bytes(frames.tag(self.key, frame))
        return frame + tag


def fleet_key(store: Store) -> FleetKey:
    """Return the fleet's key, which is made now if the store has none."""
    current = _read(store)
    if current is None:
        return rotate_fleet(store)
    return current


def rotate_fleet(store: Store) -> FleetKey:
    """Make a new key of the fleet, with a later epoch than the last one, and store it.

    Raises StorageError if no later epoch is left, because the clock is or was wrong by a century.
    """
    with store.transaction():
        current = _read(store)
        least_epoch = 1 if current is None else current.epoch + 1
        seconds = int(time.time()) - _FIRST_SECOND
        epoch = max(seconds, least_epoch)
        if epoch >= OWN_KEY_ONLY:
            raise StorageError(
                "there is no later epoch for a fleet key", hint="set this machine's clock"
            )
        new_key = FleetKey(secrets.token_bytes(wire.KEY_BYTES), epoch)
        store.save_state({_STATE: (new_key.key.hex(), epoch)})
    return new_key


def _read(store: Store) -> FleetKey | None:
    """Return the fleet's key in a store, or None if it has none."""
    state = store.state(_STATE)
    if not state:
        return None
    digits, epoch = state
    return FleetKey(bytes.fromhex(digits), epoch)
