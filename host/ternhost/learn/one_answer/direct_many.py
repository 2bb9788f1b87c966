"""The model from one answer of each device, where a device holds many records.

A device tells the mean gradient of all its records, at a model that predicts the shares of the
classes for every record. It clips this vector to the length that sampling noise gives it
(`mean_gradients`). So n devices of m records tell about as much as n m devices of one record, at the
epsilon of a device.

The share of the positive class is public, or follows from public rows with labels. Otherwise the
first answers show it: they are asked for at a share of one half, with a radius that leaves room for
any share, and so they tell little else.

Public rows show how features vary together. Made-up rows are tried beside them. Rows of a file, which
may be of another population, are used only where the answers have more evidence for them.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tern.fixed import ONE
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset, Indices
from ternhost.errors import UsageError
from ternhost.learn import liar_results
from ternhost.learn.base import Cohort, Population, require_clients
from ternhost.learn.designs import ReportDesign, by_class
from ternhost.learn.devices import Devices, take
from ternhost.learn.models import projections
from ternhost.learn.one_answer.direct_base import DirectLearning, observation_of
from ternhost.learn.one_answer.direct_options import REPORTS
from ternhost.learn.one_answer.mean_gradients import Answer, LabelFacts, MeanGradients
from ternhost.learn.one_answer.observations import made_up
from ternhost.learn.parameters import MODELS, Floats, quantise, reading_state
from ternhost.privacy import projection

# How many parts of the answers each round asks for, of _PARTS: the first ones show the shares of the
# classes, and how large gradients are. On flights and on weather this was better than two rounds of
# one half each where the share was asked, and as good where it was known.
_PARTS_OF_ROUNDS = (1, 1, 1, 1, 2, 2)
_PARTS = sum(_PARTS_OF_ROUNDS)
# A share that the user names is as certain as that of so many labels: a share of one half has a
# standard deviation of 0.02.
_LABELS_OF_NAMED_SHARE = 625
_LEAST_VARIANCE = 1e-4  # of labels that are numbers, as public rows may all have the same
# Logarithms of odds. Public rows that are records of the data set are used unless the odds against
# them are larger. Those of a file are used only if the odds for them are larger: measured with rows
# of other populations, this costs nothing with the right ones (many-records.md).
_ODDS = 3.0
# What the mean labels are, by the model.
_MEANS = {
    "linear": "the mean label is",
    "logistic": "the share of label 1 is",
    "softmax": "the shares of the classes are",
}
_CLASS_FACTOR = 2.0  # by which numbers of records differ between classes of devices


class _Planned(NamedTuple):
    """A question of a round."""

    question: Question
    devices: Devices
    records: int  # of how many each of these devices reports the mean, about


class DirectOfMany(DirectLearning):
    """Each device answers once, about all its records."""

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """Plan the rounds, and find out what is publicly known of the labels and the features.

        options: the `Options` of one answer of each device, with `records`.
        population: the devices that can be asked.
        data: the data set to learn from, instead of the one that the options name.
        Raises UsageError for options of devices with one record, for an SVM, or for a model of more
        weights than an answer can tell of.
        """
        super().__init__(options, population, data)
        self._require_options()
        self._public = self._public_rows()
        self.holdings = self._training_records(reserved=self._public.reserved)
        self.designs: list[ReportDesign] = []
        for device_class in self.options.classes():
            self.designs.append(projections.design(device_class, self.d))
        self.modules = ("projection",)
        if self.classes > 1:
            self.modules = ("projection", "softmax")

        self._label_source, self._labels = self._label_facts()
        self._round = 0  # how many have ended
        features = self._feature_count()
        self._by_made_up = MeanGradients(MODELS[self.model], made_up(features), self._labels)
        self._by_public: MeanGradients | None = None
        if self._public.rows is not None:
            self._by_public = MeanGradients(MODELS[self.model], self._public.rows, self._labels)
        self._plan_rounds()
        self._require_records()

    # The plan

    def _require_options(self) -> None:
        """Raise UsageError for options that devices with several records do not have."""
        options = self.options
        if self.model == "svm":
            text = "an svm cannot be learned from mean gradients: its loss has a corner"
            raise UsageError(text, "use 'tern train fedsgd', or --model logistic")
        if self.d > projection.MOST_VALUES:
            text = (
                f"one answer of each device tells of at most {projection.MOST_VALUES} weights, and "
                f"the model has {self.d:,}"
            )
            raise UsageError(text, "use 'tern train fedsgd', or fewer features or classes")
        if options.moments is not None:
            text = "--moments is for devices with one record, and these have several"
            raise UsageError(text, "leave it out, or name --records 1")
        if options.then not in ("auto", "none"):
            text = f"--then {options.then} is for devices with one record, and these have several"
            raise UsageError(text, "leave it out, or use 'tern train fedsgd'")
        if options.share_of_positives is not None and self.model != "logistic":
            text = f"--share-of-positives is for two classes, and a {self.model} model has others"
            raise UsageError(text, "leave it out")
        if options.ask_by_records and (self.dataset is None or self.dataset.owners is None):
            text = "--ask-by-records needs to know how many records each device has"
            raise UsageError(text, "name the column that says it (--by), or leave it out")
        if options.ask_by_records and self._population.schedule:
            text = "--ask-by-records is for a run, and a fleet that is served has no plan of its devices"
            raise UsageError(text, "leave it out")

    def _label_facts(self) -> tuple[str, LabelFacts]:
        """Return what everybody may know of the labels, and where it is from, in words."""
        named = self.options.share_of_positives
        if named is not None:
            deviation = math.sqrt(named * (1 - named) / _LABELS_OF_NAMED_SHARE)
            return "the share that was named", LabelFacts(np.array([named]), deviation)
        labels = self._public_labels()
        if labels is None:
            return "", self._unknown_labels()
        if self.model == "linear":
            mean = labels.mean(axis=0)
            variance = max(float(labels.var()), _LEAST_VARIANCE)
        else:
            # Laplace's rule of succession: a class that no public row has is not impossible.
            mean = (labels.sum(axis=0) + 1) / (len(labels) + max(2, self.classes))
            variance = float((mean * (1 - mean)).max())
        deviation = math.sqrt(variance / len(labels))
        return f"the labels of {self._public.name}", LabelFacts(mean, deviation, variance)

    def _unknown_labels(self) -> LabelFacts:
        """Return the facts of labels of which nothing is known."""
        if self.model == "linear":
            return LabelFacts(np.zeros(1), None)
        return LabelFacts(np.full(self.classes, 1 / max(2, self.classes)), None)

    def _public_labels(self) -> Floats | None:
        """Return the labels of the public rows (n x classes); None if these have none.

        A label of classes is 1 for its class and 0 for the others.
        """
        if self.dataset is None or not len(self._public.reserved):
            return None
        labels = self.dataset.labels[self._public.reserved].astype(np.float64)
        if self.model == "linear":
            return labels[:, None] / ONE
        if self.model == "logistic":
            return (labels[:, None] > 0).astype(np.float64)
        return np.asarray(labels[:, None] == np.arange(self.classes), np.float64)

    def _plan_rounds(self) -> None:
        """Set how many rounds, clients and reports there will be.

        A device answers several times if the user wants more reports than there are devices.
        """
        schedule = self._population.schedule
        self.once = True
        if schedule:  # the fleet is served round after round
            self.rounds = schedule.rounds
            self.reports = self.clients = None  # they grow as long as the fleet is served
            return
        available = self._available_clients
        if not available:
            available = self._clients_made_for_run()
        self.reports = self.options.reports or available
        self.clients = min(self.reports, available)
        self.times = math.ceil(self.reports / self.clients)
        self.once = self.times == 1
        self.rounds = len(self._ends) - 1

    def _clients_made_for_run(self) -> int:
        """Return how many clients tern makes where nothing says their number: one for each report.

        Raises UsageError if the data have too few records for so many.
        """
        most = self._clients_to_make(REPORTS)
        reports: int | None = self.options.reports
        if reports is None:
            return most
        if self.holdings is not None:
            require_clients(
                reports,
                most,
                f" of {self.records_per_device:,} records each",
                f"use at most --reports {most}, or a fleet such as --fleet simulated:{most}",
            )
        return reports

    @property
    def _ends(self) -> list[int]:
        """How many answers have been asked for before each round, and after the last."""
        assert self.reports is not None
        parts = self._parts_of_rounds()
        ends = [0]
        for parts_so_far in itertools.accumulate(parts):
            ends.append(self.reports * parts_so_far // sum(parts))
        return sorted(set(ends))  # without rounds that would ask nobody

    def _parts_of_rounds(self) -> list[int]:
        """Return how many parts of the answers each round asks for. All parts are of equal size.

        No round asks a device twice, so that devices which answer several times have more rounds.
        """
        # Where the shares of the classes are not known, the first rounds have to show them.
        if self.options.at_once and self.once and self._labels.is_known:
            return [1]
        parts = list(_PARTS_OF_ROUNDS)
        largest = max(parts)
        while largest * self.times > sum(parts):  # the largest round would ask a device twice
            parts += [largest] * (_PARTS // largest)
        return parts

    @property
    def fewest_asked(self) -> int | None:
        if self.reports is None:
            return None
        return min(end - start for start, end in itertools.pairwise(self._ends))

    # Questions

    @property
    def _fit(self) -> MeanGradients:
        """The fit by public rows if these are used, else that by made-up rows."""
        if self._by_public is None or not self._rows_suit:
            return self._by_made_up
        return self._by_public

    @property
    def _rows_suit(self) -> bool:
        """Whether the public rows are used: the answers speak for them, or not against them."""
        assert self._by_public is not None
        odds_for_rows = self._by_public.log_evidence - self._by_made_up.log_evidence
        are_of_data_set = len(self._public.reserved) > 0
        if are_of_data_set:
            return bool(odds_for_rows >= -_ODDS)
        return bool(odds_for_rows >= _ODDS)

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Return the questions of the next round, each with the devices that it is for.

        devices: all devices of the run; of a served fleet, those that have not answered.
        """
        return [(planned.question, planned.devices) for planned in self._planned(devices)]

    def _planned(self, devices: Sequence[int] | Devices) -> list[_Planned]:
        """Return the questions of the next round: one for each class of devices.

        A class has the same epsilon, and about the same number of records. devices: as of `cohorts`.
        """
        clients = self._group_of(len(devices))
        records = self._records_of(clients)
        planned = []
        for number in np.unique(records):
            of_size = take(devices, clients[records == number])
            for members in by_class(self.designs, of_size, self.options.seed):
                question = self._question(members.design, int(number))
                planned.append(_Planned(question, members.devices, int(number)))
        return planned

    def _group_of(self, clients: int) -> Indices:
        """Return which clients the next round asks, as numbers from 0. clients: how many there are."""
        if self._population.schedule:  # the fleet is served round after round
            return self._group_of_served(clients)
        assert self.clients is not None
        start, end = self._ends[self._round : self._round + 2]
        turns = np.arange(start, end) % self.clients
        if self.holdings is None or self._has_owners:
            # Devices with records of their own may be in an order that matters, such as that of
            # places or of time. Others get theirs at random.
            turns = np.random.default_rng(self.options.seed).permutation(self.clients)[turns]
        return np.sort(turns)

    def _records_of(self, clients: Indices) -> Indices:
        """Return of how many records each of some clients reports the mean, about.

        It is the number that the client holds, or that of a batch, if the user names a smaller one.
        Devices differ only if they are asked by their own numbers of records. Then these are rounded
        to powers of _CLASS_FACTOR.
        """
        most: int = self.options.records_in_mean
        if not self.options.ask_by_records:
            return np.full(len(clients), most)
        assert self.holdings is not None
        counts = np.minimum(self.holdings.counts(clients), most)
        powers = np.round(np.log(counts) / math.log(_CLASS_FACTOR))
        return np.round(_CLASS_FACTOR**powers).astype(np.int64)

    def question_for(self, design: ReportDesign) -> Question:
        """Return the next question to devices of an epsilon that have the most records."""
        return self._question(design, self.options.records_in_mean)

    def _question(self, design: ReportDesign, records: int) -> Question:
        """Return the question for the mean gradient at the model so far.

        design: of the reports of the class. records: of how many a device reports the mean.
        """
        # Weights are carried as integers: mantissas with an exponent that all of them share.
        parameters = quantise(self._fit.weights)
        radius = self._fit.radius(parameters.values, records)
        design, range_ = projections.with_radius(design, self.d, radius)
        return self._gradient_question(parameters, design, range_)

    # Answers

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Fit the model to all answers so far.

        result: the answers of a round. devices: the same as those given to `cohorts`.
        """
        planned = self._planned(devices)
        self._round += 1
        self._moved_by_liars = None  # unless this round has reports
        if not result.reports:
            return
        by_records: dict[int, list[CohortCounts]] = {}
        # Cohorts are in the order of their questions. Two classes may have the same question.
        for asked, cohort in zip(planned, result.cohorts, strict=True):
            if cohort.reports:
                by_records.setdefault(asked.records, []).append(cohort)
        for records, cohorts in by_records.items():
            self._take_in(result.number, records, cohorts)
        for fit in self._fits:
            fit.fit()

    def _take_in(self, number: int, records: int, cohorts: Sequence[CohortCounts]) -> None:
        """Add the answers of devices with about the same number of records.

        number: of the round. records: of how many a device reports the mean. cohorts: the answers, of
        each epsilon.
        """
        observation, means = observation_of(cohorts)
        self.last_gradient = {"round": number, **means.summary()}
        self._moved_by_liars = liar_results.of_gradient(cohorts, means.mean)
        # A device also clips each value, to tau, which hardly matters beside the radius.
        observed = replace(observation, tau=None)
        for fit in self._fits:
            fit.add(Answer(observed, records))

    @property
    def _fits(self) -> list[MeanGradients]:
        """All fits, of which the better one is used."""
        if self._by_public is None:
            return [self._by_made_up]
        return [self._by_public, self._by_made_up]

    @property
    def weights(self) -> Floats:
        return quantise(self._fit.weights).values  # as devices get it

    # State and result

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        fits = [fit.state() for fit in self._fits]
        return {"round": self._round, "last": self.last_gradient, "fits": fits}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError for the state of another learner."""
        with reading_state("one answer of each device with many records"):
            self._round = int(state["round"])
            self.last_gradient = state["last"]
            for fit, stored in zip(self._fits, state["fits"], strict=True):
                fit.restore(stored)

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of learning, for JSON.

        Beside what all algorithms have, it tells what was known of the labels, what the mean label
        is by the model, and how well the public rows suited.

        history: an entry for each round.
        """
        suited = self._by_public is not None and self._rows_suit
        return {
            **super().result(history),
            "records": self.records_per_device,
            "label_means": {
                "model": self.model,
                "from": self._label_source,
                "known": self._labels.mean.tolist() if self._labels.is_known else None,
                "found": self._fit.mean_label.tolist(),
            },
            "public_rows": {"from": self._public.name, "suited": suited},
            "weights_error": self._fit.deviations().tolist(),  # standard deviations
            "taus": {},
            "then": None,
        }

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the result in lines for people, with what was known of features and labels."""
        return [*super().summary(result), labels_line(result), _rows_line(result)]


