"""The numbers of a store's rounds, which only grow.

A device answers no number twice, and none below its last one. A store that was restored from a
copy lacks the last rounds, so its devices would refuse the next ones. The host does not believe a
device that claims a later round, since a liar could make it use up all numbers. `tern backup
restore` therefore skips many numbers (`restored`). If somebody has copied the store in another way,
the user says with --after-round which rounds to skip.
"""

from tern import wire
from ternhost.errors import UsageError
from ternhost.store.store import Store

_SKIPPED = "skipped"  # name in the store's state: rounds up to this number are not asked


def last_number(store: Store) -> int:
    """Return the largest round number that a store has used or skipped; 0 before the first round."""
    skipped: int = store.state(_SKIPPED) or 0
    return max(store.last_round(), skipped)


def check_skip(store: Store | None, after: int | None) -> int:
    """Return what the last used number will be once all rounds up to `after` are skipped.

    store: the store, or None if it is yet to be made. after: the value of --after-round, or None to
    skip no round. Raises UsageError if `after` is too large: a device refuses a round that is more
    than wire.CLIENT_AHEAD beyond its last one.
    """
    last = 0 if store is None else last_number(store)
    if after is None:
        return last
    # The next round to be asked is the one after `after`: it must still be allowed.
    largest_next = min(last + wire.CLIENT_AHEAD, wire.MAX_ROUND)
    most = largest_next - 1
    if after > most:
        text = f"--after-round must be at most {most}, not {after}: "
        text += f"the store's last round is {last}"
        hint = "a device that claims a round so far away is wrong, or belongs to another fleet"
        raise UsageError(text, hint)
    return max(last, after)


def can_skip(store: Store, count: int) -> bool:
    """Return whether so many more round numbers can be left out, and one remains for a round."""
    return last_number(store) + count < wire.MAX_ROUND


def skip(store: Store, after: int | None) -> None:
    """Never ask the rounds up to the number `after`; None skips none.

    Raises UsageError as `check_skip` does.
    """
    last = check_skip(store, after)
    if last > last_number(store):
        store.save_state({_SKIPPED: last})
