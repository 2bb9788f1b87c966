"""The last model, and the last limits, that the host has sent to its devices.

They are for boards that connect later. Each is stored as a MODEL frame without its authentication
tag: the tag depends on the fleet's key, which may have changed before the frame is sent again.
"""

from tern import wire
from ternhost.count.questions import Averaged
from ternhost.store.store import Store

# Names in the store's state, which has each frame in hexadecimal digits.
_MODEL_STATE = "model"
_LIMITS_STATE = "limits"


def keep(store: Store, averaged: Averaged) -> None:
    """Store the model or the limits of a run, under the number of the store's last round.

    Limits do not replace a model that is stored, nor the other way round.
    """
    any_key = bytes(wire.KEY_BYTES)  # the tag that it makes is cut off again
    frame = averaged.frame(store.last_round(), any_key)
    untagged = frame[: -wire.TAG_BYTES]
    state = _LIMITS_STATE if averaged.is_limits else _MODEL_STATE
    store.save_state({state: untagged.hex()})


def kept(store: Store) -> bytes:
    """Return the MODEL frame of the model for the whole fleet, without its tag.

    It is empty if there is none.
    """
    return _frame(store, _MODEL_STATE)


def kept_limits(store: Store) -> bytes:
    """Return the MODEL frame of the limits for the whole fleet, without its tag.

    It is empty if there are none.
    """
    return _frame(store, _LIMITS_STATE)


def _frame(store: Store, state: str) -> bytes:
    digits: str | None = store.state(state)
    return bytes.fromhex(digits or "")


def for_device(frame: bytes, device: int) -> bytes:
    """Return a MODEL frame without a tag, addressed to one device instead of the whole fleet.

    frame: from `kept` or `kept_limits`. Its byte 0 is the type of frame, bytes 1 to 4 are the id of
    the device.
    """
    return frame[:1] + device.to_bytes(4, "little") + frame[5:]
