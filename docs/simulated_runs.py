"""The runs behind the tables about learning: each function simulates one, and returns its figures.

Every function takes a seed, which determines all that is random in the run: which device holds
which records, and the noise. It returns one row with the figures by name, in a list, as `Cell` of
ternhost.planning.cells asks. All devices are simulated.
"""

import argparse
import sys
from array import array
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import unequal_boards

import ternhost
from tern.features import Window
from tern.fixed import ONE
from tern.wire import LOGISTIC
from ternhost import datasets
from ternhost.cli import running
from ternhost.cli.tree import build_parser
from ternhost.datasets import MULTICLASS, Dataset
from ternhost.demo import jobs
from ternhost.learn.base import Population, algorithms_of
from ternhost.learn.inference.infer import Infer
from ternhost.learn.models import judging
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.models.losses import mean_labels
from ternhost.learn.models.optimum import fit, optimum
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.one_answer.direct import Direct
from ternhost.learn.one_answer.mean_gradients import Answer, LabelFacts, MeanGradients
from ternhost.learn.one_answer.observations import Observation
from ternhost.learn.parameters import MODELS, quantise
from ternhost.learn.sums.fedsum import FedSum
from ternhost.planning import records
from ternhost.planning.simulation import (
    default,
    fleet_of,
    optimal_figures,
    rounds,
    simulate,
)
from ternhost.planning.years import RoundsForYears
from ternhost.reach import fleet
from ternhost.run.begin import make_learner, population
from ternhost.run.options import RunOptions

sys.path.append(str(Path(__file__).parents[1] / "examples/activity"))
from sensor import ACTIVITIES, Person, windows

ROWS_OF_FILE = 1_000


class Rows(NamedTuple):
    """Which flights of flights-planned are the public rows of a file, and in which scale."""

    feature: str = "hour"
    least: float = -1.0  # a flight is of this kind if the feature is at least this value
    factor: float = 1.0  # by which all features but the constant are multiplied


# Winter is from December to February, the evening from 5 pm on.
FILES_OF_ROWS = {
    "flights.csv": Rows(),
    "winter.csv": Rows("month_cos", 0.8),
    "evening.csv": Rows("hour", 0.66),
    "tenth.csv": Rows(factor=0.1),
}
WEARERS = 20  # people with a board each, whose windows are protected
SEEDS_OF_PEOPLE = 4  # in a row that have the same people, where one report of each is judged
JUDGED_WINDOWS = 600  # of each of them on another day
DRAWN_RECORDS = 3_000_000  # of all simulated devices that show the bias of clipping
BOUT = 4  # windows in which a simulated person does the same, as in examples/activity/main.py
DAY_OF_TRAINING, DAY_OF_JUDGING = 2, 1  # numbers of days, each of which is simulated differently


# Runs of commands


def options_of(command):
    """Return the options of a run from a command, such as "train --epsilon 1"."""
    words = command.split()
    without_project_file = argparse.Namespace(from_project={})
    args = build_parser(words).parse_args(words, without_project_file)
    return running.parsed(args, algorithms_of(args.command))


def learner_of(command):
    """Return the learner that a command runs, on simulated devices, before its first round."""
    options = options_of(command)
    return make_learner(options, population(fleet.parse(options.fleet), None, None))


def of_command(command, seed):
    """Run a command; return the figures of the trained model, or of the inference, and its rounds.

    command: of `tern train` or `tern infer` with --fleet simulated:N, and without --seed. It may
    name a file of FILES_OF_ROWS, which is made.
    """
    with TemporaryDirectory(prefix="tern-measure-") as folder:
        words = command.split()
        for position, word in enumerate(words):
            if word in FILES_OF_ROWS:
                words[position] = write_rows(word, Path(folder), seed)
        learner = simulate(learner_of(f"{' '.join(words)} --seed {seed}"), seed)
    return [{**learner.figures(), "rounds": learner.rounds}]


