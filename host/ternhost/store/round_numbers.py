"""The numbers of a store's rounds, which only grow.

A device answers no number twice, and none below its last one. The host believes no device that
claims a later round: a liar would make it use up the numbers. After a store was restored from a
copy, the user says where to go on (--after-round).
"""

from tern import wire
from ternhost.errors import UsageError
from ternhost.store.store import Store

_SKIPPED = "skipped"  # state of a store: rounds up to this one are not asked


def last_number(store: Store) -> int:
    """Return the largest number that a store has used or skipped; 0 before the first round."""
    return max(store.last_round(), store.state(_SKIPPED) or 0)


def check_skip(store: Store | None, after: int | None) -> int:
    """Return what the last number will be once the rounds up to `after` are skipped.

    store: None: it is yet to be made. after: None: no round is skipped. Raises UsageError if
    `after` is too far ahead for devices, which refuse a round far beyond their last one.
    """
    last = 0 if store is None else last_number(store)
    if after is None:
        return last
    most = min(last + wire.CLIENT_AHEAD, wire.MAX_ROUND) - 1  # the round after it is asked
    if after > most:
        text = f"--after-round must be at most {most}, not {after}: "
        text += f"the store's last round is {last}"
        hint = "a device that tells of a round so far away lies, or is of another fleet"
        raise UsageError(text, hint)
    return max(last, after)


def skip(store: Store, after: int | None) -> None:
    """Skip the rounds up to `after` from now on. Raises UsageError as `check_skip` does."""
    last = check_skip(store, after)
    if last > last_number(store):
        store.save_state({_SKIPPED: last})
