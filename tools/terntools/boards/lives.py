"""What a store knows of a device whose board has no ledger: its budget is for all the lives of its board."""

from __future__ import annotations

from dataclasses import dataclass

from ternhost.count.questions import cost_of, decode_body
from ternhost.privacy.base import MICRO
from ternhost.store.store import Store
from ternhost.text import counted
from terntools.boards import update_package

_LEDGER = "ledger of device %d"  # in a store: the budget of the first ledger that was made, micro-epsilon


@dataclass(frozen=True)
class Life:
    """What a device has done, by a store. budget, spent: micro-epsilon."""

    budget: int | None  # of its first ledger
    rounds: int  # that asked it
    spent: int  # at most: it may have paid for every round that asked it, also where no report arrived
    updated: bool  # whether a package was made for it

    def __bool__(self) -> bool:
        return bool(self.budget or self.rounds or self.updated)

    def text(self) -> str:
        parts = [f"a ledger of epsilon {self.budget / MICRO:g}"] if self.budget else []
        asked = f"{counted(self.rounds, 'round')} that asked it, for epsilon {self.spent / MICRO:g} at most"
        return ", ".join([*parts, *[asked] * bool(self.rounds), *["updates of its program"] * self.updated])


def life_of(store: Store, device: int) -> Life:
    """All that this store knows of the lives of a device."""
    asked = [
        cohort.body for each in store.rounds() for cohort in each.cohorts if device in cohort.devices
    ]  # by round: one device is in one cohort
    spent = sum(cost_of(decode_body(body)) for body in asked)
    return Life(store.state(_LEDGER % device), len(asked), spent, update_package.numbered(store, device))


def keep_ledger(store: Store, device: int, budget: int) -> None:
    """Note that a board has a ledger of this budget (micro-epsilon); the first note stays."""
    if store.state(_LEDGER % device) is None:
        store.save_state({_LEDGER % device: budget})
