"""The numbers of a store's rounds, which only grow: a device answers no number twice, and none
below its last one. The host believes no device that claims a later round: a liar would make it use
up the numbers. After a store was restored from a copy, the user says where to go on
(--after-round).
"""

from tern import wire
from ternhost.errors import UsageError
from ternhost.store.store import Store

_SKIPPED = "skipped"  # state of a store: rounds up to this one are not asked


def last_number(store: Store) -> int:
    """The largest number that a store has used or skipped; 0 before the first."""
    return max(store.last_round(), store.state(_SKIPPED) or 0)


def check_skip(store: Store | None, after: int | None) -> int:
    """The last number once those up to `after` are skipped.

    Raises UsageError for a number that is too far ahead.
    """
    last = 0 if store is None else last_number(store)
    most = min(last + wire.CLIENT_AHEAD, wire.MAX_ROUND) - 1  # the round after it is asked
    if after is not None and after > most:
        text = (
            f"--after-round must be at most {most}, not {after}: the store's last round is {last}"
        )
        raise UsageError(
            text, "a device that tells of a round so far away lies, or is of another fleet"
        )
    return max(last, after or 0)


def skip(store: Store, after: int | None) -> None:
    """Ask no round up to `after` from now on. Raises UsageError as `check_skip` does."""
    last = check_skip(store, after)
    if last > last_number(store):
        store.save_state({_SKIPPED: last})
