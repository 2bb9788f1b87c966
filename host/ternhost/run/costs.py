"""What a run costs the devices' privacy: told before it starts, and counted from the rounds of its store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ternhost.count.members import Members, integers
from ternhost.count.questions import cost_of, decode_body
from ternhost.errors import RefusedError
from ternhost.privacy.accounting import Account
from ternhost.privacy.base import MICRO
from ternhost.run.status import Watcher
from ternhost.store.store import Store


def tell(watcher: Watcher, accounts: Sequence[Account], before: int, left: int | None, endless: bool) -> None:
    """Say what a run costs a device, of each class, before anything is asked.

    before, left: the most that a device has spent, and the least that a board says it may still spend, micro-epsilon.
    endless: the accounts are of a round. Raises RefusedError where a budget that was named does not cover it.
    """
    for account in accounts:
        watcher.note(cost_words(account, before, left, endless))
        if account.budget is not None and before + account.user_level > account.budget:
            raise RefusedError(
                f"with the epsilon of {before / MICRO:g} that was spent before, this would cost a client "
                f"{(before + account.user_level) / MICRO:g}, more than its budget of {account.budget / MICRO:g}",
                hint="ask fewer rounds or values, use a smaller epsilon, or raise --budget",
            )
    if left is not None and left < min(account.user_level for account in accounts):
        watcher.warn(f"a board says that an epsilon of {left / MICRO:g} is left: it will refuse the rest")


def spent_before(store: Store, devices: Sequence[int] | npt.NDArray[np.int64], run: str) -> int:
    """The most that any of these devices has spent in the rounds of this store that `run` did not ask, micro-epsilon.

    By the reports that the host has accepted: a device may have spent more on reports that were lost. Of rounds that
    gateways asked it knows no reports, and takes it that every device has answered.
    """
    wanted = Members(np.unique(np.asarray(devices, np.int64)))
    spent = np.zeros(len(wanted), np.int64)
    for asked in store.rounds():
        if asked.run == run:
            continue
        heard = None if store.by_gateways(asked.number) else store.reporters(asked.number)
        for cohort in asked.cohorts:
            ids = integers(cohort.devices)
            at = wanted.find(ids if heard is None else ids[np.isin(ids, heard)])
            spent[at[at >= 0]] += cost_of(decode_body(cohort.body))
    return int(spent.max(initial=0))


def most_asked(store: Store, run: str) -> int:
    """How many rounds of a run have asked one device: the most of any. 0 where its rounds are not in the store."""
    asked: Counter[int] = Counter()
    for of_run in store.rounds():
        if of_run.run == run:
            for cohort in of_run.cohorts:
                asked.update(cohort.devices)
    return max(asked.values(), default=0)


def cost_words(account: Account, before: int, left: int | None, endless: bool = False) -> str:
    """What a run costs a device, before it starts: in the run, and for its life.

    before, left: the most that a device has spent, and the least that a board says it may still spend, micro-epsilon.
    endless: the account is of a round.
    """
    words = account.words("in every round") if endless else account.words()
    if before:
        total = (before + account.user_level) / MICRO
        words += f"; earlier runs cost up to {before / MICRO:g}" + (
            "" if endless else f", {total:g} together"
        )
        if account.budget is not None:
            words += f", of a budget of {account.budget / MICRO:g}"
    if left is not None:
        words += f"; the boards say that {left / MICRO:g} is left"
    return words
