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
    """The algorithm of a run, its fleet, and how its rounds end.

    learning: the algorithm's `Options`. schedule: for a served fleet; None: the run ends by itself.
    extensions: by the name of an extension, its `Options`, where somebody named one of them.
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
        parts: list[Any] = [self]
        for extension in EXTENSIONS.available():
            if extension.Options is not None:
                parts.append(self.extensions.get(extension.name) or extension.Options())
        for part in parts:
            for name in names_of(part):
                values[name] = getattr(part, name)
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
            algorithm, reason = _chosen_algorithm(named, algorithms, served)
        learner = algorithms[algorithm]
        remaining = dict(named)
        if reason and named.get("public") == "none" and "public" not in names_of(learner.Options):
            del remaining["public"]  # it told what to choose

        schedule = Schedule(**_taken(Schedule, remaining)) if served else None
        terms = Terms(**_taken(Terms, remaining))
        own = {"fleet": default_fleet(learner.command), **_taken(cls, remaining)}
        if "delta" in own and "delta" in names_of(learner.Options):
            remaining["delta"] = own["delta"]
        own["extensions"] = _options_of_extensions(named, remaining)
        _require_no_other(remaining, learner, reason, algorithms)
        check_named(
            learner.Options,
            {name: value for name, value in remaining.items() if value is not None},
        )
        learning = learner.Options(**remaining)
        return cls(algorithm, learning, terms=terms, schedule=schedule, reason=reason, **own)

    @classmethod
    def stored(cls, asked: Mapping[str, Any]) -> Self:
        """From what a store has of them: `asdict`, with more beside it."""
        values = {each.name: asked[each.name] for each in fields(cls)}
        values["learning"] = ALGORITHMS.named(asked["algorithm"]).Options(**asked["learning"])
        values["terms"] = Terms(**asked["terms"])
        values["schedule"] = None if asked["schedule"] is None else Schedule(**asked["schedule"])
        values["extensions"] = {}
        for name, own in asked["extensions"].items():
            values["extensions"][name] = EXTENSIONS.named(name).Options(**own)
        return cls(**values)


def _chosen_algorithm(
    named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]], served: bool
) -> tuple[str, str]:
    """The algorithm for these options, and the reason for it."""
    first = next(iter(algorithms.values()))
    kind = fleet.parse(named.get("fleet", default_fleet(first.command)))
    made = kind.provisions or kind.simulated
    return choice.choose(named, algorithms, names_of_run(), made, served)


def _taken(part: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of this part out of all of them."""
    return {name: options.pop(name) for name in names_of(part) & options.keys()}


def _options_of_extensions(named: Mapping[str, Any], remaining: dict[str, Any]) -> dict[str, Any]:
    """The `Options` of extensions, taken out of the remaining ones."""
    of_extensions = {}
    for extension in EXTENSIONS.available():
        if extension.Options is None:
            continue
        own = _taken(extension.Options, remaining)
        if own:
            of_extensions[extension.name] = extension.options_from(named, own)
    return of_extensions


def _require_no_other(
    options: Mapping[str, Any],
    learner: type[Learner],
    reason: str,
    algorithms: Mapping[str, type[Learner]],
) -> None:
    """Raise UsageError for an option that the learner does not have, but another algorithm has."""
    for name in options.keys() - {each.name for each in fields(learner.Options)}:
        others = [other for other, cls in algorithms.items() if name in names_of(cls.Options)]
        text = f"{flag(name)} belongs to {' and '.join(others)}, and this run is {learner.name}"
        if reason:
            text += f": {reason}"
        hint = f"leave it out, or choose the algorithm {' or '.join(others)}"
        raise UsageError(text, hint=hint)


def classes_of_run() -> list[Any]:
    """The classes of options that a run of any algorithm has."""
    return [Terms, RunOptions, *option_classes()]


def names_of_run() -> set[str]:
    """The names of options that any run has, beside those of `Terms`."""
    return names_of(RunOptions).union(*map(names_of, option_classes()))


def default_fleet(command: str) -> str:
    """The devices of a command that names none."""
    return "emulated:8" if command == "train" else "emulated:2"
