"""A fleet in a few figures, by what its boards say of themselves: nothing of that is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tern import wire
from ternhost.privacy.base import MICRO
from ternhost.store.boards import BoardRow
from ternhost.store.snapshot import GatewayView
from ternhost.text import visible

# Within how many seconds a board was heard; OLDER beyond all of them.
AGES = {"1m": 60, "10m": 600, "1h": 3600, "1d": 86_400}
OLDER = "older"
FAILED, OTHER = "failed", "other"
_GENERATORS = {wire.FAILED: FAILED, wire.CTR_DRBG: "CTR_DRBG", wire.HASH_DRBG: "Hash_DRBG"}
_MOST_VALUES = 20
_LONGEST_VALUE = 60


@dataclass(frozen=True)
class FleetView:
    """How many boards there are by the time since they were heard, by whether they are connected, by release, random
    generator ("failed": a health test of its source has failed) and last error.

    least_budget: the least epsilon that is left (`budget`) on one that was heard within a day.
    """

    ages: Mapping[str, int]
    states: Mapping[str, int]
    releases: Mapping[str, int]
    generators: Mapping[str, int]
    errors: Mapping[str, int]
    least_budget: float | None

    @property
    def boards(self) -> int:
        return sum(self.states.values())


def states(of: Sequence[BoardRow] | Sequence[GatewayView]) -> dict[str, int]:
    """How many are connected, and how many are not."""
    online = sum(own.online for own in of)
    return {"online": online, "offline": len(of) - online}


def fleet_of(boards: Sequence[BoardRow], now: float) -> FleetView:
    """These boards at a time, seconds since 1970."""
    ages = dict.fromkeys((*AGES, OLDER), 0)
    for board in boards:
        ages[age_of(board, now)] += 1
    told = [board.told for board in boards]
    generators = Counter(name for board in boards if (name := generator(board)) is not None)
    return FleetView(
        ages,
        states(boards),
        _most(Counter(str(own["release"]) for own in told if own.get("release") is not None)),
        dict.fromkeys(_GENERATORS.values(), 0) | dict(generators),
        _most(Counter(board.error for board in boards if board.error is not None)),
        least_budget(boards, now),
    )


def age_of(board: BoardRow, now: float) -> str:
    """The class of AGES that a board is in, or OLDER."""
    return next((age for age, most in AGES.items() if now - board.heard <= most), OLDER)


def generator(board: BoardRow) -> str | None:
    """The random generator that a board says it uses, FAILED or OTHER; None where it does not say."""
    told = board.told.get("entropy")
    return None if told is None else _GENERATORS.get(told, OTHER)


def failed(board: BoardRow) -> bool:
    """Whether a board says that its random generator has failed."""
    return board.told.get("entropy") == wire.FAILED


def budget(board: BoardRow) -> float | None:
    """The epsilon left to its first device: as the board said when it connected, less what its reports cost since.

    Less is left where it has paid for reports that did not arrive. None where it does not say.
    """
    micro = board.told.get("budget")
    return None if micro is None else max(0, micro - board.spent) / MICRO


def budgets(boards: Sequence[BoardRow], now: float) -> list[float]:
    """What is left on those heard within a day that tell it, the least first."""
    told = (budget(board) for board in boards if now - board.heard <= AGES["1d"])
    return sorted(left for left in told if left is not None)


def least_budget(boards: Sequence[BoardRow], now: float) -> float | None:
    """The least of those heard within a day; None where none tells it."""
    return next(iter(budgets(boards, now)), None)


def worst(boards: Sequence[BoardRow], now: float, most: int) -> list[BoardRow]:
    """The boards to see to first: generator failed, offline, failed most often, smallest budget."""

    def order(board: BoardRow) -> tuple[bool, bool, int, float]:
        left = budget(board)
        return not failed(board), board.online, -board.errors, float("inf") if left is None else left

    return sorted(boards, key=order)[:most]


def _most(counted: Counter[str]) -> dict[str, int]:
    """The values that most boards have, and how many have others: a board that lies makes no more of them."""
    found: dict[str, int] = {}
    for value, count in counted.most_common():
        name = visible(value)[:_LONGEST_VALUE]
        if name not in found and len(found) >= _MOST_VALUES:
            name = OTHER
        found[name] = found.get(name, 0) + count
    return found
