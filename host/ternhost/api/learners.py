"""Learners as objects: what a run learns, and how.

Each class here is the options dataclass of an algorithm under the algorithm's own name. Its fields,
their defaults and their checks are declared there, once for the command line and for Python. A
learner of another package is its options dataclass, which `ternhost.Run` takes as well.

Two forms of values stand for each other wherever a number is kept exactly: `epsilon=0.1`,
`epsilon="0.1"` and `epsilon=Decimal("0.1")` are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from ternhost.learn.collecting import collect, means
from ternhost.learn.distributions import quantile_options
from ternhost.learn.inference import infer
from ternhost.learn.models import fedavg, fedsgd
from ternhost.learn.one_answer import direct_options
from ternhost.learn.sums import fedsum


@dataclass(frozen=True)
class Direct(direct_options.Options):
    """Learn a linear model from one answer of each device, about all of its records.

    If a device holds one record, the model is of two classes.

    - data: the records: the name of a data set, a table such as "my.csv", or
      devices:FEATURES[:CLASSES] for records that only the devices know
    - by: the column of the table that says which device a record belongs to
    - time: the column of the table that orders the records of a device
    - held_out: the share of the records that judge the model, and that no device holds
    - records: the most records of a device, a public number. Where tern deals the records of a data
      set, each device gets that many. None: 1, or with `by` the most that a device has
    - model: logistic, which is the default for two classes; linear and softmax also if devices hold
      several records
    - threshold: the probability above which the model predicts label 1; or, as a text, costs of a
      false alarm and of a miss, "1:5", or the share of records to predict as 1, "24%"
    - seed: of all random choices but the noise of boards
    - epsilon: of one report, which is all that a device spends
    - epsilons: classes of devices, as "1:0.5,4:0.5": the epsilon of each, and its share
    - batch: how many records of a device its report uses; 0: all
    - reports: how many; None: one of each device. With more reports than devices, which then hold
      several records, a device answers several times, and spends as much each time
    - public: rows of features that are nobody's secret: a CSV file, a number of rows of the data
      set, or "none"; by default those that the data set declares
    - share_of_positives: the share of all records with label 1, if it is public and devices hold
      several records; None: it is that of the labels of public rows, or the devices are asked
    - moments: the share of the devices that tell of their features, in place of public rows
    - then: "fedsgd": the second half of the devices go on by descent; "none": they do not; "auto":
      as is expected to be better
    - ask_by_records: whether devices that own their records are asked by how many they have, so that
      a question shows about how many its device has

    Raises UsageError for values that make no sense, alone or together.
    """


@dataclass(frozen=True)
class FedSGD(fedsgd.Options):
    """Learn a linear model in many rounds, from gradients of a group of devices in each.

    - data, by, time, held_out, records, seed, threshold, epsilon, epsilons: as of `Direct`
    - model: linear, logistic, svm or softmax; "": linear for numbers, else logistic
    - batch: how many records of a device its gradient uses; 0: all
    - reports: how many in all; with fewer devices than that, each reports in several rounds, and
      spends as much in each; None: one of each device, at most 20,000
    - group: how many devices a round asks; 0: tern chooses
    - rounds: how many rounds, instead of `group`; without `reports`, each asks all devices
    - rate: the learning rate; None: it follows from the noise
    - regularisation: how many times the weights are added to the gradient
    - optimiser: the name of what updates the model
    - clip: R, to clip values to +-2**-R, or "auto": R follows from earlier rounds
    - tolerance: the run ends after a round that moves no weight of the model by more; 0: none does
    - mechanism: the name of what perturbs values
    - card: instead of a mechanism, a `Card`, its bytes, or its file
    - k: coordinates of a report, each at epsilon / k: a number, or a rule: variance, wide or paper

    Raises UsageError for values that make no sense, alone or together.
    """


@dataclass(frozen=True)
class FedAvg(fedavg.Options):
    """Learn a linear model in rounds, from models that devices train on their own records.

    - data, by, time, held_out, seed, threshold: as of `Direct`
    - model, mechanism, card, k: as of `FedSGD`
    - epsilon: of one report
    - epsilons: classes of devices, as "0.25:2:0.5,0.5:8:0.5": the bound to which a class clips,
      its epsilon, and its share
    - batch: how many records a step of the training uses; 0: all, but at most 32
    - clients: how many take part; 0: all
    - records: as of `Direct`, but 8 for None without `by`
    - rounds: how many
    - share: of the clients that report in a round; None: 1 / rounds
    - local_epochs: how many epochs a client trains in a round
    - local_rate: N, for a learning rate of 2**-N on a client
    - tau: the bound to which the change of a weight in a round is clipped
    - weights: of a class of devices: "clients", by their number, or "variance", by the noise

    Raises UsageError for values that make no sense, alone or together.
    """


@dataclass(frozen=True)
class FedSum(fedsum.Options):
    """Learn a linear model of devices that hold many records, and protect single records.

    - data, by, time, held_out, seed, threshold: as of `Direct`; model: as of `FedSGD`
    - unit: what is protected: "record", a number of consecutive records, or "device"
    - run_epsilon: the epsilon, at `delta`, that the whole run spends
    - delta: of that epsilon
    - records: as of `Direct`, but 500 for None without `by`
    - public: rows of features that are nobody's secret, as of `Direct`, and with the same default;
      fewer than 300 rows are not used by default

    Raises UsageError for values that make no sense, alone or together.
    """


@dataclass(frozen=True)
class Values(collect.Options):
    """Estimate the mean of each attribute, and the frequency of each category, from values.

    - data, by, time, seed: as of `Direct`; mechanism, card, k: as of `FedSGD`
    - clients: how many are asked; 0: all
    - epsilon: of one report
    - epsilons: classes of devices, as of `Direct`, or as of `FedAvg` with a bound to which the
      numbers of a class are clipped

    Raises UsageError for values that make no sense, alone or together.
    """


@dataclass(frozen=True)
class Means(means.Options):
    """Estimate means of devices that hold many records, and protect single records.

    - data, by, time, seed: as of `Direct`
    - unit, run_epsilon, delta, records: as of `FedSum`

    Raises UsageError for values that make no sense, alone or together.
    """


@dataclass(frozen=True)
class Quantiles(quantile_options.Options):
    """Estimate medians, other quantiles and histograms of numbers.

    - data, by, time, seed: as of `Direct`
    - quantiles: a list such as (0.5, 0.9) or "median,p99"
    - attributes: the names of the numbers; "": all numbers of the table
    - bins: of the histograms, 16, 64, 256 or 1024; None: by the number of devices and the epsilon
    - publish: the quantile that boards get as limits, such as 0.99; None: they get none
    - clients, epsilon: as of `Values`, if devices are protected
    - unit: as of `FedSum`, but by default "device"
    - run_epsilon, delta, records: as of `FedSum`, if the unit is another one than the device

    Raises UsageError for values that make no sense, alone or together.
    """


@dataclass(frozen=True)
class Infer(infer.Options):
    """Classify records on the devices, which report what they found under noise.

    - data, by, time: as of `Direct`; the clients get the records that are held out
    - seed: of all random choices but the noise of boards
    - epsilon: of one report; epsilons: classes of devices, as of `Direct`
    - answer: what a report has: "vector", of probabilities, or "label"
    - no_noise: nothing is protected, for comparison; simulated clients alone do this
    - held_out: the share of the records that the clients get; a classifier is trained on the rest
    - classifier: instead of that, the directory of a finished run, whose model classifies
    - score_rounds: how many of that run's rounds are scored
    - clients: how many are asked; 0: 1000, or all if there are fewer
    - score: the name of what judges the clusters of the vectors

    Raises UsageError for values that make no sense, alone or together.
    """
