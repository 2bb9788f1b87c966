"""The last MODEL that a host has made for its devices, stored without a tag since keys change."""

from tern import wire
from ternhost.count.questions import Averaged
from ternhost.store.store import Store

_STATE = "model"  # of a store: hexadecimal digits


def keep(store: Store, averaged: Averaged) -> None:
    """Store the model of a run, numbered by the store's last round."""
    frame = averaged.frame(store.last_round(), bytes(wire.KEY_BYTES))
    store.save_state({_STATE: frame[: -wire.TAG_BYTES].hex()})


def kept(store: Store) -> bytes:
    """The MODEL for the whole fleet, without its tag; empty where there is none."""
    digits: str | None = store.state(_STATE)
    return bytes.fromhex(digits or "")


def for_device(frame: bytes, device: int) -> bytes:
    """That MODEL addressed to one device, also without a tag."""
    return frame[:1] + device.to_bytes(4, "little") + frame[5:]
