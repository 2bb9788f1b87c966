"""Devices that sleep: how often they wake, when each was heard last, and how long a round must wait."""

import math
from collections.abc import Iterable, Mapping

from ternhost.store.store import Store

LONGEST = 86_400  # the longest time from one wake to the next, in seconds

# The seconds that a device may need after it wakes until it has answered: joining Wi-Fi with a
# retry, the handshake, its turn to send, a lost connection.
_AWAKE = 60
# A sleep is timed by the ESP32's RC oscillator, which drifts with temperature (assumed here: 5 %).
_DRIFT = 0.05

# Names in the store's state. JSON has only texts as keys, so the ids of devices are texts there.
_WAKES = "wakes"  # {device: seconds from one wake to the next}
_HEARD = "heard"  # {device: when it was last heard, in seconds since 1970}; only those that sleep


def set_wake(store: Store, device: int, seconds: int | None) -> None:
    """Store how often a device wakes.

    seconds: from one wake to the next, or None if the device does not sleep.
    """
    device_key = str(device)
    with store.transaction():
        seconds_by_device = store.state(_WAKES) or {}
        if seconds_by_device.get(device_key) == seconds:
            return  # nothing to write
        if seconds is None:
            del seconds_by_device[device_key]
        else:
            seconds_by_device[device_key] = seconds
        store.save_state({_WAKES: seconds_by_device})


def wakes(store: Store) -> dict[int, int]:
    """Return the seconds from one wake to the next of every device that sleeps."""
    seconds_by_device = store.state(_WAKES) or {}
    return {int(device): seconds for device, seconds in seconds_by_device.items()}


def save_heard(store: Store, heard: Mapping[int, float]) -> None:
    """Store when the last message of each of these devices came (seconds since 1970)."""
    if not heard:
        return
    with store.transaction():
        time_by_device = store.state(_HEARD) or {}
        for device, when in heard.items():
            time_by_device[str(device)] = when
        store.save_state({_HEARD: time_by_device})


def heard(store: Store) -> dict[int, float]:
    """Return when each device that sleeps was heard last, in seconds since 1970."""
    time_by_device = store.state(_HEARD) or {}
    return {int(device): when for device, when in time_by_device.items()}


def least_deadline(seconds: Iterable[int]) -> int:
    """Return how long a round must stay open so that every sleeping device can answer, in seconds.

    seconds: from one wake to the next, of each device. The result is 0 if there is no device.
    """
    longest_sleep = max(seconds, default=0)
    if longest_sleep == 0:
        return 0
    longest_with_drift = (1 + _DRIFT) * longest_sleep
    return math.ceil(longest_with_drift) + _AWAKE
