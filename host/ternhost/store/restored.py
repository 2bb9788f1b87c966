"""Marks a store that was restored from a copy, and so is older than the boards.

The boards have answered questions, and paid for them, that such a store does not know. Three things
follow, and `mark` sees to them:

- The host must ask none of the numbers of these questions again. Nobody can tell it how many there
  were: a device that claims a number may lie. So the host leaves out many more numbers than it
  can have used since the copy was made. If another host gives the numbers, it knows them.
- The boards may have a later key of the fleet. So a new one is made. Each board gets it when the
  host reaches it, and answers with a HELLO, which says what the board has spent in its life.
- What boards had spent at the time of the copy is no longer true. It is forgotten, and unknown
  until the board says it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ternhost.errors import StorageError
from ternhost.store import round_numbers
from ternhost.store.boards import BoardRow
from ternhost.store.fleet_key import rotate_fleet
from ternhost.store.store import Store

_STATE = "restored"  # name in the store's state

SKIPPED_ROUNDS = 1 << 17
"""The least that a restore leaves out of the numbers of rounds.

That is 36 hours of one round a second, or 15 years of one an hour.
"""

_AGE_OF_A_ROUND = 4.0  # seconds
_MOST_FOR_AGE = 1 << 18
"""How many numbers a restore leaves out at most for the age of the copy, one for each four seconds.

If one copy is restored twice, the second restore is of an older copy, and so leaves out the numbers
that were used between the two, too: in the first twelve days, of up to one round in four seconds.

A device takes a number that is at most wire.CLIENT_AHEAD (2**20) beyond its last one, so it may
miss two restores of the oldest copies in a row, or six of copies that are a day old; and there are
numbers for 2,730 of the oldest.
"""


@dataclass(frozen=True)
class Restored:
    """The last restore of a store. Times are in seconds since 1970."""

    saved: float  # when the copy was made
    at: float  # when it was restored
    last_round: int  # the largest number that the copy knew


def mark(store: Store, saved: float, now: float) -> Restored:
    """Mark a store as restored from a copy, before its first use.

    saved: when the copy was made. now: the present time; both in seconds since 1970. Raises
    StorageError if no round numbers or no epochs of a fleet key are left.
    """
    restored = Restored(saved, now, round_numbers.last_number(store))
    with store.transaction():
        if not any(extension.is_numbered_elsewhere(store) for extension in store.extensions()):
            _skip_rounds(store, age=now - saved)
        rotate_fleet(store)
        store.forget_hellos()
        store.save_state({_STATE: asdict(restored)})
    return restored


def _skip_rounds(store: Store, age: float) -> None:
    """Leave out round numbers: so many as a copy of this age, in seconds, requires.

    Raises StorageError if there are not so many.
    """
    for_age = max(0, int(age / _AGE_OF_A_ROUND))  # a clock that was set back makes it negative
    count = SKIPPED_ROUNDS + min(for_age, _MOST_FOR_AGE)
    if not round_numbers.can_skip(store, count):
        raise StorageError(
            "a store with so many rounds cannot be restored: no round numbers are left",
            hint="start a new store, and provision the boards for it",
        )
    round_numbers.skip(store, round_numbers.last_number(store) + count)


def last_restore(store: Store) -> Restored | None:
    """Return the last restore of a store; None if it never was restored."""
    state: dict[str, Any] | None = store.state(_STATE)
    if state is None:
        return None
    return Restored(**state)


def unheard_boards(store: Store) -> Sequence[BoardRow]:
    """Return the boards that have not said what they have spent since a store was restored.

    There are none if the store never was restored.
    """
    if last_restore(store) is None:
        return []
    return [board for board in store.boards() if not board.hello]
