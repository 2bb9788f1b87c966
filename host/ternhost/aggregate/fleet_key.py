"""The key of a whole fleet (wire.md), which its store keeps with its epoch: each epoch is of one key only."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from tern import host_frames, wire
from ternhost.aggregate.store import Store

_STATE = (
    "fleet key"  # of a store: [hexadecimal digits, epoch]; before there were epochs, the digits of the first
)


class FleetKey(NamedTuple):
    """The key of a fleet, 32 bytes, and its epoch, 1 or more."""

    key: bytes
    epoch: int

    def frame(self, device: int, key: bytes) -> bytes:
        """The FLEET_KEY that brings it to the board whose first client is `device`, with `key`."""
        out = bytearray(wire.MAX_FRAME)
        return bytes(out[: host_frames.encode_fleet_key(out, key, device, self.epoch, self.key)])


def fleet_key(store: Store) -> FleetKey:
    """The fleet's key, made when first asked for."""
    return _read(store) or rotate_fleet(store)


def rotate_fleet(store: Store) -> FleetKey:
    """Make another key, of the next epoch: whoever has the one before can ask nothing with it any more."""
    with store.transaction():
        there = _read(store)
        made = FleetKey(secrets.token_bytes(wire.KEY_BYTES), there.epoch + 1 if there else 1)
        store.save_state({_STATE: (made.key.hex(), made.epoch)})
    return made


def _read(store: Store) -> FleetKey | None:
    state = store.state(_STATE)
    if state is None:
        return None
    digits, epoch = (state, 1) if isinstance(state, str) else state
    return FleetKey(bytes.fromhex(digits), epoch)
