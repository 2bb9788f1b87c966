"""The two jobs of the demo: what they learn, how well after each round, and what that costs."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ternfirmware
from ternhost import child_processes, datasets
from ternhost.datasets import Dataset
from ternhost.learn.base import algorithms_of
from ternhost.learn.models import judging
from ternhost.learn.models.learning import Learning
from ternhost.learn.models.optimum import optimum
from ternhost.learn.models.training import TrainingPlan
from ternhost.learn.parameters import MODELS, Floats
from ternhost.privacy.guarantee import Guarantee, Span
from ternhost.run import directory as run_directory
from ternhost.run import guarantees
from ternhost.run import result as results
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import END, Status, Watcher

DATASET = "flights-planned"
MODEL = "logistic"
_WARNED = 0.1  # the share of the flights that a model warns of


@dataclass(frozen=True)
class Quality:
    """How good a model is, judged on flights that no device holds.

    warned: a model warns of the tenth of the flights that it thinks most likely to be late; the
    share of these that were late.
    told_apart: of all pairs of a late and a punctual flight, the share in which the model gives the
    late one the higher score. This is the AUC.
    """

    warned: float
    told_apart: float

    @classmethod
    def of(cls, dataset: Dataset, weights: Floats) -> "Quality":
        """Judge a model by its weights, one for each feature."""
        features, labels = dataset.judged
        scores = judging.scores(features, weights)
        by_score = np.argsort(scores, kind="stable")
        warned = by_score[-round(_WARNED * len(scores)) :]
        late = labels > 0
        figures = judging.figures(dataset, MODELS[MODEL], weights)
        return cls(warned=float(late[warned].mean()), told_apart=figures[judging.AUC])

    @classmethod
    def of_guessing(cls, dataset: Dataset) -> "Quality":
        """Return the quality that warnings of flights picked at random are expected to have."""
        _, labels = dataset.judged
        return cls(warned=float((labels > 0).mean()), told_apart=0.5)


@dataclass(frozen=True)
class Job:
    """One way of learning: its run's options, and its words.

    name: of the run. title: who learns. protects: what nobody can find out, in two words.
    noise: how it is protected, in sentences. learner, options: of `tern train`.
    pico_figure: the name of the time that a report takes on a Pico, in firmware/figures.json.
    """

    name: str
    title: str
    protects: str
    noise: str
    learner: str
    options: Mapping[str, Any]
    pico_figure: str


DEVICES = Job(
    name="devices",
    title="20,000 devices",
    protects="the device",
    noise="Each device reports one number, once. The mechanism Three-Outputs has perturbed it, so "
    "that it tells little about what the device holds (epsilon 4)",
    learner="fedsgd",
    # Each round asks 2,000 devices. With 500, the model of the first rounds is as good as their
    # luck, so that the curve of a single run may fall at first, though it rises in the mean of many.
    options={
        "data": DATASET,
        "fleet": "emulated:8",
        "reports": 20_000,
        "rounds": 10,
        "epsilon": "4",
        "mechanism": "three-outputs",
    },
    pico_figure="us_per_report",  # with 28 coordinates, where the flights have 31
)
BOARDS = Job(
    name="boards",
    title="20 boards",
    protects="one flight",
    noise="Each board reports sums over its flights. It has added Gaussian noise, so that they "
    "tell little about any single flight (epsilon 1 for life, at delta 1e-6)",
    learner="fedsum",
    options={
        "data": DATASET,
        "fleet": "emulated:20",
        "records": 500,
        "unit": "record",
        "run_epsilon": "1",
        "delta": "1e-6",
    },
    pico_figure="us_per_sum_of_500_flights",
)
JOBS = (DEVICES, BOARDS)


@dataclass(frozen=True)
class Cost:
    """What a job costs a device that takes part in it.

    epsilon, delta: of what the job protects, over the whole run. epsilon_of_content: where a flight
    is protected, `epsilon` is about whether it was there; this is about what it says. None where a
    device is protected, whose epsilon is about both.
    records: that a device holds. reports: that it sends. bytes_sent: in all of these.
    pico_seconds: that a Pico computes for all of these.
    """

    epsilon: float
    delta: float
    epsilon_of_content: float | None
    records: int
    reports: int
    bytes_sent: int
    pico_seconds: float


@dataclass(frozen=True)
class Learned:
    """A finished job.

    curve: the quality of the model after each round. cost: for a device that takes part.
    guarantee: a sentence. result: of its run, as in result.json; once its report is drawn, with the
    paths that `results.draw` returns.
    """

    job: Job
    curve: list[Quality]
    cost: Cost
    guarantee: str
    result: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return what has been learned, and what it cost, for JSON."""
        return {
            "protects": self.job.protects,
            **asdict(self.curve[-1]),
            "cost": asdict(self.cost),
            "guarantee": self.guarantee,
            "curve": [asdict(quality) for quality in self.curve],
            "seconds": self.result["seconds"],
            "run": self.result["run"],
            "report": self.result["report"],
        }


@dataclass(frozen=True)
class Demo:
    """The finished demo. directory: of its report."""

    directory: Path
    guessing: Quality
    without_privacy: Quality
    learned: list[Learned]

    def as_json(self) -> dict[str, Any]:
        """Return all facts of the demo for JSON."""
        facts: dict[str, Any] = {
            "guessing": asdict(self.guessing),
            "without_privacy": asdict(self.without_privacy),
        }
        for learned in self.learned:
            facts[learned.job.name] = learned.as_json()
        return facts

    @property
    def exit_code(self) -> int:
        """The exit code of the command: that of the first run with missing reports, if any."""
        for learned in self.learned:
            code = results.exit_code(learned.result)
            if code:
                return code
        return 0