def labels_line(result: Mapping[str, Any]) -> str:
    """Return a line for people about the shares of the classes, or the mean label.

    A mean label is in the unit of the label, if it has one.
    """
    labels = result["label_means"]
    unit = result.get("label_unit")

    def in_words(means: Sequence[float]) -> str:
        """Return shares, or a mean label, in words."""
        if labels["model"] == "linear" and unit:  # labels are scaled to [-1, 1]
            middle = (unit["low"] + unit["high"]) / 2
            half_width = (unit["high"] - unit["low"]) / 2
            means = [middle + half_width * mean for mean in means]
        return ", ".join(f"{mean:.3g}" for mean in means)

    what = _MEANS[labels["model"]]
    found = in_words(labels["found"])
    if not labels["from"]:
        return f"by the reports, {what} {found}"
    return f"{what} {in_words(labels['known'])} by {labels['from']}, and {found} by the model"


def _rows_line(result: Mapping[str, Any]) -> str:
    """Return a line for people about the rows that showed how the features of records vary."""
    rows = result["public_rows"]
    if not rows["from"]:
        return "without public rows: the features are taken for uncorrelated, with a mean of 0"
    if rows["suited"]:
        return f"the second moment of the features is that of {rows['from']}"
    return (
        f"{rows['from']} are not used, as the reports do not show that they suit: the features are taken "
        "for uncorrelated, with a mean of 0"
    )