def write_rows(name, folder, seed):
    """Write a file of public rows into a folder, and return its path.

    name: of FILES_OF_ROWS. seed: determines which of the records of this kind are taken.
    """
    kind = FILES_OF_ROWS[name]
    data = datasets.load("flights-planned")
    of_kind = data.features[:, data.feature_names.index(kind.feature)] >= kind.least * ONE
    positions = np.intersect1d(data.training, np.flatnonzero(of_kind))
    chosen = np.random.default_rng(seed).choice(positions, ROWS_OF_FILE, replace=False)
    path = folder / name
    rows = data.features[chosen] / ONE
    rows[:, 1:] *= kind.factor
    np.savetxt(path, rows, delimiter=",", fmt="%.5f")
    return str(path)


def without_privacy(data, seed):
    """Return the figures of the model without privacy, from all records of a data set."""
    dataset, model = records.load(data)
    return [optimal_figures(dataset, model)]


def without_features(data, seed):
    """Return the figures of the answer that knows only the shares of the classes."""
    dataset, model = records.load(data)
    return [judging.baselines(dataset, MODELS[model])]


def without_privacy_on_boards(command, seed):
    """Return the figures of the model without privacy, from the records of the boards of a command.

    command: of `tern train --unit record`.
    """
    learner = learner_of(f"{command} --seed {seed}")
    data, model = learner.dataset, MODELS[learner.model]
    records_of_boards = learner.holdings.records[learner.holdings.order]
    held = Dataset(
        name=data.name,
        task=data.task,
        feature_names=data.feature_names,
        features=records_of_boards[:, :-1],
        labels=records_of_boards[:, -1],
        held_out=np.zeros(len(records_of_boards), np.bool_),
    )
    weights = fit(model, held, TrainingPlan.regularisation)
    return [judging.figures(data, model, weights)]


def share_of_the_positive(data, seed):
    """Return the share of the held-out records with label 1: what guessing finds."""
    _, labels = datasets.load(data).judged
    return [{"share": float((labels > 0).mean())}]


# Other runs


def of_demo(job, seed):
    """Run a job of `tern demo` on simulated boards; return the share of the warned that were late.

    job: its name, or "" for the model without privacy.
    """
    dataset = datasets.load(jobs.DATASET)
    if not job:
        weights = optimum(MODELS[jobs.MODEL], dataset, TrainingPlan.regularisation)
        return [{"warned": jobs.Quality.of(dataset, weights).warned}]
    jobs_by_name = {each.name: each for each in jobs.JOBS}
    chosen = jobs_by_name[job]
    if "records" in chosen.options:  # boards, each with many records
        _, _, devices = chosen.options["fleet"].partition(":")
    else:  # one report of each device; the boards stand for many of them
        devices = chosen.options["reports"]
    changed = {**chosen.options, "fleet": f"simulated:{devices}", "seed": seed}
    options = RunOptions.parse(chosen.learner, changed, algorithms_of("train"))
    learner = make_learner(options, population(fleet.parse(options.fleet), None, None))
    weights = simulate(learner, seed).weights
    return [{"warned": jobs.Quality.of(dataset, weights).warned}]


def warned_by_command(command, seed):
    """Run a command; return the share of the flights that its model warns of that were late.

    command: of `tern train --data flights-planned` with --fleet simulated:N, and without --seed.
    """
    learner = simulate(learner_of(f"{command} --seed {seed}"), seed)
    return [{"warned": jobs.Quality.of(learner.dataset, learner.weights).warned}]


def of_years(data, every, run_epsilon, devices, seed):
    """Train for a year, in which every device answers each round; return the figures of the model.

    Fewer reports with a larger epsilon and the same noise stand for those of the year. every: the
    time between two rounds, such as "1d". run_epsilon: of all reports at delta 1e-6, in rho.
    """
    dataset, model = records.load(data)
    year = RoundsForYears(years=1, every=every, run_epsilon=run_epsilon)
    equivalent = year.fewer_equivalent_reports(dataset, model, devices)
    learner = equivalent.learner(dataset, model, devices, seed)
    return [simulate(learner, seed).figures()]


@cache
def epsilon_toward_server(devices, reports):
    """Return the epsilon of a report that --toward-server 1 chooses.

    devices: of each site. reports: how many each device sends.
    """
    from terngateway import experiment as gateways  # here, as tern works without the package

    return f"{gateways.chosen(devices, reports):.3g}"


