"""An optimiser of another package: Adam whose steps do not grow again (Reddi, Kale, Kumar, ICLR
2018).
"""

import numpy as np

from ternhost.learn.models.optimisers import Adam, read_vectors


class AmsGrad(Adam):
    def __init__(self, dimension):
        super().__init__(dimension)
        self._largest = np.zeros(dimension)

    def step(self, gradient, rate):
        self._square = self._largest = np.maximum(self._largest, self._square)
        super().step(gradient, rate)

    def state(self):
        return {**super().state(), "largest": self._largest.tolist()}

    def restore(self, state):
        super().restore(state)
        (self._largest,) = read_vectors(state, len(self.weights), "largest")
