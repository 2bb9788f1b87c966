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
        wakes = store.state(_WAKES) or {}
        if wakes.get(str(device)) != seconds:
            kept = {name: every for name, every in wakes.items() if name != str(device)}
            store.save_state({_WAKES: kept if seconds is None else {**kept, str(device): seconds}})


def wakes(store: Store) -> dict[int, int]:
    """The seconds between wakes, for every device that sleeps."""
    return {int(device): seconds for device, seconds in (store.state(_WAKES) or {}).items()}


def save_heard(store: Store, heard: Mapping[int, float]) -> None:
    """Store the time of the last message of each device (seconds since 1970)."""
    if heard:
        with store.transaction():
            known = store.state(_HEARD) or {}
            store.save_state({_HEARD: known | {str(device): at for device, at in heard.items()}})


def heard(store: Store) -> dict[int, float]:
    """The time of the last message of each device that sleeps (seconds since 1970)."""
    return {int(device): at for device, at in (store.state(_HEARD) or {}).items()}


def least_deadline(seconds: Iterable[int]) -> int:
    """Seconds until every device with these wake intervals has had a chance to answer a round; 0
    without any.
    """
    longest = max(seconds, default=0)
    return math.ceil((1 + _DRIFT) * longest) + _AWAKE if longest else 0
