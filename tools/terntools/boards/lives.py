"""What a store knows of a device whose board has no ledger: its budget is for all the lives of its board."""

from __future__ import annotations

from typing import NamedTuple

from ternhost.count.questions import cost_of, decode_body
from ternhost.privacy.base import MICRO
from ternhost.store.store import Store
from ternhost.text import counted
from terntools.boards import update_package

_LEDGER = "ledger of device %d"  # in a store: the budget of the first ledger that was made, micro-epsilon


class Life(NamedTuple):
    """What a device has done, by a store. known: in words; budget, spent: micro-epsilon."""

    known: str
    budget: int | None  # of its first ledger
    spent: int  # at most: it may have paid for every round that asked it, also where no report arrived


def life_of(store: Store, device: int) -> Life | None:
    """All that this store knows of the lives of a device; None for nothing."""
    budget = store.state(_LEDGER % device)
    asked = [each.body for round_ in store.rounds() for each in round_.cohorts if device in each.devices]
    spent = sum(cost_of(decode_body(body)) for body in asked)
    rounds = f"{counted(len(asked), 'round')} that asked it, for epsilon {spent / MICRO:g} at most"
    known = [f"a ledger of epsilon {(budget or 0) / MICRO:g}"] * (budget is not None) + [rounds] * bool(asked)
    known += ["updates of its program"] * (store.state(update_package.STATE % device) is not None)
    return Life(", ".join(known), budget, spent) if known else None


def keep_ledger(store: Store, device: int, budget: int) -> None:
    """Note that a board has a ledger of this budget (micro-epsilon); the first note stays."""
    if store.state(_LEDGER % device) is None:
        store.save_state({_LEDGER % device: budget})
