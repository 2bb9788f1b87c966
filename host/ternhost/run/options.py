"""The options of a run: parsed once, handed on as they are, and kept in its store."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from tern import ledger, wire
from ternhost.errors import UsageError
from ternhost.extensions import EXTENSIONS, option_classes
from ternhost.learn import choice
from ternhost.learn.base import ALGORITHMS, Learner
from ternhost.learn.designs import in_privacy
from ternhost.learn.schedule import Schedule, Terms, how
from ternhost.options import check_named, flag, names_of, require, values_of
from ternhost.privacy import sums
from ternhost.privacy.base import parse_epsilon
from ternhost.reach import fleet


@dataclass(frozen=True)
class RunOptions:
    """The algorithm of a run, its fleet, and how its rounds end. learning: the algorithm's
    `Options`. schedule: for a served fleet; None: the run ends by itself. extensions: by the name of
    an extension, its `Options`, where somebody named one of them.
    """

    algorithm: str
    learning: Any
    fleet: str = how("emulated:2", "the devices: see 'tern fleet kinds'", metavar="KIND:...")
    terms: Terms = field(default_factory=Terms)
    schedule: Schedule | None = None
    reason: str = ""  # for the algorithm, where nobody named it
    after_round: int | None = how(
        None,
        "continue after round N, for a store restored from a backup, whose boards have already seen later rounds",
        metavar="N",
    )
    budget: str | None = in_privacy(
        None,
        "lifetime epsilon of what --unit protects, which all runs together must not exceed",
        metavar="E",
        shown="the cost of the run",
    )
    delta: str = in_privacy(
        "1e-6",
        "delta at which the epsilon of several reports is told, and of every limit to it",
        metavar="D",
    )
    extensions: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.after_round is not None:
            in_order = 0 <= self.after_round < wire.MAX_ROUND
            require(in_order, "after_round", f"0 to {wire.MAX_ROUND - 1}", self.after_round)
        fleet.parse(self.fleet)
        sums.parse_delta(self.delta)
        if self.budget is not None:
            parse_epsilon(self.budget, ledger.MAX_BUDGET, "--budget")
        for name in self.extensions:
            EXTENSIONS.named(name).check(self)

    @property
    def budget_micro(self) -> int | None:
        """The budget in micro-epsilon."""
        if self.budget is None:
            return None
        return parse_epsilon(self.budget, ledger.MAX_BUDGET, "--budget")

    def flat(self) -> dict[str, Any]:
        """By name, those of all its parts, for a result."""
        values = {**values_of(self.learning), **asdict(self.terms)}
        values |= {name: getattr(self, name) for name in names_of(self)}
        for extension in EXTENSIONS.available():
            if extension.Options is not None:
                own = self.extensions.get(extension.name) or extension.Options()
                values |= {name: getattr(own, name) for name in names_of(own)}
        return values

    @classmethod
    def parse(
        cls,
        algorithm: str | None,
        named: Mapping[str, Any],
        algorithms: Mapping[str, type[Learner]],
        served: bool = False,
    ) -> Self:
        """From the named options of any part; `served` gives those of a schedule to the schedule.
        algorithm: None where nobody named one. Raises UsageError for an option that belongs to
        another of `algorithms`, and for options that do not go together.
        """
        reason = ""
        if algorithm is None:
            kind = fleet.parse(
                named.get("fleet", default_fleet(next(iter(algorithms.values())).command))
            )
            made = kind.provisions or kind.simulated
            of_any_run = names_of_run()
            algorithm, reason = choice.choose(named, algorithms, of_any_run, made, served)
        learner = algorithms[algorithm]
        learning = dict(named)
        if reason and named.get("public") == "none" and "public" not in names_of(learner.Options):
            del learning["public"]  # it told what to choose

        def take(part: Any) -> dict[str, Any]:
            return {name: learning.pop(name) for name in names_of(part) & learning.keys()}

        schedule = Schedule(**take(Schedule)) if served else None
        terms, rest = Terms(**take(Terms)), {"fleet": default_fleet(learner.command), **take(cls)}
        if "delta" in rest and "delta" in names_of(learner.Options):
            learning["delta"] = rest["delta"]
        rest["extensions"] = {}
        for extension in EXTENSIONS.available():
            own = {} if extension.Options is None else take(extension.Options)
            if own:
                rest["extensions"][extension.name] = extension.options_from(named, own)
        for name in learning.keys() - {each.name for each in fields(learner.Options)}:
            others = [other for other, its in algorithms.items() if name in names_of(its.Options)]
            text = f"{flag(name)} belongs to {' and '.join(others)}, and this run is {learner.name}"
            text += f": {reason}" * bool(reason)
            raise UsageError(
                text, hint=f"leave it out, or choose the algorithm {' or '.join(others)}"
            )
        check_named(
            learner.Options, {name: value for name, value in learning.items() if value is not None}
        )
        options = learner.Options(**learning)
        return cls(algorithm, options, terms=terms, schedule=schedule, reason=reason, **rest)

    @classmethod
    def stored(cls, asked: Mapping[str, Any]) -> Self:
        """From what a store has of them: `asdict`, with more beside it."""
        values = {each.name: asked[each.name] for each in fields(cls)}
        values["learning"] = ALGORITHMS.named(asked["algorithm"]).Options(**asked["learning"])
        values["terms"] = Terms(**asked["terms"])
        values["schedule"] = None if asked["schedule"] is None else Schedule(**asked["schedule"])
        values["extensions"] = {
            name: EXTENSIONS.named(name).Options(**own) for name, own in asked["extensions"].items()
        }
        return cls(**values)


def classes_of_run() -> list[Any]:
    """The classes of options that a run of any algorithm has."""
    return [Terms, RunOptions, *option_classes()]


def names_of_run() -> set[str]:
    """The names of options that any run has, beside those of `Terms`."""
    return names_of(RunOptions).union(*(names_of(each) for each in option_classes()))


def default_fleet(command: str) -> str:
    """The devices of a command that names none."""
    return "emulated:8" if command == "train" else "emulated:2"
