"""A fleet in a few figures, from the unverified reports of its boards about themselves."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.ledger import MAX_BUDGET, RHO
from ternhost.privacy.base import MICRO
from ternhost.privacy.sums import epsilon_of
from ternhost.store.boards import BoardRow
from ternhost.text import visible

# Upper bounds of the time since the last message of a board, seconds; OLDER is beyond all of them.
AGES = {"1m": 60, "10m": 600, "1h": 3600, "1d": 86_400}
OLDER = "older"
FAILED, OTHER = "failed", "other"
_GENERATORS = {wire.FAILED: FAILED, wire.CTR_DRBG: "CTR_DRBG", wire.HASH_DRBG: "Hash_DRBG"}
_MOST_VALUES = 20
_DELTA = 1e-6  # of budgets in rho
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class FleetView:
    """Numbers of boards, by what they say or how they are."""

    ages: Mapping[str, int]  # by the time since their last message
    states: Mapping[str, int]  # by connection state
    releases: Mapping[str, int]
    generators: Mapping[str, int]  # "failed": a health test of its source has failed
    errors: Mapping[str, int]  # by their last error
    least_budget: float | None  # least epsilon left on a board heard within a day

    @property
    def boards(self) -> int:
        """The number of all boards."""
        return sum(self.states.values())


def states(boards: Sequence[BoardRow]) -> dict[str, int]:
    """The numbers of connected and of disconnected boards."""
    online = sum(board.online for board in boards)
    return {"online": online, "offline": len(boards) - online}


def fleet_of(boards: Sequence[BoardRow], now: float) -> FleetView:
    """Count boards by age, state, release, random generator and last error.

    now: seconds since 1970.
    """
    ages = dict.fromkeys((*AGES, OLDER), 0)
    releases: Counter[str] = Counter()
    generators = dict.fromkeys(_GENERATORS.values(), 0)
    errors: Counter[str] = Counter()
    for board in boards:
        ages[_age(now - board.heard)] += 1
        release = board.hello.get("release")
        if release is not None:
            releases[str(release)] += 1
        name = generator(board)
        if name is not None:
            generators[name] = generators.get(name, 0) + 1
        if board.error is not None:
            errors[board.error] += 1
    return FleetView(
        ages=ages,
        states=states(boards),
        releases=_most_frequent(releases),
        generators=generators,
        errors=_most_frequent(errors),
        least_budget=least_budget(boards, now),
    )


def _age(seconds: float) -> str:
    """Return the name of the shortest of `AGES` that this many seconds do not exceed, or OLDER."""
    for age, upper_bound in AGES.items():
        if seconds <= upper_bound:
            return age
    return OLDER


def generator(board: BoardRow) -> str | None:
    """The random generator that a board reports, FAILED or OTHER; None where it reports none."""
    code = board.hello.get("entropy")
    return None if code is None else _GENERATORS.get(code, OTHER)


def failed(board: BoardRow) -> bool:
    """Whether a board reports that its random generator has failed."""
    return board.hello.get("entropy") == wire.FAILED


def budget(board: BoardRow) -> float | None:
    """Return the epsilon left to a board's first device, or None where the board reports no budget.

    The rho of a ledger in rho is converted to the epsilon at delta 1e-6.
    """
    micro_left = board.budget_left
    if micro_left is None:
        return None
    if board.measure == RHO and micro_left:
        # Interpolated in a table, since the conversion is slow and fleets are large.
        epsilon: float = math.exp(float(np.interp(math.log(micro_left), *_epsilons())))
        return epsilon
    return micro_left / MICRO


@lru_cache(maxsize=1)
def _epsilons() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return a table for interpolation: the logarithms of micro-rho, and those of their epsilons."""
    rhos = np.geomspace(1, MAX_BUDGET, 100).astype(np.int64)
    return np.log(rhos), np.log([epsilon_of(int(rho), _DELTA) for rho in rhos])


def budgets(boards: Sequence[BoardRow], now: float) -> list[float]:
    """Return the epsilons left on the boards heard within a day, in ascending order."""
    recent = (budget(board) for board in boards if now - board.heard <= AGES["1d"])
    return sorted(left for left in recent if left is not None)


def least_budget(boards: Sequence[BoardRow], now: float) -> float | None:
    """The least budget left on boards heard within a day; None where none reports one."""
    return next(iter(budgets(boards, now)), None)


def worst(boards: Sequence[BoardRow], now: float, count: int) -> list[BoardRow]:
    """Return the `count` boards that need attention first.

    Boards with a failed random generator come first, then offline boards, then those with most
    errors, then those with the smallest budget.
    """

    def order(board: BoardRow) -> tuple[bool, bool, int, float]:
        """Return the sort key of a board: False sorts before True."""
        budget_left = budget(board)
        if budget_left is None:
            budget_left = float("inf")
        return not failed(board), board.online, -board.errors, budget_left

    return sorted(boards, key=order)[:count]


def _most_frequent(counts: Counter[str]) -> dict[str, int]:
    """Return the most frequent values with their counts, and the sum of the others as OTHER.

    The number and the length of values are limited: boards may report anything.
    """
    frequent: dict[str, int] = {}
    for value, count in counts.most_common():
        name = visible(value)[:_LONGEST_VALUE]
        if name not in frequent and len(frequent) >= _MOST_VALUES:
            name = OTHER
        frequent[name] = frequent.get(name, 0) + count
    return frequent
