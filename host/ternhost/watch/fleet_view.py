"""A fleet in a few figures, from the unverified reports of its boards about themselves."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tern import wire
from tern.ledger import MAX_BUDGET, RHO
from ternhost.privacy.base import MICRO
from ternhost.privacy.sums import epsilon_of
from ternhost.store.boards import BoardRow
from ternhost.text import visible

# Boards are counted by the time since their last message. These are the upper bounds in seconds, by
# name; OLDER is beyond all of them.
AGES = {"1m": 60, "10m": 600, "1h": 3600, "1d": 86_400}
OLDER = "older"
FAILED, OTHER = "failed", "other"
# The random generators of boards, by the code that they report; FAILED if a health test has failed.
_GENERATORS = {wire.FAILED: FAILED, wire.CTR_DRBG: "CTR_DRBG", wire.HASH_DRBG: "Hash_DRBG"}
_MOST_VALUES = 20  # different values that are counted by themselves
_LONGEST_VALUE = 60  # characters of a value
_PROGRAM = "program "  # before the name of the program in the text of a HELLO
_DELTA = 1e-6  # at which a budget in rho is converted to epsilon


@dataclass(frozen=True)
class FleetView:
    """How many boards of a fleet are in which state, and have reported which values."""

    ages: Mapping[str, int]  # by the time since their last message, in the classes of AGES
    states: Mapping[str, int]  # by connection state: online or offline
    releases: Mapping[str, int]  # by the release of their software
    generators: Mapping[str, int]  # by random generator; "failed": its source failed a health test
    errors: Mapping[str, int]  # by their last error
    least_budget: float | None  # the least epsilon that is left on a board heard within a day

    @property
    def boards(self) -> int:
        """The number of all boards."""
        return sum(self.states.values())


def states(boards: Sequence[BoardRow]) -> dict[str, int]:
    """Return how many boards are connected ("online"), and how many are not ("offline")."""
    online = sum(board.online for board in boards)
    return {"online": online, "offline": len(boards) - online}


def fleet_of(boards: Sequence[BoardRow], now: float) -> FleetView:
    """Count boards by the time since they were heard, state, release, random generator and error.

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
        generator_name = generator(board)
        if generator_name is not None:
            count_so_far = generators.get(generator_name, 0)  # OTHER is not among _GENERATORS
            generators[generator_name] = count_so_far + 1
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
    """Return the class of a time since the last message: the first of AGES that holds it, or OLDER."""
    for age, upper_bound in AGES.items():
        if seconds <= upper_bound:
            return age
    return OLDER


def generator(board: BoardRow) -> str | None:
    """Return the random generator that a board reports: a name, FAILED or OTHER.

    The result is None if the board does not report its generator.
    """
    code = board.hello.get("entropy")
    if code is None:
        return None
    return _GENERATORS.get(code, OTHER)


class Software(NamedTuple):
    """What runs on a board; a part that the board does not name is None."""

    library: str | None  # the release of the device library
    program: str | None  # the name of the user's program, and its version
    interpreter: str | None  # such as "micropython 1.28.0"
    machine: str | None  # the kind of the board, such as "rp2040"


def software(board: BoardRow) -> Software:
    """Return what runs on a board, by the text of its HELLO (wire.md).

    The text is "machine; interpreter; tern version; ...". A user's program may send another text, so
    only parts of the known form are believed.
    """
    parts = str(board.hello.get("text") or "").split("; ")
    release = board.hello.get("release")
    program = None
    for part in parts:
        if part.startswith(_PROGRAM):
            program = part.removeprefix(_PROGRAM)
    has_known_form = len(parts) >= 3 and parts[2].startswith("tern ")
    return Software(
        library=None if release is None else f"tern {release}",
        program=program,
        interpreter=parts[1] if has_known_form else None,
        machine=parts[0] if has_known_form else None,
    )


def failed(board: BoardRow) -> bool:
    """Return whether a board reports that its random generator has failed a health test."""
    return board.hello.get("entropy") == wire.FAILED


def budget(board: BoardRow) -> float | None:
    """Return the epsilon that is left to a board's first device; None if the board does not say.

    If the device counts in rho (zCDP), the result is the epsilon of the rest at delta 1e-6.
    """
    return _epsilon(board, board.budget_left)


def allowance(board: BoardRow) -> float | None:
    """Return the epsilon that a board's first device may spend in its life, by its ledger.

    The result is None if the board does not say it, and for a device that counts in rho the epsilon
    at delta 1e-6.
    """
    return _epsilon(board, board.allowance)


def delta_of(board: BoardRow) -> float:
    """Return the delta at which the epsilons of a board hold: 0 if its ledger counts epsilon."""
    return _DELTA if board.measure == RHO else 0.0


def _epsilon(board: BoardRow, micro: int | None) -> float | None:
    """Convert an amount in a board's ledger, in millionths of its measure, into an epsilon."""
    if micro is None:
        return None
    counts_in_rho = board.measure == RHO
    if counts_in_rho and micro > 0:
        # The conversion is slow and fleets are large, so it is interpolated in a table.
        log_rhos, log_epsilons = _epsilons_of_rhos()
        log_epsilon = float(np.interp(math.log(micro), log_rhos, log_epsilons))
        return math.exp(log_epsilon)
    return micro / MICRO


@lru_cache(maxsize=1)
def _epsilons_of_rhos() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return a table for interpolation between 100 values of rho, from a millionth to the largest.

    The first array has the logarithms of the rhos in millionths, the second one those of their
    epsilons at delta 1e-6.
    """
    micro_rhos = np.geomspace(1, MAX_BUDGET, 100).astype(np.int64)
    epsilons = [epsilon_of(int(micro_rho), _DELTA) for micro_rho in micro_rhos]
    return np.log(micro_rhos), np.log(epsilons)


def budgets(boards: Sequence[BoardRow], now: float) -> list[float]:
    """Return the epsilons that are left on the boards heard within a day, in ascending order.

    now: seconds since 1970.
    """
    epsilons = []
    for board in heard_within_a_day(boards, now):
        epsilon_left = budget(board)
        if epsilon_left is not None:
            epsilons.append(epsilon_left)
    return sorted(epsilons)


def heard_within_a_day(boards: Sequence[BoardRow], now: float) -> list[BoardRow]:
    """Return the boards that were heard within a day. now: seconds since 1970."""
    return [board for board in boards if now - board.heard <= AGES["1d"]]


def poorest(boards: Sequence[BoardRow]) -> BoardRow | None:
    """Return the board that has the least epsilon left; None if no board tells its budget."""
    with_budget = [board for board in boards if board.budget_left is not None]

    def left(board: BoardRow) -> float:
        """Return what is left of a budget that is known."""
        return budget(board) or 0.0

    return min(with_budget, key=left, default=None)


def least_budget(boards: Sequence[BoardRow], now: float) -> float | None:
    """Return the least epsilon that is left on a board heard within a day; None if none says so.

    now: seconds since 1970.
    """
    epsilons = budgets(boards, now)
    return epsilons[0] if epsilons else None


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
