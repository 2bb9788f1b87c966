"""What both learners of one answer of each device have in common."""

from typing import Any, ClassVar

import numpy as np

from ternhost.datasets import Indices
from ternhost.learn import public
from ternhost.learn.direct_options import Options
from ternhost.learn.learning import Learning


class DirectLearning(Learning):
    """The base of learners that ask each device once, in a few rounds.

    A subclass counts the rounds in `_round`.
    """

    name = "direct"
    Options: ClassVar[Any] = Options

    _round: int  # how many have ended

    def _public_rows(self) -> public.PublicRows:
        """Return features of records that everybody may know, to stand for those of the devices.

        They are the rows that the user names, else those that the data set declares to be public,
        unless the devices are to report their features instead. The result also says which records
        of the data set they are, since no device may hold these.
        """
        text = self.options.public  # a file, a number of records, "none", or "" if not named
        devices_report_features = self.options.moments is not None
        if not text:
            text = "none"
            if not devices_report_features:
                text = public.declared(self.dataset)
        return public.parse(
            text, self.dataset, d=self._feature_count(), seed=self.options.seed, schema=self.schema
        )

    def _group_of_served(self, clients: int) -> Indices:
        """Return which clients of a served fleet the next round asks, as numbers from 0.

        They are drawn at random from those that have not answered. clients: how many these are.
        """
        schedule = self._population.schedule
        assert schedule is not None
        order = np.random.default_rng([self.options.seed, self._round]).permutation(clients)
        # A share of the fleet, not of those that are left.
        group_size = schedule.group(max(clients, self._population.devices))
        return np.sort(order[:group_size])

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    def optimisation(self) -> dict[str, Any]:
        """Return how the model was updated, for JSON.

        It is the optimiser, its learning rate if there was one, and why the training stopped.
        """
        stopped = None
        if self.done:
            stopped = "rounds"
        return {"stopped": stopped, "optimiser": "direct", "rate": None}