def epsilons_behind_gateways(devices, reports, seed):
    """Return the epsilons of a run with --toward-server 1, of one report and of all of a device.

    devices: of each site. reports: how many each device sends. seed: has no effect.
    """
    epsilon = float(epsilon_toward_server(devices, reports))
    return [{"epsilon": epsilon, "local_epsilon": epsilon * reports}]


def behind_gateways(data, devices, toward_server, reports, seed):
    """Train with the devices of three sites; return the figures of the model.

    devices: of each site. toward_server: whether epsilon 1 limits what the counts of a site tell,
    over all rounds. Otherwise it is the epsilon of a report. reports: how many each device sends: 1,
    or one in each of 20 rounds.
    """
    from terngateway import experiment as gateways

    dataset, model = records.load(data)
    clients = gateways.SITES * devices
    if toward_server and reports > 1:
        epsilon = epsilon_toward_server(devices, reports)
        options = FedSGD.Options(rounds=reports, seed=seed, model=model, epsilon=epsilon)
        learner = FedSGD(options, Population(clients=clients), dataset)
    elif toward_server:
        epsilon = epsilon_toward_server(devices, reports)
        learner = gateways.all_at_once(dataset, clients, seed, model, epsilon)
    else:
        learner = default(dataset, clients, seed, model, "1")
    return [simulate(learner, seed).figures()]


def of_scores(train_options, epsilon, models, devices, seed):
    """Train a model on digits, and score it after several of its rounds by reports of devices.

    train_options: of `ternhost.FedSGD`, as pairs. epsilon: that of a report about a model. models:
    how many are scored. devices: how many report about each. The figures of the first model end in
    _1, and so on; they are the round, the loss, and the score with and without noise.
    """
    figures = {}
    with TemporaryDirectory(prefix="tern-measure-") as folder:
        learner = ternhost.FedSGD(**dict(train_options), seed=seed)
        simulated = ternhost.Simulated(learner.reports)
        ternhost.train(learner, simulated, name="first", directory=folder)
        options = Infer.Options(
            data=learner.data,
            classifier=Path(folder) / "first",
            score_rounds=models,
            epsilon=epsilon,
            seed=seed,
        )
        inference = Infer(options, Population(clients=devices))
        for number, _ in enumerate(rounds(inference, fleet_of(inference, seed)), start=1):
            for name, value in inference.figures().items():
                figures[f"{name}_{number}"] = value
    return [figures]


# Boards with many records each, one report of each board


def of_unequal_boards(kind, more, boards, records, epsilon, bound, months, seed):
    """Train by one report of each board of a fleet of `unequal_boards`; return the figures.

    kind: the function that makes the fleet. more: its further arguments, as pairs. records: of each
    board. bound: the number that --records names; None: classes by the numbers of the boards.
    months: those whose held-out records judge the model; empty for all.
    """
    rng = np.random.default_rng(seed)
    data = kind(boards, records, rng, **dict(more))
    if months:
        data = unequal_boards.judged_by_months(data, months)
    options = Direct.Options(
        epsilon=epsilon,
        records=bound,
        ask_by_records=bound is None,
        seed=seed,
        data=data.name,
    )
    learner = Direct.suited(options, Population(clients=boards), data)
    return [simulate(learner, seed).figures()]


# Activities: the people of examples/activity


def lived(person, day, bouts):
    """Return the features (n x 13, Q1.14) and the activities of the windows of a simulated day."""
    window = Window(128, hop=64)
    row = array("h", bytes(2 * window.d))
    labels, rows = [], []
    for activity in windows(Person(person, day), window, row, bouts):
        labels.append(activity)
        rows.append(list(row))
    return np.array(rows, np.int16), np.array(labels, np.int16)


