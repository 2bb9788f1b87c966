"""The last model that the host has sent to its devices, for boards that connect later.

It is stored as a MODEL frame without its authentication tag: the tag depends on the fleet's key,
which may have changed before the frame is sent again.
"""

from tern import wire
from ternhost.count.questions import Averaged
from ternhost.store.store import Store

_STATE = "model"  # name in the store's state: the frame in hexadecimal digits


def keep(store: Store, averaged: Averaged) -> None:
    """Store the model of a run, under the number of the store's last round."""
    any_key = bytes(wire.KEY_BYTES)  # the tag that it makes is cut off again
    frame = averaged.frame(store.last_round(), any_key)
    untagged = frame[: -wire.TAG_BYTES]
    store.save_state({_STATE: untagged.hex()})


def kept(store: Store) -> bytes:
    """Return the MODEL frame for the whole fleet, without its tag; empty if there is none."""
    digits: str | None = store.state(_STATE)
    return bytes.fromhex(digits or "")


def for_device(frame: bytes, device: int) -> bytes:
    """Return a MODEL frame without a tag, addressed to one device instead of the whole fleet.

    frame: from `kept`. Its byte 0 is the type of frame, bytes 1 to 4 are the id of the device.
    """
    return frame[:1] + device.to_bytes(4, "little") + frame[5:]
