"""The exact distribution of the symbols that the firmware's sampler draws: of the code itself, not
of a formula.

`outputs` runs the sampler down every branch of its random draws.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from tern import sampler
from tern.card import LAPLACE, TABLE, WINDOW, Card
from tern.entropy import SLACK, Stream
from ternhost.privacy import laws

UNDECIDED = -1
_LONGEST = 24  # bytes of a branch; every card shape that can be enumerated decides far earlier


class OutOfBytes(Exception):
    """A branch has no more bytes."""


class Branch(Stream):
    """The bytes of one branch of a sampler's draws; a request for more raises OutOfBytes."""

    def __init__(self) -> None:
        super().__init__(bytearray(_LONGEST + SLACK))

    def begin(self, size: int) -> None:
        """Let the first `size` bytes of the pool be read."""
        self.cursor[0] = 0
        self.cursor[1] = size

    def refill(self) -> None:
        raise OutOfBytes


# Draws one symbol from a branch, or lets it raise OutOfBytes.
Draw = Callable[[Branch], int]


def outputs(card: Card, v: int, draw: Draw | None = None) -> list[Fraction]:
    """The exact distribution of the symbols that the firmware's sampler draws for the Q1.14 input
    `v`.

    The sampler runs on every finite string of bytes that decides its output: a string of n bytes
    has probability 256**-n. Where a string does not suffice, the sampler runs on each of the 256
    longer strings.

    The only endless part is a rejection loop, the `uniform(n)` of window cards: a rejected byte
    leads back to the same state. It shows in the outputs of the 256 next bytes: at least three
    different ones, equally often, and all other bytes undecided (only a uniform draw of n >= 3 with
    rejection does so; a comparison with a threshold has at most two outputs). The first undecided
    byte is then walked once more, must give the same outputs, and stands for the others; the loop
    is solved exactly: P(output) = bytes that give it / bytes that decide.

    `draw` replaces the sampler, for instance to enumerate a draw by category. Raises ValueError for
    laplace cards, whose sampler has no finite depth.

    Cost: about 1.5 us a draw. A table card takes a thousand draws for each threshold, a window card
    at its ends some 100,000, and 512 times as many between window starts, which is too many to
    walk.
    """
    if card.shape == LAPLACE:
        raise ValueError("a laplace sampler reads without bound: it cannot be enumerated")
    weights = _Walk(draw or _sampler(card, v)).node(0)
    return [weights.get(symbol, Fraction(0)) for symbol in range(card.symbols)]


def _sampler(card: Card, v: int) -> Draw:
    xs, out, job = array("h", (v,)), array("H", (0,)), getattr(card, "job", None)
    if job is None:  # a mixture

        def mixed(branch: Branch) -> int:
            sampler.sample(card, branch, xs, out, 1)
            return out[0]

        return mixed
    leaf = {TABLE: sampler.table, WINDOW: sampler.window}[card.shape]

    def single(branch: Branch) -> int:  # as `sample`, without a call and an exception for each draw
        job[0], job[1], job[2], job[3] = 0, 1, 0, branch.cursor[1]
        leaf(xs, out, branch.pool, job)
        return out[0] if job[0] else UNDECIDED

    return single


class _Walk:
    def __init__(self, draw: Draw) -> None:
        self._draw, self._branch = draw, Branch()
        self._loops: dict[tuple[int, ...], dict[int, Fraction]] = {}

    def node(self, depth: int) -> dict[int, Fraction]:
        """The distribution over the symbols, given the first `depth` bytes in the pool."""
        answers = self._answers(depth)
        loop = self._loop(answers, depth)
        if loop is not None:
            return loop
        total: dict[int, Fraction] = {}
        below: Counter[int] = Counter()  # undecided bytes, by the loop that they lead to
        loops: dict[int, dict[int, Fraction]] = {}
        for byte, answer in enumerate(answers):
            if answer != UNDECIDED:
                total[answer] = total.get(answer, 0) + Fraction(1, 256)
                continue
            self._branch.pool[depth] = byte
            distribution = self.node(depth + 1)
            below[id(distribution)] += 1
            loops[id(distribution)] = distribution
        for key, times in below.items():
            for symbol, p in loops[key].items():
                total[symbol] = total.get(symbol, 0) + p * times / 256
        return total

    def _answers(self, depth: int) -> tuple[int, ...]:
        """The symbol for each next byte; UNDECIDED where the sampler needs more bytes."""
        if depth >= _LONGEST:
            raise ValueError("the sampler reads without bound")
        branch, draw = self._branch, self._draw
        pool, cursor = branch.pool, branch.cursor
        answers = []
        for byte in range(256):
            pool[depth] = byte
            cursor[0], cursor[1] = 0, depth + 1
            try:
                answers.append(draw(branch))
            except OutOfBytes:
                answers.append(UNDECIDED)
        return tuple(answers)

    def _loop(self, answers: tuple[int, ...], depth: int) -> dict[int, Fraction] | None:
        known = self._loops.get(answers)
        if known is not None:
            return known
        decided = Counter(a for a in answers if a != UNDECIDED)
        undecided = 256 - sum(decided.values())
        if len(decided) < 3 or not undecided or len(set(decided.values())) != 1:
            return None
        self._branch.pool[depth] = answers.index(UNDECIDED)
        if self._answers(depth + 1) != answers:
            return None
        self._loops[answers] = {
            symbol: Fraction(n, 256 - undecided) for symbol, n in decided.items()
        }
        return self._loops[answers]


def likelihood_ratio(card: Card) -> Fraction:
    """The exact e**epsilon of the integers of a card (not laplace); for a hierarchy, of level and
    value together.
    """
    return max(ratio_of(part.rows.tolist()) for part in laws.parts(card))


def ratio_of(distributions: Sequence[Sequence[Fraction]]) -> Fraction:
    """The largest ratio of an output's probabilities under two of these distributions."""
    columns = [column for column in zip(*distributions, strict=True) if max(column)]
    return max((Fraction(max(column)) / min(column) for column in columns), default=Fraction(1))
