"""The base of learners: algorithms that ask devices a question in each round and learn from counts.

A learner is pure: it has no clock, and no input or output. Its state is a small JSON object, so
that a run can stop after any round and go on later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tern import card as cards
from tern import frames
from ternhost.count.questions import Averaged, Question, report_bytes, request_bytes
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Holdings
from ternhost.errors import UsageError
from ternhost.learn.designs import ReportDesign
from ternhost.learn.devices import Devices
from ternhost.learn.schedule import Schedule
from ternhost.options import require
from ternhost.registry import Registry

MOST_SIMULATED = 1_000_000_000  # clients

# A question, and the devices that it is for.
Cohort = tuple[Question, Sequence[int] | Devices]


@dataclass(frozen=True)
class Population:
    """The clients that a learner can ask."""

    clients: int | None = None  # None: as many as the learner needs
    most: int | None = None  # how many clients a learner makes where the user names no number
    schedule: Schedule | None = None  # of a fleet that is asked round after round
    devices: int = 0  # how many there are at the beginning; 0: unknown
    knows_records: bool = True  # whether the host knows what clients hold
    boards: int = 0  # how many are made for the run

    @property
    def known_clients(self) -> int | None:
        """How many clients there are, as far as that is known before the run; None: unknown."""
        return self.clients or self.boards or self.devices or None


class Learner:
    """The base of all algorithms.

    A subclass declares what it is (`name`, `command`, `Options`), sets the plan of the run in
    `__init__`, and defines the methods below, here in the order of a run. The run itself makes
    costs, policies and boards from `designs`.

    In each round, `cohorts` gives the questions and the devices that each is for, and `learn` takes
    the counts of their answers. Devices fall into classes, and each class has a card of its own.
    """

    # What it is.

    name: ClassVar[str]
    about: ClassVar[str] = ""  # what it does, in a line for the help
    example: ClassVar[str] = ""  # options for the example of its help
    command: ClassVar[str] = "train"  # that runs it
    collects: ClassVar[str] = ""  # what it estimates of attributes, in words; empty: nothing
    like: ClassVar[str] = ""  # a learner on whose page of help the options of both stand
    Options: ClassVar[Any]  # a dataclass of `option` fields, with a `seed`
    rounds_option: ClassVar[str] = "rounds"  # the option that sets how often a client reports
    draws_groups: ClassVar[bool] = False  # a fleet may draw the devices of a round: see `pools`

    # What a run needs for it.

    modules: tuple[str, ...] = ()  # of boards, beside those of every client
    individual: bool = False  # it needs each device's report by itself, not only counts
    once: bool = False  # it asks no device again that has answered
    label_classes: int | None = None  # the labels it needs (store/labels.py); None: it reads none
    unit: int = 0  # the number of consecutive records that reports protect; 0: the client
    delta: float = 1e-6  # of a total in rho

    # The plan, which `__init__` sets.

    options: Any
    designs: list[ReportDesign]  # a report of each class of devices
    rounds: int | None  # None: no end
    clients: int | None  # of the whole run; None: all that there are
    reports: int | None  # of all rounds together
    times: int = 1  # in how many rounds a client takes part at most
    holdings: Holdings | None = None  # None: the host does not know what devices hold
    notes: tuple[str, ...] = ()  # lines for the user, before the first round

    def __init__(self, options: Any, population: Population) -> None:
        """Plan the run. Raises UsageError if the options do not suit each other or the population.

        options: an object of `Options`. population: the clients that can be asked.
        """
        raise NotImplementedError

    @classmethod
    def suited(cls, options: Any, population: Population) -> "Learner":
        """Return the learner for these options, or a variant of it that suits the clients better.

        options, population: as of the class itself. Raises UsageError.
        """
        return cls(options, population)

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes of labels, as of `Dataset`; empty if they have none."""
        return ()

    @property
    def fewest_asked(self) -> int | None:
        """About how many clients the smallest question of the run is for; None: nobody knows.

        A question is one of a round, and the classes of devices count as one.
        """
        if self.reports is None:
            return None
        return self.reports // (self.rounds or 1)

    # A run: until `done`, ask `cohorts` and `learn`.

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        raise NotImplementedError

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        """Return the questions of the next round, each with the devices that it is for.

        devices: all those of the run; client i is the i-th of them.
        """
        raise NotImplementedError

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        """Learn from the answers of the last round; there may be none.

        devices: the same devices as those given to `cohorts`.
        """
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Return all that changes during a run, as an object for JSON; `restore` reads it back."""
        raise NotImplementedError

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a stored `state()`. Raises UsageError for the state of another learner."""
        raise NotImplementedError

    # What it has learned.

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the learner's part of the result of a run, for JSON.

        history: an entry for each round.
        """
        raise NotImplementedError

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """Return the result for people, in a few lines."""
        raise NotImplementedError

    # Optional.

    def pools(self, devices: Sequence[int] | Devices) -> list[Devices] | None:
        """Return, for each cohort of the next round, all devices that it could be drawn from.

        A fleet may then draw them itself. Devices of a pool are asked equally often in a run. None:
        everybody is asked, or only the learner can choose.

        devices: all those of the run.
        """
        return None

    def figures(self) -> dict[str, float]:
        """Return figures to show after every round, by name, the most important first."""
        return {}

    def entries(self) -> Sequence[Mapping[str, Any]]:
        """Return what was collected so far of each attribute, to show it after every round.

        The entries are for JSON, as those of `attribute_results`. There are none before the first
        report, and none if the learner collects nothing of attributes.
        """
        return ()

    def chosen(self) -> dict[str, float]:
        """Return settings that the learner chose for the last round, by name."""
        return {}

    def moved_by_liars(self) -> dict[str, Any] | None:
        """Return how far lying devices could have moved the gradient of the last round, for JSON.

        It is an entry as of `liar_results.of_length`; None if no bound is known.
        """
        return None

    @property
    def averaged(self) -> Averaged | None:
        """The model so far, if devices can use it."""
        return None

    @property
    def published(self) -> Averaged | None:
        """The model so far, in the form in which devices get it for their own predictions."""
        return self.averaged

    def references(self) -> dict[str, Any]:
        """Return figures to compare the model with, for JSON. They are known before the first
        round.
        """
        return {}


def require_clients(wanted: int | None, available: int, purpose: str, hint: str) -> None:
    """Raise UsageError if a learner wants more clients than are available.

    purpose: what they are for, as the end of a sentence that begins "there are N clients".
    hint: how the user can ask for fewer.
    """
    if wanted is not None and wanted > available:
        raise UsageError(f"there are {available:,} clients{purpose}, not {wanted:,}", hint=hint)


def require_everybody(population: Population, what: str) -> None:
    """Raise UsageError if a fleet is served a share at a time, and an algorithm needs all devices.

    A fleet that is served has a schedule, which says what share of its devices a round asks.

    what: the algorithm, in words.
    """
    schedule = population.schedule
    if schedule is not None:
        asks_everybody = schedule.share == 1
        must = f"1, as {what} asks every device in each round"
        require(asks_everybody, "share", must, schedule.share)


def report_summary(design: ReportDesign, question: Question) -> dict[str, Any]:
    """Return the card of a report, and the bytes of the report and of its request, for JSON.

    A card is the certified table of probabilities from which a device draws what it reports.

    design: how the report is made. question: the question that it answers.
    """
    data = design.card.data
    symbol_bytes = frames.packed_size(design.card.symbols, question.k)
    return {
        "card": data.hex(),
        "card_hash": cards.card_hash(data).hex(),
        "mechanism": design.mechanism,
        "bytes_per_report": report_bytes(symbol_bytes),
        "bytes_per_request": request_bytes(question),
    }


def settings_in_words(chosen: Mapping[str, float]) -> list[str]:
    """Put the settings that a learner chose for a round into words: "learning rate 0.58".

    chosen: their values by name, as of `Learner.chosen`.
    """
    words = []
    for name, value in chosen.items():
        if name == "tau":
            words.append(f"clipped to {value:g}")
        elif name == "rate":
            words.append(f"learning rate {value:.2g}")
        else:
            words.append(f"{name} {value:g}")
    return words


ALGORITHMS: Registry[type[Learner]] = Registry(
    "algorithm",
    "tern.algorithms",
    {
        "fedsgd": "ternhost.learn.models.fedsgd:FedSGD",
        "fedavg": "ternhost.learn.models.fedavg:FedAvg",
        "fedsum": "ternhost.learn.sums.fedsum:FedSum",
        "direct": "ternhost.learn.one_answer.direct:Direct",
        "values": "ternhost.learn.collecting.collect:Values",
        "means": "ternhost.learn.collecting.means:Means",
        "quantiles": "ternhost.learn.distributions.quantiles:Quantiles",
        "infer": "ternhost.learn.inference.infer:Infer",
    },
)


def algorithms_of(command: str) -> dict[str, type[Learner]]:
    """Return the algorithms that a command of tern can run, by name."""
    return {name: cls for name, cls in ALGORITHMS.items() if cls.command == command}
