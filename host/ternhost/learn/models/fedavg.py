"""PLDP-FL: federated averaging of perturbed models, each client with a safe range tau and an
epsilon.

Source: Shen et al., Entropy 2023, 25, 485; FedAvg: McMahan et al., AISTATS 2017. In a round a share
gamma of the clients trains E epochs in batches of B (tern.local) and reports how far k of d weights
have moved, as shares of tau. A card that is unbiased on [-1, 1] is unbiased on the scaled range,
whichever mechanism it is; the paper's own is PDPM. A report costs a client k times its card's
epsilon, and its reports add up (user level). Clients take shuffled turns, so that all take part
equally often to within a round, and the cost is known before the run starts.

Where it differs from the paper, whose experiments have the settings in `ternpapers.safe_ranges`:

- There a client reports all d weights, perturbed within a safe range around 0. Here it reports by
  how much they have moved. That is the paper's Algorithm 2 with the centre c of the safe range at
  the weight that the client was sent. The server knows that weight, so nothing else is disclosed.
  The noise then stays as small as the moves, even where weights are large.
- tau is the half width of a safe range. The paper names its size, which is 2 tau.
- In the paper gamma is 0.7, so most clients report in every round, and each time it costs their
  epsilon. The default here is 1 / rounds: then a client reports once in a run.
- In the paper E is 5, at a learning rate of 0.01. The default here is 2, at a rate of 1: each epoch
  takes time and energy on a device, and at this rate two of them move weights far enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tern.fixed import MAX_EPSILON
from tern.wire import LOCAL, LOCAL_SOFTMAX, MAX_BATCH, MAX_EXPONENT, MAX_RATE, MAX_TAU
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset, Holdings, Indices
from ternhost.datasets.holdings import require_enough
from ternhost.errors import UsageError
from ternhost.learn import liar_results, liars
from ternhost.learn.base import Cohort, Population, require_clients
from ternhost.learn.collecting import estimate
from ternhost.learn.designs import (
    DeviceClass,
    MechanismOptions,
    ReportDesign,
    by_class,
    epsilons_option,
    pools_of,
)
from ternhost.learn.devices import Devices, most_turns, take
from ternhost.learn.models.learning import Learning, LearningOptions
from ternhost.learn.models.training import Trainer, TrainingPlan
from ternhost.learn.parameters import MODELS, Floats
from ternhost.learn.record_bound import records_option
from ternhost.options import option, require
from ternhost.privacy import certify

EXPONENT = MAX_EXPONENT  # of the model's mantissas: weights to +-8, in steps of 2**-12
FINE = 2.0 ** (EXPONENT - 8)  # the unit of local training

# How reports of clients with different tau and epsilon are put together; both are unbiased.
CLIENTS = "clients"  # every client counts the same, as in FedAvg
VARIANCE = "variance"  # inverse variance: where the clients are of one population, the least noise
WEIGHTS = (CLIENTS, VARIANCE)

_GROUP = "fedavg"  # of options, in the help
_average = partial(option, group=_GROUP)


@dataclass(frozen=True)
class Options(MechanismOptions, LearningOptions):
    """Options of FedAvg."""

    takes_taus: ClassVar[bool] = True
    usual_records: ClassVar[int] = 8

    epsilons: str | None = epsilons_option("TAU:E:SHARE,...")
    clients: int = _average(0, shown="all, but at most 1000 on boards", metavar="N")
    records: int | None = records_option(usual_records, group=_GROUP)
    rounds: int = _average(20, metavar="N")
    share: float | None = _average(
        None, metavar="SHARE", shown="1 / rounds; in the paper of Shen et al.: 0.7"
    )
    local_epochs: int = _average(
        2, "epochs that a client trains in a round; 5 in the paper of Shen et al.", metavar="E"
    )
    local_rate: int = _average(
        0, "the learning rate on a client is 2**-N; 7 is nearest to the paper's 0.01", metavar="N"
    )
    tau: float = _average(0.25, "clip a weight's change in a round to +-TAU", metavar="TAU")
    weights: str = _average(
        CLIENTS, "weight of a class: its clients, or inverse variance", choices=WEIGHTS
    )

    def check(self) -> None:
        """Raise UsageError for options out of bounds, or for a tau that no frame can carry."""
        require(self.clients >= 0, "clients", "0 (all) or more", self.clients)
        require(self.rounds >= 1, "rounds", "1 or more", self.rounds)
        in_order = self.share is None or 0 < self.share <= 1
        require(in_order, "share", "above 0 and at most 1", self.share)
        in_order = 1 <= self.local_epochs <= 255  # a byte of the frame
        require(in_order, "local_epochs", "1 to 255", self.local_epochs)
        require(0 <= self.local_rate <= MAX_RATE, "local_rate", f"0 to {MAX_RATE}", self.local_rate)
        require(self.weights in WEIGHTS, "weights", " or ".join(WEIGHTS), self.weights)

        # A frame carries tau, the range of clipping, as a whole number of units of FINE.
        most_tau = MAX_TAU * FINE
        option_name, must = "tau", f"{FINE:g} to {most_tau:g}"
        require(FINE <= self.tau <= most_tau, option_name, must, f"{self.tau:g}")
        option_name, must = "epsilons", f"of clipping bounds {must}"
        for device_class in self.device_classes():
            tau = device_class.tau or 0.0
            require(FINE <= tau <= most_tau, option_name, must, f"{tau:g}")

    @property
    def most_epsilon(self) -> int:
        """The largest epsilon of a class of clients, in millionths: that of a card for each weight.

        Reports of all weights may cost more than one card, as those of the paper do.
        """
        return MAX_EPSILON * (self.named_k or 1)

    def device_classes(self) -> list[DeviceClass]:
        """Return the classes of clients that the options name, each with an epsilon and a tau.

        Clients clip the change of a weight to +-tau, their safe range. Raises UsageError.
        """
        classes = []
        for device_class in self.classes():
            tau = device_class.tau
            if tau is None:
                tau = self.tau
            classes.append(replace(device_class, tau=tau))
        return classes


def range_units(design: ReportDesign) -> int:
    """Return the safe range tau of a design as a frame carries it: a whole number of units of FINE."""
    assert design.tau is not None
    return round(design.tau / FINE)


def second_moment(design: ReportDesign) -> float:
    """Return the second moment of a reported weight change at the worst input.

    Reports are on the scale [-1, 1]; the result is on the scale of the weights, tau times that.
    """
    of_scaled_values = float(certify.moments(design.card).worst_second_moment())
    tau = range_units(design) * FINE
    return of_scaled_values * tau**2


class FedAvg(Learning):
    """Clients train on records of their own and report how far each weight has moved."""

    name = "fedavg"
    about = "rounds of training on the devices themselves"
    example = "--rounds 20 --local-epochs 2"
    Options = Options
    draws_groups = True

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """Design the reports of each class of clients, and plan the rounds.

        A class has the clients with the same epsilon and the same range of clipping.

        options: the `Options` of this module.
        population: the clients that can be asked.
        data: the data set to learn from, instead of the one that the options name.
        Raises UsageError.
        """
        super().__init__(options, population, data)
        self.modules = ("local",)  # of the device library, that boards need
        if self.classes > 1:
            self.modules = ("local", "softmax")
        self.designs = self._make_designs()
        self._plan_rounds()

        failures = TrainingPlan.failures
        if population.schedule:  # a served fleet goes on when nobody reports
            failures = None
        # The server's step is the mean change itself: a rate of 1, and nothing that stops the run
        # before its last round.
        plan = TrainingPlan(
            model=MODELS[self.model],
            dimension=self.d,
            rounds=self.rounds,
            expected=1.0,
            learning_rate=1.0,
            regularisation=0.0,
            patience=None,
            failures=failures,
        )
        self.trainer = Trainer(plan)

    def _make_designs(self) -> list[ReportDesign]:
        """Design the report of each class of clients: the changes of k of the d weights.

        Raises UsageError.
        """
        options, classes = self.options, self.options.device_classes()
        options.require_one_epsilon(len(classes))
        k = options.choose_k(classes, self.d)
        designs = []
        for device_class in classes:
            design = options.design(device_class, k)
            designs.append(replace(design, what="weight"))
        return designs

    def _plan_rounds(self) -> None:
        """Set how many rounds, clients and reports there will be, and what the clients hold.

        A served fleet follows its schedule instead of the options. Raises UsageError if the number
        of clients of a run, and so its cost, is unknown.
        """
        schedule = self._population.schedule
        self._share: float | None  # of the clients in a round; None: 1 / rounds
        if schedule:  # the fleet is served round after round
            self.rounds = schedule.rounds
            self._share = schedule.share
            self.clients = None
        else:
            self.rounds = self.options.rounds
            self._share = self.options.share
            self.clients = self.options.clients or None
        self.holdings = self._make_holdings()  # may set the number of clients

        clients = self.clients or self._population.devices
        if self._has_owners:
            assert self.holdings is not None
            clients = self.holdings.clients
        group = self._group(clients)  # how many a round asks
        # In how many rounds a client takes part at most; without an end, a round counts.
        self.times = most_turns(max(1, clients), group, self.rounds or 1)
        if schedule:
            self.reports = None
            return
        if not clients:
            text = "the number of clients of this fleet is unknown, and the cost depends on it"
            raise UsageError(text, "give --clients, or name the --store with their keys")
        self.clients = clients
        self.reports = self.options.rounds * group

    def _group(self, clients: int) -> int:
        """Return how many of `clients` clients a round asks."""
        if self._share is None:
            group: int = clients // self.options.rounds
        else:
            group = round(self._share * clients)
        return max(1, group)

    def _make_holdings(self) -> Holdings | None:
        """Return which training records each client holds, and set the number of clients.

        Returns None if the host does not know what clients hold. Raises UsageError if there are too
        few records.
        """
        per_client = self.records_per_device
        holdings = self._training_records()
        if holdings is None:
            return None
        assert self.dataset is not None
        most_clients = holdings.clients  # for whom the records are enough
        if holdings.names:
            return self._of_first(holdings)
        require_enough(holdings, 1, self.dataset.name)

        # As many clients as the user names, else as the fleet has or would make by itself, but not
        # more than get records.
        available = self._population.clients or most_clients
        wanted = self._population.clients or self._population.most or most_clients
        clients = self.clients or min(most_clients, wanted)
        hint = f"use at most --clients {available}"
        require_clients(clients, available, f" of {per_client} records each", hint)
        if not self._population.schedule:  # a served fleet has no fixed number of clients
            self.clients = clients
        # Those records that are handed out.
        order = holdings.order[: min(clients, most_clients) * per_client]
        return Holdings(holdings.records, order, per_client)

    def _of_first(self, holdings: Holdings) -> Holdings:
        """Return what the owners hold that take part, and set the number of clients.

        They are as many as the user names, else all. Raises UsageError if there are fewer.
        """
        hint = f"use at most --clients {holdings.clients}"
        purpose = ", which the data name"
        require_clients(self.clients, available=holdings.clients, purpose=purpose, hint=hint)
        holdings = holdings.of_first(self.clients or holdings.clients)
        if not self._population.schedule:  # a served fleet has no fixed number of clients
            self.clients = holdings.clients
        return holdings

    # Questions

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Return the question of the next round to each class, with the devices that it is for.

        devices: all devices of the run.
        """
        parts = by_class(self.designs, self._group_of(devices), self.options.seed)
        return [(self.question_for(part.design), part.devices) for part in parts]

    def pools(self, devices: Sequence[int] | Devices) -> list[Devices] | None:
        """Return, for each class that the next round asks, all devices that it could ask.

        A fleet may draw the devices of the round from these itself.

        devices: all devices of the run.
        Returns None if the round asks everybody.
        """
        everybody = take(devices, np.arange(len(devices)))  # as an array of ids
        return pools_of(self.designs, self._group_of(devices), everybody, self.options.seed)

    def _group_of(self, devices: Sequence[int] | Devices) -> Devices:
        """Return the devices that the next round asks, of all `devices` of the run."""
        clients = len(devices)
        return take(devices, self._turn(clients, self._group(clients), self.trainer.round))

    def question_for(self, design: ReportDesign) -> Question:
        """Return the question to a class of clients: train the model on your own records.

        Clients report how far each weight has moved. A class has the clients with the same epsilon
        and the same range of clipping.

        design: the design of the reports of this class.
        """
        options = self.options
        batch = options.records  # records between two steps of gradient descent on a client
        if options.batch:  # 0: all
            batch = min(options.batch, options.records)
        # A question carries what to do as a number: LOCAL is added for local training of a model.
        model = LOCAL + self.trainer.plan.model
        if self.classes > 1:
            model = LOCAL_SOFTMAX
        return Question(
            model=model,
            parameters=_mantissas(self.trainer.weights).tolist(),  # weights / 2**EXPONENT
            exponent=EXPONENT,
            card=design.card.data,
            k=design.k,
            batch=min(batch, MAX_BATCH),
            local=(options.local_epochs, options.local_rate, range_units(design)),
            classes=self.classes,
        )

    # Answers

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Move the model as far as the clients moved it on average, in their local training.

        A round without a report counts as failed.

        devices: not needed, as the counts of the result are complete.
        """
        self._moved_by_liars = None  # unless this round has reports
        if not result.reports:
            self.trainer.fail()
            return
        parts = [(self._design_of(cohort), cohort) for cohort in result.cohorts]
        # Clients report where a weight began less where it ended.
        change = combine(parts, self.options.weights)
        self._moved_by_liars = liar_results.of_kinds(
            [_kind_of(design, cohort, self.options.weights) for design, cohort in parts],
            mean=change,
            k=self.designs[0].k,
            reports=result.reports,
        )
        # They began at quantised weights, `start`, so the model shall move from w to start -
        # change. That is a step of rate 1 against the gradient w - (start - change).
        start = _mantissas(self.trainer.weights) * 2.0**EXPONENT
        self.trainer.update(self.trainer.weights - start - change, np.ones(self.d))

    def _design_of(self, cohort: CohortCounts) -> ReportDesign:
        """Return the report design of the class of clients that a cohort is of.

        A cohort has the counts of the reports to one question. The class is known by the safe range
        of the question and by the card (the table that perturbs values).
        """
        _, _, cohort_tau = cohort.question.local  # epochs, learning rate, and safe range
        for design in self.designs:
            if range_units(design) == cohort_tau and design.card.data == cohort.card.data:
                return design
        raise ValueError("no class of this run has had this question")


def _mantissas(weights: Floats) -> Indices:
    """Return the weights from which clients start their training, as multiples of 2**EXPONENT."""
    return np.rint(weights / 2.0**EXPONENT).astype(np.int64)


def _weight_of_report(design: ReportDesign, weights: str) -> float:
    """Return how much a report of a class counts. weights: CLIENTS or VARIANCE."""
    if weights == VARIANCE:
        return 1 / second_moment(design)
    return 1.0


def _kind_of(design: ReportDesign, cohort: CohortCounts, weights: str) -> liars.Kind:
    """Return the kind of reports with which a class takes part in `combine`."""
    return liars.kind_of_means(
        cohort.card,
        cohort.counts.sum(axis=1),
        tau=range_units(design) * FINE,
        weight=_weight_of_report(design, weights),
    )


def combine(parts: Sequence[tuple[ReportDesign, CohortCounts]], weights: str) -> Floats:
    """Estimate the mean change of each weight of the model (d) from the clients' reports.

    It is the weighted mean of the estimates of all classes of clients. A weight that nobody
    reported does not move. Each class clips changes to a range +-tau of its own, and reports them
    as shares of tau.

    parts: for each class its report design, and how often each symbol was reported.
    weights: how much a report counts: CLIENTS (all the same), or VARIANCE (inverse variance).
    """
    _, first_cohort = parts[0]
    d = len(first_cohort.counts)
    weighted_sum, weight_sum = np.zeros(d), np.zeros(d)
    for design, cohort in parts:
        reports = cohort.counts.sum(axis=1)  # of each coordinate
        class_weight = reports * _weight_of_report(design, weights)
        # On the scale [-1, 1], as shares of tau. It is nan, and becomes 0, where nobody reported.
        scaled_mean = np.nan_to_num(estimate.combine([(cohort.card, cohort.counts)]).mean)
        tau = range_units(design) * FINE  # as devices round it
        weighted_sum += class_weight * scaled_mean * tau
        weight_sum += class_weight
    return np.divide(weighted_sum, weight_sum, out=np.zeros(d), where=weight_sum > 0)