@lru_cache(maxsize=2)
def people(first, count, training_windows, judged_windows):
    """Return the data set of people, each of whom owns the windows of a day.

    first: the number of the first one. training_windows: of each person, which the board holds.
    judged_windows: of each person on another day, which judge the model.
    """
    features, labels, owners, held_out = [], [], [], []
    for number in range(count):
        for day, most in ((DAY_OF_TRAINING, training_windows), (DAY_OF_JUDGING, judged_windows)):
            bouts = -(-most // BOUT)  # rounded up; more windows than `most` are cut off
            all_features, activities = lived(first + number, day, bouts)
            of_day = all_features[:most]
            features.append(of_day)
            labels.append(activities[:most])
            owners.append(np.full(len(of_day), number))
            held_out.append(np.full(len(of_day), day == DAY_OF_JUDGING))
    matrix = np.concatenate(features)
    return Dataset(
        name="activities",
        task=MULTICLASS,
        feature_names=("constant", *(f"x{i}" for i in range(1, matrix.shape[1]))),
        features=matrix,
        labels=np.concatenate(labels),
        held_out=np.concatenate(held_out),
        classes=ACTIVITIES,
        owners=np.concatenate(owners).astype(np.int64),
        owner_names=tuple(f"person {number}" for number in range(count)),
    )


def of_wearers_minutes(cases, budgets, seed):
    """Train with twenty people as examples/activity does; return the accuracies on another day.

    Each seed has other people. cases: pairs of how many windows each board keeps, and how many in a
    row are protected. budgets: the epsilons of all reports at delta 1e-6. The name of a figure is
    accuracy, the case and the budget, as in accuracy_640_47_4.
    """
    most_windows = max(windows_of_board for windows_of_board, _unit in cases)
    first_person = 1 + WEARERS * seed
    data = people(first_person, WEARERS, most_windows, JUDGED_WINDOWS)
    figures = {}
    for windows_of_board, unit in cases:
        held = first_windows(data, windows_of_board)
        for budget in budgets:
            options = FedSum.Options(
                model="softmax",
                records=windows_of_board,
                unit=unit,
                run_epsilon=budget,
                seed=seed,
            )
            learner = simulate(FedSum(options, Population(clients=WEARERS), held), seed)
            figures[f"accuracy_{windows_of_board}_{unit}_{budget}"] = learner.figures()["accuracy"]
    return [figures]


def of_whole_wearers(windows_of_board, epsilons, seed):
    """Train with twenty people by one report of each about all windows of its board.

    Four seeds in a row have the same people. epsilons: of a report. Returns the accuracies on another day, by
    direct and by fedsgd, under names such as accuracy_direct_4. Beside them are those of the model
    that protects any minute at (4, 1e-6), as examples/activity does, and of the answer that knows
    no features: accuracy_minute and accuracy_none.
    """
    group = (seed - 1) // SEEDS_OF_PEOPLE
    data = people(1 + WEARERS * group, WEARERS, windows_of_board, JUDGED_WINDOWS)
    fleet = Population(clients=WEARERS)
    common = {"model": "softmax", "records": windows_of_board, "seed": seed}
    minute = FedSum(FedSum.Options(unit=47, run_epsilon="4", **common), fleet, data)
    figures = {
        "accuracy_minute": simulate(minute, seed).figures()["accuracy"],
        "accuracy_none": judging.baselines(data, MODELS["softmax"])["accuracy"],
    }
    for epsilon in epsilons:
        for learner in (Direct, FedSGD):
            options = learner.Options(epsilon=epsilon, **common)
            if learner is Direct:
                chosen = Direct.suited(options, fleet, data)
            else:
                chosen = FedSGD(options, fleet, data)
            accuracy = simulate(chosen, seed).figures()["accuracy"]
            figures[f"accuracy_{learner.name}_{epsilon}"] = accuracy
    return [figures]


def first_windows(data, most):
    """Return a data set of people in which each of them holds only the first windows of a day."""
    is_kept = data.held_out.copy()
    for owner in range(len(data.owner_names)):
        of_owner = np.flatnonzero((data.owners == owner) & ~data.held_out)
        is_kept[of_owner[:most]] = True
    return replace(
        data,
        features=data.features[is_kept],
        labels=data.labels[is_kept],
        held_out=data.held_out[is_kept],
        owners=data.owners[is_kept],
    )


def of_wearers(count, windows_of_board, epsilon, seed):
    """Train from one report of each of many people; return the accuracy on another day.

    All seeds have the same people. A report protects all windows of a board. Each round asks 20.
    """
    data = people(1, count, windows_of_board, BOUT)
    options = FedSGD.Options(
        model="softmax",
        epsilon=epsilon,
        batch=32,
        clip="5",
        group=20,
        reports=count,
        seed=seed,
    )
    return [simulate(FedSGD(options, Population(clients=count), data), seed).figures()]


# The bias of clipped mean gradients


def bias_of_clipping(records, questions, seed):
    """Return how clipping moves the mean gradient of devices, and what a fit without noise leaves.

    Devices hold flights of flights-planned. They are asked as `direct` asks them, first at the share
    of late flights that public rows have, then at the model so far. Clipping moves the mean of their
    gradients: the figures of the first question are its bias and the bound of it, E|v|^2 / 4 R, both
    as shares of the radius R, and the bias as a share of the mean gradient's length. After the last
    question they are what the model leaves of the latter, and its AUC and mean prediction.

    records: of a device. questions: how many are asked.
    """
    data = datasets.load("flights-planned")
    rows = data.features[data.public] / ONE
    fitted = _fit_with_known_share(data, rows)
    first_weights = quantise(fitted.weights).values
    mean = _gradients_at(first_weights, data).mean(axis=0)
    length = np.linalg.norm(mean)
    figures = {}
    for question in range(questions):
        asked = quantise(fitted.weights).values
        radius = fitted.radius(asked, records)
        gradients = _gradients_at(asked, data)
        clipped_mean, squared_length = _clipped_mean(gradients, records, radius, [seed, question])
        if question == 0:
            bias = np.linalg.norm(clipped_mean - mean)
            figures["radius"] = radius
            figures["bias"] = bias / radius
            figures["bound"] = squared_length / (4 * radius**2)
            figures["relative_bias"] = bias / length

        # As good as without noise: that of the drawn devices alone.
        devices = DRAWN_RECORDS // records
        variance = squared_length / devices / len(asked)
        fitted.add(Answer(Observation(asked, clipped_mean, variance, radius), records))
        fitted.fit()

    weights = fitted.weights
    moved = mean_labels(LOGISTIC, rows @ first_weights) - mean_labels(LOGISTIC, rows @ weights)
    mean_by_model = moved @ rows / len(rows)
    figures["left"] = np.linalg.norm(mean_by_model - mean) / length
    figures["auc"] = judging.figures(data, LOGISTIC, weights)["auc"]
    figures["mean_label"] = float(fitted.mean_label[0])
    return [figures]


def _fit_with_known_share(data, rows):
    """Return a fit without answers, by public rows whose labels tell the share of late flights."""
    share = (data.labels[data.public] > 0).mean()
    deviation = (share * (1 - share) / len(rows)) ** 0.5
    return MeanGradients(LOGISTIC, rows, LabelFacts(np.array([share]), deviation))


def _gradients_at(weights, data):
    """Return the gradients of all training records of a data set (n x values)."""
    features = data.features[data.training] / ONE
    labels = data.labels[data.training] > 0
    residuals = mean_labels(LOGISTIC, features @ weights) - labels
    return residuals[:, None] * features


def _clipped_mean(gradients, records, radius, seed):
    """Return the mean of clipped mean gradients, and the mean squared length before clipping.

    gradients: of single records, of which each device holds some at random (n x values).
    records: how many. radius: the length to which a device clips. seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    devices = DRAWN_RECORDS // records
    total, total_squared = np.zeros(gradients.shape[1]), 0.0
    at_once = max(1, 100_000 // records)
    for start in range(0, devices, at_once):
        count = min(at_once, devices - start)
        means = gradients[rng.integers(0, len(gradients), (count, records))].mean(axis=1)
        squared = np.square(means).sum(axis=1)
        factors = np.minimum(1, radius / np.sqrt(squared))
        total += factors @ means
        total_squared += float(squared.sum())
    return total / devices, total_squared / devices
