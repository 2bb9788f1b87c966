"""Devices that sleep: their wake intervals, when each was heard last, and the least deadline to
reach them all.
"""

import math
from collections.abc import Iterable, Mapping

from ternhost.store.store import Store

LONGEST = 86_400  # seconds from one wake to the next

# Seconds that a wake adds to the sleep at most: joining Wi-Fi with a retry, the handshake, the
# slot, a lost connection.
_AWAKE = 60
# A sleep is timed by the ESP32's RC oscillator, which drifts with temperature (assumed here: 5 %).
_DRIFT = 0.05

_WAKES = "wakes"  # of a store: {device: seconds between wakes}
_HEARD = "heard"  # {device: seconds since 1970}; of devices that sleep


def set_wake(store: Store, device: int, seconds: int | None) -> None:
    """Store the seconds between two wakes of a device; None: it does not sleep."""
    with store.transaction():
        by_device = store.state(_WAKES) or {}
        if by_device.get(str(device)) == seconds:
            return
        by_device.pop(str(device), None)
        if seconds is not None:
            by_device[str(device)] = seconds
        store.save_state({_WAKES: by_device})


def wakes(store: Store) -> dict[int, int]:
    """Return the seconds between two wakes of every device that sleeps."""
    by_device = store.state(_WAKES) or {}
    return {int(device): seconds for device, seconds in by_device.items()}


def save_heard(store: Store, heard: Mapping[int, float]) -> None:
    """Store the time of the last message of each device (seconds since 1970)."""
    if not heard:
        return
    with store.transaction():
        by_device = store.state(_HEARD) or {}
        for device, at in heard.items():
            by_device[str(device)] = at
        store.save_state({_HEARD: by_device})


def heard(store: Store) -> dict[int, float]:
    """Return when each device that sleeps was heard last, in seconds since 1970."""
    by_device = store.state(_HEARD) or {}
    return {int(device): at for device, at in by_device.items()}


def least_deadline(seconds: Iterable[int]) -> int:
    """Return the seconds until every sleeping device has had a chance to answer a round.

    seconds: between two wakes of each device. The result is 0 if there is no device.
    """
    longest = max(seconds, default=0)
    if not longest:
        return 0
    return math.ceil((1 + _DRIFT) * longest) + _AWAKE