class Spectator:
    """Is told how the demo goes on; by default it does nothing."""

    def begins(self, job: Job, guessing: Quality, without_privacy: Quality) -> None:
        """A job begins. Both qualities are what to compare its model with."""

    def round_ends(self, status: Status, quality: Quality) -> None:
        """A round has ended. quality: of the model after it."""

    def waits(self, text: str) -> None:
        """Something takes a moment. text: what that is."""

    def warns(self, text: str) -> None:
        """Something is wrong, but the demo goes on."""


class Drawing:
    """A process that draws the report of a run beside this one."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        """Start the process. result: of the run, as in result.json. Raises OSError."""
        self._result = result
        command = [sys.executable, "-m", "ternhost", "runs", "--json", "--draw"]
        self._process = child_processes.start(
            [*command, result["directory"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def finish(self) -> dict[str, Any]:
        """Wait for the process, and return what `results.draw` returns.

        If the process has failed, draw the report here. Raises StorageError.
        """
        output, _ = self._process.communicate()
        if self._process.returncode != 0:
            return results.draw(self._result)
        paths: dict[str, Any] = json.loads(output)
        return paths


def flights_and_references() -> tuple[Dataset, Quality, Quality]:
    """Return the flights, and what to compare models with: guessing, and no privacy.

    The flights and the model without privacy are computed only once, and then kept in tern's cache.
    """
    dataset = datasets.load(DATASET)
    best_weights = optimum(MODELS[MODEL], dataset, TrainingPlan.regularisation)
    return dataset, Quality.of_guessing(dataset), Quality.of(dataset, best_weights)


def run(
    spectator: Spectator, parent: Path = run_directory.RUNS, jobs: Sequence[Job] = JOBS
) -> Demo:
    """Run the jobs of the demo on emulated boards.

    parent: the directory of all runs; the demo gets a directory there, and each job one beside it.
    jobs: the two of the demo, or smaller ones. Raises TernError.
    """
    dataset, guessing, without_privacy = flights_and_references()
    directory = run_directory.new_directory(parent=parent)
    learned: list[Learned] = []
    drawings: list[Drawing] = []
    for job in jobs:
        if learned:
            # Drawing takes one core for seconds. Meanwhile, the next job uses the others.
            drawings.append(Drawing(learned[-1].result))
        spectator.begins(job, guessing, without_privacy)
        place = Place(name=f"{directory.name}-{job.name}", parent=parent)
        learned.append(_learn(job, dataset, place, spectator))
    spectator.waits("drawing the reports of the runs")
    drawn = [results.draw(learned[-1].result)]
    drawn = [*(drawing.finish() for drawing in drawings), *drawn]
    for finished, paths in zip(learned, drawn, strict=True):
        finished.result.update(paths)
    return Demo(directory, guessing, without_privacy, learned)


def _learn(job: Job, dataset: Dataset, place: Place, spectator: Spectator) -> Learned:
    """Run a job of the demo. Nothing is drawn yet.

    place: where the files of the run are kept.
    """
    options = RunOptions.parse(job.learner, job.options, algorithms_of("train"))
    curve: list[Quality] = []

    def on_status(status: Status) -> None:
        """Judge the model when a round ends."""
        if status.event == END:
            assert isinstance(training.algorithm, Learning)  # both jobs learn a model
            curve.append(Quality.of(dataset, training.algorithm.weights))
            spectator.round_ends(status, curve[-1])

    watcher = Watcher(on_status, spectator.warns, spectator.waits)
    with Run.begin(options, place, watcher) as training:
        result = training.run()
    guarantee = guarantees.worst(guarantees.classes_of(result), Span.RUN)
    assert guarantee is not None  # both jobs protect something
    return Learned(
        job=job,
        curve=curve,
        cost=_cost(job, guarantee, result),
        guarantee=guarantee.words(),
        result=result,
    )


def _cost(job: Job, guarantee: Guarantee, result: Mapping[str, Any]) -> Cost:
    """Return what a job has cost each device that took part in it."""
    bounds = guarantee.bounds
    delta = bounds.delta
    if bounds.pure is not None:
        delta = 0.0
    epsilon_of_content = None
    if guarantee.content is not None:
        epsilon_of_content = guarantee.content.epsilon
    reports = max(1, round(result["reports"] / clients_of(result)))
    return Cost(
        epsilon=bounds.epsilon,
        delta=delta,
        epsilon_of_content=epsilon_of_content,
        records=int(job.options.get("records", 1)),
        reports=reports,
        bytes_sent=reports * int(result["bytes_per_report"]),
        pico_seconds=reports * _pico_seconds(job),
    )


def clients_of(result: Mapping[str, Any]) -> int:
    """Return how many clients a run had, from the ledgers that it has read."""
    return sum(int(clients) for _epsilon, clients in result["epsilon_spent"])


def _pico_seconds(job: Job) -> float:
    """Return the time that a report of this job takes on a Pico.

    It was measured on the emulated Pico, and is kept in a file, against which a test measures it.
    """
    firmware = Path(next(iter(ternfirmware.__path__)))  # a package without a module of its own
    kept = json.loads((firmware / "figures.json").read_text())
    return float(kept["pico_emulated"][job.pico_figure]) / 1e6
