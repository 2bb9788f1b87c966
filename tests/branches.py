"""Walks over every branch of random choices, to get the exact law of what they lead to."""

from collections import Counter
from contextlib import suppress


class LeftOut(Exception):
    """A branch that does not count."""


class Branch:
    """One branch of a tree of random choices."""

    def __init__(self, path, waiting, least):
        self._path, self._waiting, self._least = path, waiting, least
        self._depth = 0
        self.weight = 1

    def choose(self, weights):
        """An index of `weights`, each with its probability."""
        if self._depth == len(self._path):
            likely = [i for i, weight in enumerate(weights) if self.weight * weight > self._least]
            if not likely:
                raise LeftOut
            first, *others = likely
            self._waiting += [[*self._path, other] for other in others]
            self._path.append(first)
        chosen = self._path[self._depth]
        self.weight *= weights[chosen]
        self._depth += 1
        return chosen


def walk(run, least=0):
    """The law of run(choose), as probabilities by result, from all branches that are more likely
    than `least`.
    """
    law, waiting = Counter(), [[]]
    while waiting:
        branch = Branch(waiting.pop(), waiting, least)
        with suppress(LeftOut):
            law[run(branch.choose)] += branch.weight
    return law
