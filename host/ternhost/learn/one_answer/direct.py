"""The model from one answer of each device, in a few rounds instead of a hundred.

The mean gradient of the logistic loss at the model 0 shows the direction of the optimum, up to the
second moment of the features, which public rows without labels bring (Wang, Zhang, Gaboardi and Xu,
ALT 2021). Later rounds ask the devices that have not answered at the model so far, if that is known
clearly (`observations`). A device reports about its whole gradient at once (`projections`) or about
one coordinate of it, whichever promises the smaller error.

Without public rows, a share of the devices report the direction of their features instead, and
nothing of the label. Made-up rows of that mean direction stand for the population.

Public rows may be of another population, or in another unit. So in the first rounds a share of the
devices report the direction of their features, too. If it is not that of the rows, or if the first
gradient contradicts the rows, the run goes on as without public rows, with the devices that have not
been asked. The gradients that have been observed stay.

The model is as good as the rows. Where the answers are so clear that this shows, the second half of
the devices go on by descent, which needs no rows: a `FedSGD` that begins at the model so far.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tern.wire import ERR_MODEL, LOGISTIC, VALUES
from ternhost.count.questions import Question
from ternhost.count.rounds import CohortCounts, RoundResult
from ternhost.datasets import Dataset
from ternhost.errors import UsageError
from ternhost.learn import liar_results
from ternhost.learn.base import Cohort, Population, require_clients
from ternhost.learn.designs import (
    DeviceClass,
    MechanismOptions,
    ReportDesign,
    by_class,
    class_of,
)
from ternhost.learn.devices import Devices, take
from ternhost.learn.models import projections
from ternhost.learn.models.fedsgd import FedSGD, rounds_by_tau
from ternhost.learn.models.learning import Learning, LearningOptions
from ternhost.learn.one_answer.direct_base import DirectLearning, observation_of
from ternhost.learn.one_answer.direct_many import DirectOfMany
from ternhost.learn.one_answer.direct_options import MOMENTS, REPORTS
from ternhost.learn.one_answer.observations import (
    DIRECTION,
    Distance,
    Observation,
    Observations,
    distance,
    made_up,
)
from ternhost.learn.parameters import Floats, quantise, reading_state
from ternhost.options import names_of
from ternhost.privacy import certify
from ternhost.text import clipped, counted

_PARTS = 6  # equal parts of the devices, of which each round asks one without public rows
_PARTS_WITH_ROWS = (1, 2, 3)  # how many of these parts each round asks with public rows
_ROUNDS_WITHOUT_FEATURES = 2  # if nothing is known of the features, nor asked
_ROUNDS_OF_CHECKS = 2  # the first ones, in which public rows are checked
_FEWEST_ROWS = 5  # public, for each feature: fewer tell less of a population than devices do
_NARROWEST = 4  # the largest r for which coordinates may be clipped to +-2**-r
_TINY = 1e-12  # the least squared length
_MISFIT = 3.0  # beyond this, public rows are of another population
# From where descent is better: `Observations.rows_error_over_noise` if the rows suit, else
# `signal_to_noise`.
_LIMITED = 30.0
_CLEAR = 40.0


class DroppedRows(NamedTuple):
    """Public rows that did not suit."""

    round: int  # how many rounds had ended when that showed
    misfit: float  # of the first gradient at that time (`Observations`)


class Direct(DirectLearning):
    """Each device answers once.

    In a run the rounds ask equal parts of the devices, in a served fleet those that have not
    answered.
    """

    about = "one answer of each device; for two classes, or many records"
    example = "--reports 20000"
    once = True

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """Plan the rounds, and choose what a report is about.

        Each device answers once, in one of a few rounds. The model is fitted to all answers by
        `Observations`, for which rows of features, without labels, stand for the population. If it
        turns out to be better, the second half of the devices go on by descent.

        options: the `Options` of this module.
        population: the devices that can be asked.
        data: the data set to learn from, instead of the one that the options name.
        Raises UsageError for a model other than logistic regression, or for more reports than there
        are devices.
        """
        super().__init__(options, population, data)
        if self.model != "logistic":
            text = f"a {self.model} model cannot be learned from one record of each device, once"
            raise UsageError(text, "use 'tern train fedsgd', --model logistic, or --records")
        if options.share_of_positives is not None:
            text = "--share-of-positives is for devices with several records, and these have one"
            raise UsageError(text, "add --records, or leave it out")

        # The rows, and what has been learned so far.
        self._public = self._public_rows()
        self._dropped: DroppedRows | None = None  # public rows that did not suit
        self._features: Observation | None = None  # the mean direction of the features
        self._features_are_refused = False  # no device that was asked for its features answered
        self._round = 0  # how many have ended
        self._observations = self._empty_observations(None)
        self._model = self._observations.weights
        self._descent: FedSGD | None = None  # by which the second half of the devices goes on

        # The plan, for as many reports as are expected.
        self.holdings = self._training_records(reserved=self._public.reserved)
        expected = options.reports or self._available_clients or self._clients_to_make(REPORTS)
        self._second_half = slice(expected // 2, expected)  # of the clients
        self._plan_rounds(expected)
        self._require_records()
        self._choose_designs(expected)
        self.modules = self._modules()  # of the device library, that boards need

    @classmethod
    def suited(cls, options: Any, population: Population, data: Dataset | None = None) -> Learning:
        """Return this learner, or the one for devices with several records.

        Parameters as of the class itself. Raises UsageError.
        """
        dataset, training = data, np.arange(0)
        if data is None and options.on_devices is None:
            dataset = options.load(classes=options.model_name == "softmax")
        if dataset is not None:
            training = dataset.training
        if options.with_bound(dataset, training).most_records > 1:
            return DirectOfMany(options, population, data)
        return cls(options, population, data)

    def _plan_rounds(self, expected: int) -> None:
        """Set how many rounds, clients and reports there will be.

        expected: the number of reports of the run.
        Raises UsageError if there are fewer devices, or if the second half of them cannot go on by
        descent as the user wants.
        """
        schedule, then = self._population.schedule, self.options.then
        if schedule:  # the fleet is served round after round
            if then == FedSGD.name:
                text = "devices that are served answer whenever they are awake: no half of them is left"
                raise UsageError(text, "serve fedsgd, or leave out --then")
            self.rounds = schedule.rounds
            self.reports = self.clients = None  # they grow as long as the fleet is served
            return

        available = self._available_clients
        hint = f"use at most --reports {available}, or take more of each with fedsgd"
        purpose = ", each of which answers once"
        require_clients(self.options.reports, available or expected, purpose, hint)
        if then == FedSGD.name and expected < 2:
            raise UsageError(
                "--then needs two devices or more: one half descends", "leave out --then"
            )
        self.reports = self.clients = expected
        self.rounds = len(self._parts_asked) - 1

    @property
    def _parts_asked(self) -> tuple[int, ...]:
        """How many parts of the devices have been asked before each round, and after the last.

        All parts are of equal size. With public rows the first round is short: it shows whether
        they suit the population. If they do not, the run goes on as without public rows: each later
        round asks one part.
        """
        assert self.reports is not None
        if self.options.at_once:
            return (0, 1)
        if self._public.rows is None and self.options.moments == 0:
            rounds = min(_ROUNDS_WITHOUT_FEATURES, self.reports)
            return tuple(range(rounds + 1))
        parts = min(_PARTS, self.reports)
        if self._public.rows is None or parts < _PARTS:
            return tuple(range(parts + 1))
        with_rows = (0, *itertools.accumulate(_PARTS_WITH_ROWS))  # 0, 1, 3, 6
        if self._dropped is None:
            return with_rows
        until_dropped = with_rows[: self._dropped.round + 1]
        one_by_one = range(until_dropped[-1] + 1, parts + 1)
        return (*until_dropped, *one_by_one)

    @property
    def fewest_asked(self) -> int | None:
        if self.reports is None:
            return None
        ends = [self._asked_by(rounds) for rounds in range(len(self._parts_asked))]
        of_smallest_round = min(end - start for start, end in itertools.pairwise(ends))
        feature_share = self._feature_share
        smaller_share = 1.0  # of the two questions of a round
        if feature_share > 0:
            smaller_share = min(feature_share, 1 - feature_share)
        return int(of_smallest_round * smaller_share)

    def _modules(self) -> tuple[str, ...]:
        """Return the modules of the device library that the questions need on boards."""
        modules = ["projection"]
        # With public rows, too: features check them, and take their place if they do not suit.
        if self._feature_share > 0:
            modules.append("collect")
        return tuple(modules)

    @property
    def _feature_share(self) -> float:
        """The share of the next devices that report their features instead of their gradients.

        With public rows, features are only needed to check the rows, until that is done.
        """
        if self._features_are_refused:
            return 0.0
        if self._rows is not None and not self._needs_features:
            return 0.0
        if self.options.moments is None:
            return MOMENTS
        return float(self.options.moments)

    @property
    def _rows(self) -> Floats | None:
        """The public rows, unless they did not suit; None: there are none."""
        if self._dropped:
            return None
        return self._public.rows

    @property
    def _needs_features(self) -> bool:
        """Whether the check of the public rows needs reports about features in the next round.

        Where all devices answer at once, no later round could use what the check finds.
        """
        if self.options.at_once:
            return False
        is_known_well = self._distance is not None and self._distance.is_precise
        return self._is_checking_rows and not is_known_well

    @property
    def _is_checking_rows(self) -> bool:
        """Whether the next round serves to check public rows."""
        return self._rows is not None and self._round < _ROUNDS_OF_CHECKS

    def _empty_observations(self, features: Observation | None) -> Observations:
        """Return observations without any answer, with rows that stand for the population.

        Observations are mean gradients that devices have reported, to which a model is fitted. That
        takes rows of features: the public rows, or, if there are none, made-up ones.

        features: the mean direction x / |x| of the devices' features, as far as they have reported
            it; None: nothing is known, and made-up features have the mean 0.
        """
        if self._rows is not None:
            return Observations(LOGISTIC, self._rows)
        direction = None
        if features is not None:
            # The estimator of James and Stein (1961) shrinks all values but the constant's, which
            # is known to be large: noise in all directions would look like features that vary
            # together. The factor is 1 - (d - 2) variance / |direction|**2, or 0.
            direction = features.gradient.copy()
            noise = (self.d - 2) * features.variance
            squared_length = float(direction[1:] @ direction[1:])
            direction[1:] *= max(0.0, 1 - noise / max(squared_length, noise, _TINY))
        return Observations(LOGISTIC, made_up(self.d, direction), invented=True)

    def _choose_designs(self, reports: int) -> None:
        """Choose what a report has: one symbol about the whole gradient, or k coordinates of it.

        The choice has the least expected error of the model's scores. Sets `designs`, with the
        report of each class of devices (those with the same epsilon), and `_range`, the r by which
        devices clip a coordinate to +-2**-r; that is None for whole gradients.

        reports: the number of reports of the run.
        """
        classes: list[DeviceClass] = self.options.classes()
        self._vector_designs = []
        for device_class in classes:
            self._vector_designs.append(projections.design(device_class, self.d))
        self.designs = self._vector_designs
        self._range: int | None = None
        # Of the model's scores, squared; None: it is not known, for want of public rows.
        self.expected_error: float | None = None
        if self._public.rows is None:  # nothing is known of how large values are
            return

        # Whole gradients, clipped to the radius DIRECTION, which is so small that only their
        # directions are left. Designs are for a radius of 1, and variances grow with its square.
        variances = [design.variance for design in self._vector_designs]
        variance = _combined_variance(self._vector_designs, variances) * DIRECTION**2
        self.expected_error = self._error_at(variance / reports, radius=DIRECTION)
        if self.options.at_once:  # the first round is always about whole gradients
            return

        mechanism = MechanismOptions()
        k = mechanism.choose_k(classes, self.d, of_gradients=True)
        designs = []
        for device_class in classes:
            designs.append(mechanism.design(device_class, k, of_gradients=True))
        for range_ in range(1, _NARROWEST + 1):
            variance = self._variance_of_coordinates(designs, range_, self._public.rows) / reports
            error = self._error_at(variance, tau=2.0**-range_)
            if error < self.expected_error:
                self.expected_error, self._range, self.designs = error, range_, designs

    def error_of_descent(self, designs: Sequence[ReportDesign], rounds: int, group: int) -> float:
        """Return the squared error of the model's scores that is expected after a gradient descent.

        It is that of the range to which clipping is the best. Needs public rows.

        designs: the reports of its classes of devices, of the same number of coordinates.
        rounds: of the descent.
        group: how many devices report in a round.
        """
        assert self._public.rows is not None
        zeros = np.zeros(self.d)
        errors = []
        for range_ in range(1, _NARROWEST + 1):
            variance = self._variance_of_coordinates(designs, range_, self._public.rows) / group
            question = Observation(
                weights=zeros, gradient=zeros, variance=variance, tau=2.0**-range_
            )
            errors.append(self._observations.expected_error_of_descent(question, rounds))
        return min(errors)

    def _variance_of_coordinates(
        self, designs: Sequence[ReportDesign], range_: int, rows: Floats
    ) -> float:
        """Return the variance of a coordinate of the mean gradient, estimated from a single report.

        A report has k of the d coordinates, so that it is d / k times the variance of a reported
        value.

        designs: the report of each class of devices.
        range_: values are multiplied by 2**range_ before they are clipped to [-1, 1].
        rows: public features (n x d). At weights of 0 a gradient is half a row, up to its sign.
        """
        values = np.clip(rows / 2 * 2.0**range_, -1, 1)
        second_moments = []
        for design in designs:
            second_moments.append(certify.moments(design.card).mean_second_moment(values))
        scale = 4.0**-range_  # the square of 2**-range_, to go back to the scale of gradients
        return _combined_variance(designs, second_moments) * scale * self.d / designs[0].k

    def _error_at(
        self, variance: float, radius: float | None = None, tau: float | None = None
    ) -> float:
        """Return the squared error of the model's scores that is expected after a first round.

        It serves to compare kinds of reports: less noise may be paid for by more clipping. In the
        first round gradients are taken at weights of 0.

        variance: the variance of the noise in each value of the mean gradient.
        radius: the norm to which devices clip whole gradients, if they do.
        tau: the size to which they clip each value, if they do.
        """
        # An observation stands for the question: how gradients are clipped, and with how much noise
        # they are answered. The gradient itself is not used.
        zeros = np.zeros(self.d)
        question = Observation(
            weights=zeros, gradient=zeros, variance=variance, radius=radius, tau=tau
        )
        return self._observations.expected_error(question)

    @property
    def done(self) -> bool:
        if self._descent:
            return self._descent.done
        return super().done

    @property
    def weights(self) -> Floats:
        if self._descent:
            return self._descent.weights
        return quantise(self._model).values  # as devices get it

    # Questions

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Return the questions of the next round, each with the devices that it is for.

        Most devices are asked for their gradients. Without public rows, a share of them is asked
        for features instead. A class of devices has an epsilon, and so a report design, of its own.

        devices: all devices of the run; of a served fleet, those that have not answered.
        """
        if self._descent:
            return self._descent.cohorts(devices[self._second_half])
        seed = self.options.seed
        group = take(devices, self._group_of(len(devices)))
        feature_share = self._feature_share
        # Drawn independently of the classes of devices, which depend on the seed itself.
        kind_of_report = class_of(group, [1 - feature_share, feature_share], seed + 1)
        reports_features = kind_of_report == 1

        cohorts: list[Cohort] = []
        designs = self._vector_designs
        if self._range_of_coordinates is not None:
            designs = self.designs
        for members in by_class(designs, group[~reports_features], seed):
            cohorts.append((self.question_for(members.design), members.devices))
        for members in by_class(self._vector_designs, group[reports_features], seed):
            cohorts.append((self._feature_question(members.design), members.devices))
        return cohorts

    def _group_of(self, clients: int) -> Devices:
        """Return which clients the next round asks, as numbers from 0.

        In a run each round asks another part of the clients. A served fleet draws at random from
        those that have not answered.

        clients: how many there are, or how many have not answered.
        """
        if self._population.schedule:  # the fleet is served round after round
            return self._group_of_served(clients)
        return np.arange(self._asked_by(self._round), self._asked_by(self._round + 1))

    def _asked_by(self, rounds: int) -> int:
        """Return how many clients have been asked after so many rounds."""
        assert self.reports is not None
        parts = self._parts_asked
        return self.reports * parts[rounds] // parts[-1]

    @property
    def _range_of_coordinates(self) -> int | None:
        """The r by which devices clip coordinates in the next round to +-2**-r; None: no coordinates.

        Public rows tell whether coordinates are better than whole gradients, and by which range. So
        the first round, which shows whether they suit, asks for whole gradients.
        """
        if self._rows is None or self._round == 0:
            return None
        return self._range

    def question_for(self, design: ReportDesign) -> Question:
        """Return the question to a class of devices: for their gradients at the model so far.

        A class has the devices with the same epsilon, and so with the same report design and card
        (the table from which a device draws what it reports).

        design: the design of the reports of this class.
        """
        weights, radius = self._observations.question(at_zero=self._is_checking_rows)
        # r: devices clip each value to +-2**-r; None: they clip whole gradients
        range_ = self._range_of_coordinates
        if range_ is None:  # then the card depends on the radius, the norm to which they clip
            design, range_ = projections.with_radius(design, self.d, radius)
        # Weights are carried as integers: mantissas with an exponent that all of them share.
        parameters = quantise(weights)
        return self._gradient_question(parameters, design, range_)

    def _feature_question(self, design: ReportDesign) -> Question:
        """Return the question to a class of devices: for the direction of their features.

        design: the design of reports about whole vectors.
        """
        least_norm = 1.0  # of the features, as the constant 1 is among them: so all are clipped
        design, range_ = projections.with_radius(design, self.d, least_norm)
        return Question(
            model=VALUES,
            parameters=[1] * self.d,  # all features are asked for
            exponent=0,
            card=design.card.data,
            k=1,
            range=range_,
        )

    # Answers

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Fit the model to all answers so far, or make a step of descent if that has begun.

        Most answers are about gradients. Where there are no public rows, some are about features,
        and show which rows to make up. After the first half of the devices, descent begins if it is
        expected to be better.

        result: the answers of a round. A cohort has those of devices that got the same question.
        devices: the same devices as those given to `cohorts`.
        """
        if self._descent:
            self._descent.learn(result, devices[self._second_half])
            self._moved_by_liars = self._descent.moved_by_liars()
            return

        self._round += 1
        self._moved_by_liars = None  # unless this round has reports about a gradient
        feature_cohorts, gradient_cohorts = [], []
        for cohort in result.cohorts:
            if not cohort.reports:
                continue
            if cohort.question.model == VALUES:  # features are asked for as plain values
                feature_cohorts.append(cohort)
            else:
                gradient_cohorts.append(cohort)
        if feature_cohorts:
            self._learn_features(feature_cohorts)
        elif _lacks_features(result):
            self._features_are_refused = True
        if gradient_cohorts:
            observation, means = observation_of(gradient_cohorts)
            self.last_gradient = {"round": result.number, **means.summary()}
            tau = 2.0 ** -gradient_cohorts[0].question.range  # to which coordinates were clipped
            self._moved_by_liars = liar_results.of_gradient(gradient_cohorts, means.mean, tau)
            self._observations.add(observation)
        if self._rows is not None and not self._rows_suit:
            self._drop_rows()

        has_answers = bool(feature_cohorts or gradient_cohorts)
        has_gradients = self.last_gradient is not None  # of this or an earlier round
        if has_answers and has_gradients:
            self._observations.fit()  # which shrinks the weights; `lengthened` makes up for that
            self._model = self._observations.lengthened()
        if self._is_half_done and self._descent_is_better():
            self._descend()

    def _learn_features(self, cohorts: Sequence[CohortCounts]) -> None:
        """Make up rows anew, by the mean direction of the features that devices have reported.

        Rows of features stand for the population when a model is fitted to gradients. The gradients
        that were observed so far stay; only the rows change.

        cohorts: the answers of this round to questions for the direction of features.
        """
        observation, _ = observation_of(cohorts)
        joined = None
        if self._features:  # of earlier rounds
            joined = self._features.joined(observation)
        if joined is None:  # it is the first one, or was clipped in another way
            joined = observation
        self._features = joined
        if self._rows is None:
            # The state has the observed gradients, and not the rows.
            state = self._observations.state()
            self._observations = self._empty_observations(self._features)
            self._observations.restore(state)

    # Public rows that do not suit

    @property
    def _distance(self) -> Distance | None:
        """How far the public rows are from the devices' features; None: these are unknown."""
        if self._public.rows is None or self._features is None:
            return None
        return distance(self._public.rows, self._features)

    @property
    def _rows_suit(self) -> bool:
        """Whether the public rows may stand for the devices' population.

        They must be enough, and neither the gradients nor the features may contradict them.
        """
        is_far = self._distance is not None and self._distance.is_far
        assert self._rows is not None
        are_enough = len(self._rows) >= _FEWEST_ROWS * self.d
        return are_enough and self._observations.rows_suit and not is_far

    def _drop_rows(self) -> None:
        """Go on as a run without public rows does.

        The gradients that have been observed are kept, but not the model that the rows gave.
        """
        self._dropped = DroppedRows(self._round, self._observations.misfit)
        state = self._observations.state()
        self._observations = self._empty_observations(self._features)
        self._observations.restore({**state, "weights": [0.0] * self.d})
        if self.reports is not None:
            self.rounds = len(self._parts_asked) - 1

    # Descent

    @property
    def _is_half_done(self) -> bool:
        """Whether the first half of the devices have been asked, and no more of them."""
        if self.reports is None:  # a served fleet has no halves
            return False
        asked = self._asked_by(self._round)
        return asked > 0 and asked == self._second_half.start

    def _descent_is_better(self) -> bool:
        """Tell whether the second half of the devices shall go on by descent.

        Descent needs no rows: features that stand for the population when a model is fitted. It is
        used if the user wants it, or if it is expected to learn more from them: if rows that suit
        the population are too few for such clear answers, or if no rows suit and the first gradient
        is clear.
        """
        then = self.options.then
        is_chosen_by_user = then != "auto"
        if is_chosen_by_user or self.last_gradient is None:
            return bool(then == FedSGD.name)
        if self._observations.rows_suit:
            return self._observations.rows_error_over_noise >= _LIMITED
        return self._observations.signal_to_noise >= _CLEAR

    def _descend(self) -> FedSGD:
        """Begin a gradient descent at the model so far, and return it.

        Only the second half of the devices take part, since the others have answered. Each of them
        reports once.
        """
        shared_options = {}
        for name in names_of(LearningOptions):
            shared_options[name] = getattr(self.options, name)
        reports = self._second_half.stop - self._second_half.start
        # A report of the descent costs no more than an answer would have.
        classes = [DeviceClass(design.cost, design.share) for design in self.designs]
        descent = FedSGD(
            options=FedSGD.Options(**shared_options, reports=reports),
            population=replace(self._population, clients=reports),
            data=self.dataset,
            classes=classes,
        )
        descent.begin_at(self._model)
        self.rounds = self._round + (descent.rounds or 0)
        self._descent = descent
        return descent

    def chosen(self) -> dict[str, float]:
        if self._descent and self._descent.last_gradient:
            return self._descent.chosen()
        return {}

    # State and result

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        features, dropped, descent = None, None, None
        if self._features:
            features = self._features.state()
        if self._dropped:
            dropped = list(self._dropped)
        if self._descent:
            descent = self._descent.state()
        return {
            "round": self._round,
            "last": self.last_gradient,
            "dropped": dropped,
            "refused": self._features_are_refused,
            "features": features,
            "seen": self._observations.state(),
            "descent": descent,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError for the state of another learner."""
        with reading_state("one answer of each device"):
            self._round = int(state["round"])
            self.last_gradient = state["last"]
            self._features_are_refused = bool(state["refused"])
            self._dropped = None
            if state["dropped"]:
                round_, misfit = state["dropped"]
                self._dropped = DroppedRows(int(round_), float(misfit))
            if self.reports is not None:
                self.rounds = len(self._parts_asked) - 1
            self._features = None
            if state["features"]:
                self._features = Observation.of_state(state["features"])
            self._observations = self._empty_observations(self._features)
            self._observations.restore(state["seen"])
            self._model = self._observations.lengthened()
            self._descent = None
            if state["descent"]:  # a gradient descent had begun
                self._descend().restore(state["descent"])

    def optimisation(self) -> dict[str, Any]:
        """Return how the model was updated, for JSON.

        It is the optimiser, its learning rate if there was one, and why the training stopped.
        """
        if self._descent:
            descent = self._descent.optimisation()
            return {**descent, "optimiser": f"direct, then {descent['optimiser']}"}
        return super().optimisation()

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the result of learning, for JSON.

        Beside what all algorithms have, it tells how well the public rows suited the population,
        and whether descent followed.

        history: an entry for each round; those of the descent come last.
        """
        observations, descent = self._observations, self._descent
        result = {
            **super().result(history),
            "public_rows": self._rows_in_result(),
            "weights_error": observations.deviations().tolist(),  # standard deviations
            "taus": {},  # how many rounds clipped values to which tau; only a descent does so
            "then": None,
        }
        if descent:
            result["weights_error"] = None  # the errors were of the model before it
            result["taus"] = rounds_by_tau(history[self._round :])
            result["then"] = {
                "algorithm": descent.name,
                "rounds": len(history) - self._round,
            }
            result["last_gradient"] = descent.last_gradient
        return result

    def _rows_in_result(self) -> dict[str, Any]:
        """Return what the result tells of the public rows, for JSON.

        - from: what they are, in words; empty if there are none
        - suited: whether they were of the devices' population, as far as known
        - misfit: of the first gradient; about 1 if the rows are right
        - distance: how far the mean direction of the rows is from that of the devices' features,
            squared; None if that is unknown
        - dropped: after how many rounds the run went on without them; None if it did not
        - features_refused: whether no device could report its features
        """
        suited, misfit, dropped = self._observations.rows_suit, self._observations.misfit, None
        if self._dropped:
            suited, misfit, dropped = False, self._dropped.misfit, self._dropped.round
        squared_distance = None
        if self._distance:
            squared_distance = max(0.0, self._distance.squared)
        return {
            "from": self._public.name,
            "suited": suited,
            "misfit": misfit,
            "distance": squared_distance,
            "dropped": dropped,
            "features_refused": self._features_are_refused,
        }

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the result in lines for people, with the public rows and the descent, if any."""
        if "label_means" in result:  # of devices with several records
            return DirectOfMany.summary(result)
        lines = [*super().summary(result), _rows_line(result)]
        then = result["then"]
        if then:
            rounds = counted(then["rounds"], "round")
            words = f"the second half of the devices went on by descent, in {rounds}"
            lines.append(f"{words}: {clipped(result['taus'])}")
        return lines


def _rows_line(result: Mapping[str, Any]) -> str:
    """Return a line for people about the rows that showed how the features of records vary.

    These are public rows, made-up ones by the devices' reports, or none.
    """
    rows = result["public_rows"]
    name = rows["from"]
    refused = rows.get("features_refused", False)
    if not name and (refused or result["options"].get("moments") == 0):
        return "without public rows: the features are taken for uncorrelated, with a mean of 0"
    if not name:
        return "without public rows: devices told the mean direction of their features"

    misfit = ""
    if rows["misfit"] > _MISFIT:
        misfit = f" (misfit {rows['misfit']:.1f}, where 1 is right)"
    if rows["suited"]:
        return f"the second moment of the features is that of {name}{misfit}"
    instead = "devices told the mean direction of their features instead"
    if refused:
        instead = "no device could tell of its features, so these are taken for uncorrelated"
    return f"{name} do not suit the devices' records{misfit}: {instead}"


def _lacks_features(result: RoundResult) -> bool:
    """Return whether devices were asked for their features, and lack the module that reports them.

    result: the answers of a round, none of them about features.
    """
    were_asked = any(cohort.question.model == VALUES for cohort in result.cohorts)
    codes = {refusal.code for refusal in result.refusals.values()}
    return were_asked and ERR_MODEL in codes


def _combined_variance(designs: Sequence[ReportDesign], variances: Sequence[float]) -> float:
    """Return the variance of a value, if reports of all classes are combined by inverse variance.

    It is that of a single report; an estimate from n reports has an n-th of it. Precisions, the
    inverse variances, add up, weighted by the shares of the classes.

    designs: the report design of each class, and what share of the devices it has.
    variances: the variance of the value in a report of each class.
    """
    precision = 0.0
    for design, variance in zip(designs, variances, strict=True):
        precision += design.share / variance
    return 1 / precision
