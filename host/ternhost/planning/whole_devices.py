"""Simulates the unit device: reports that each protect all records of a device together.

Devices hold several records each. They answer as `tern train` asks them: each answers once, or a
few times, about all of its records (`tern train direct`), or, for an SVM or a model of too many
weights, in rounds (`tern train fedsgd`).
"""

from dataclasses import dataclass, replace
from typing import Any

from ternhost.datasets import Dataset
from ternhost.datasets.holdings import Holdings, deal
from ternhost.learn import choice
from ternhost.learn.base import Population
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.models.learning import Learning
from ternhost.learn.one_answer.direct import Direct
from ternhost.privacy.base import MICRO

MOST_HELD = 10_000_000  # records of all devices of a plan together


@dataclass(frozen=True)
class WholeDevices:
    """Devices that hold several records each, and the reports that they make.

    - devices: how many there are
    - records: the most records of a device; None: as many as its owner has in the data
    - epsilon: of a report, in millionths
    - reports: of each device
    - options: further options of the learner by name, such as the data, `public` and `threshold`;
      of these, fedsgd takes no `public`
    """

    devices: int
    records: int | None
    epsilon: int
    reports: int = 1
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def epsilon_text(self) -> str:
        """The epsilon of a report as text, such as 2.5."""
        return epsilon_text(self.epsilon)

    def learner_class(self, data: Dataset, model: str) -> type[Learning]:
        """Return the class of the learner that `tern train` chooses. model: its name."""
        most = 2  # more than one: the owners' numbers of records count as several
        if data.owners is None:
            most = self.records or 1
        has_rows = None  # as the data declare
        public = dict(self.options).get("public")
        if public:
            has_rows = str(public) != "none"
        if choice.suits_direct(model, data, most, has_rows):
            return Direct
        return FedSGD

    def learner(self, data: Dataset, model: str, seed: int) -> Learning:
        """Return the learner before its first round, with the records dealt or of the owners.

        If there are too few records to deal, several devices hold the same ones.

        data, model: what to learn, and the name of the model. seed: that of the run.
        Raises UsageError, for example if a report cannot have this epsilon.
        """
        learner_class = self.learner_class(data, model)
        given = dict(self.options)
        if learner_class is FedSGD:
            given.pop("public", None)
        options = learner_class.Options(
            **given, model=model, seed=seed, records=self.records, epsilon=self.epsilon_text
        )
        if data.owners is not None:
            learner = learner_class.suited(options, Population(), data)
            if self.reports == 1:
                return learner
            # An owner whose records are all public is no client.
            options = replace(options, reports=self.reports * (learner.clients or 0))
            return learner_class.suited(options, Population(), data)

        options = replace(options, reports=self.reports * self.devices)
        population = Population(clients=self.devices, knows_records=False)
        learner = learner_class.suited(options, population, data)
        positions = data.training_without(learner.reserved)
        records = data.all_records
        stock = Holdings(records, positions, learner.records_per_device)
        learner.holdings = deal(stock, data.name, self.devices, seed, again=True)
        return learner

    def with_reports(self, reports: int, epsilon: int) -> "WholeDevices":
        """Return the same devices with other reports. epsilon: of each, in millionths."""
        return replace(self, reports=reports, epsilon=epsilon)


def epsilon_text(epsilon: int) -> str:
    """Return an epsilon as text, such as 2.5. epsilon: in millionths."""
    return f"{epsilon / MICRO:.8g}"
