"""A meter of another package: recordings as JSON lines, one for each sample."""

import json

import numpy as np

from ternbench.meters import METERS
from ternbench.meters.recording import Recording
from ternbench.traces import Trace


class JsonLines(Recording):
    """Lines such as {"s": 0.001, "A": 0.012, "V": 3.3, "marker": false}."""

    def read(self):
        samples = [json.loads(line) for line in self.path.read_text().splitlines()]
        return Trace(
            seconds=np.array([sample["s"] for sample in samples]),
            amperes=np.array([sample["A"] for sample in samples]),
            volts=np.array([sample["V"] for sample in samples]),
            marker=np.array([sample["marker"] for sample in samples]),
        )


METERS.register("jsonl", JsonLines)
