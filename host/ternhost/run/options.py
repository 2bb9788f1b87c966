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
from ternhost.options import Number, check_named, flag, names_of, normalise, require, values_of
from ternhost.privacy import sums
from ternhost.privacy.base import parse_epsilon
from ternhost.reach import fleet


@dataclass(frozen=True)
class RunOptions:
    """The options of a run: its algorithm, its fleet, and how its rounds end.

    learning: the `Options` of the algorithm.
    terms: when a round ends.
    schedule: when rounds begin, if the run serves a fleet; None: the run ends by itself.
    extensions: by the name of an extension, its `Options`, if the user gave one of them.
    """

    algorithm: str
    learning: Any
    fleet: str = how("emulated:2", metavar="KIND:...")
    terms: Terms = field(default_factory=Terms)
    schedule: Schedule | None = None
    reason: str = ""  # why the algorithm was chosen; empty if the user named it
    after_round: int | None = how(
        None,
        "continue after round N, if the store was restored from a backup",
        metavar="N",
    )
    budget: Number | None = in_privacy(None, metavar="E", shown="the cost of the run")
    delta: Number = in_privacy("1e-6", metavar="D")
    extensions: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check those options that can be checked without a fleet or a store. Raises UsageError."""
        normalise(self)
        if self.after_round is not None:
            is_round_number = 0 <= self.after_round < wire.MAX_ROUND
            require(is_round_number, "after_round", f"0 to {wire.MAX_ROUND - 1}", self.after_round)
        # These are called because they raise UsageError; their results are not needed here.
        if getattr(self.learning, "delta", self.delta) != self.delta:
            text = f"the run has --delta {self.delta}, and its learner {self.learning.delta}"
            raise UsageError(text, hint="give both the same")
        fleet.parse(self.fleet)
        if self.schedule is not None:
            self.schedule.require_pace()
        sums.parse_delta(self.delta)
        if self.budget is not None:
            parse_epsilon(self.budget, ledger.MAX_BUDGET, "--budget")
        for name in self.extensions:
            EXTENSIONS.named(name).check(self)

    @property
    def budget_micro(self) -> int | None:
        """The lifetime budget of a device in micro-epsilon; None: it is what the run costs."""
        if self.budget is None:
            return None
        return parse_epsilon(self.budget, ledger.MAX_BUDGET, "--budget")

    def flat(self) -> dict[str, Any]:
        """Return the values of all options by name, in one dict, for the result of a run.

        These are the options of the algorithm, of the rounds, of the run itself, and of extensions.
        """
        values = {**values_of(self.learning), **asdict(self.terms)}
        parts: list[Any] = [self]
        for extension in EXTENSIONS.available():
            if extension.Options is None:
                continue
            own_options = self.extensions.get(extension.name)
            if own_options is None:
                own_options = extension.Options()  # the defaults
            parts.append(own_options)
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
        """Make the options of a run from the values that the user gave, and check them.

        algorithm: its name; None: it is chosen by the other options. named: the values that the
        user gave, by the names of the options. algorithms: the learners to choose from, by name.
        served: whether the run serves a fleet, so that options of a schedule are allowed. Raises
        UsageError for an option of another algorithm, and for options that contradict each other.
        """
        reason = ""  # for the choice of the algorithm
        if algorithm is None:
            algorithm, reason = _choose_algorithm(named, algorithms, served)
        learner = algorithms[algorithm]
        learner_options = names_of(learner.Options)
        remaining = dict(named)  # the options that no part of the run has taken yet
        # With --public none, users say that there are no public records. That may have led to an
        # algorithm that needs none, and so has no such option; it is not an error then.
        was_for_choice = (
            reason and named.get("public") == "none" and "public" not in learner_options
        )
        if was_for_choice:
            del remaining["public"]
        # A learner without the option protects devices.
        if choice.names_device(named) and "unit" not in learner_options:
            del remaining["unit"]

        schedule = None
        if served:
            schedule = Schedule(**_take_options(Schedule, remaining))
        terms = Terms(**_take_options(Terms, remaining))
        run_options: dict[str, Any] = {"fleet": default_fleet(learner.command)}
        run_options |= _take_options(cls, remaining)
        if "delta" in run_options and "delta" in learner_options:
            remaining["delta"] = run_options["delta"]  # the run and its algorithm both have it
        run_options["extensions"] = _take_extension_options(named, remaining)

        # All options that remain must be the algorithm's.
        _require_no_foreign_option(remaining, learner, reason, algorithms)
        given = {name: value for name, value in remaining.items() if value is not None}
        check_named(learner.Options, given)
        learning = learner.Options(**remaining)
        return cls(
            algorithm, learning, terms=terms, schedule=schedule, reason=reason, **run_options
        )

    @classmethod
    def stored(cls, saved: Mapping[str, Any]) -> Self:
        """Restore the options of a run from its store.

        saved: what `asdict` made of the options; it may have other settings of the run beside them.
        Raises UsageError if the algorithm or an extension is not installed.
        """
        values = {option.name: saved[option.name] for option in fields(cls)}
        # The nested dataclasses were saved as dicts.
        learner = ALGORITHMS.named(saved["algorithm"])
        values["learning"] = learner.Options(**saved["learning"])
        values["terms"] = Terms(**saved["terms"])
        if saved["schedule"] is not None:
            values["schedule"] = Schedule(**saved["schedule"])
        values["extensions"] = {}
        for name, extension_options in saved["extensions"].items():
            extension = EXTENSIONS.named(name)
            values["extensions"][name] = extension.Options(**extension_options)
        return cls(**values)


def _choose_algorithm(
    named: Mapping[str, Any], algorithms: Mapping[str, type[Learner]], served: bool
) -> tuple[str, str]:
    """Choose the algorithm that suits the user's options; return its name and the reason for it.

    named: the values that the user gave, by option. algorithms: the learners to choose from, by
    name. served: whether the run serves a fleet.
    """
    any_algorithm = next(iter(algorithms.values()))  # all belong to the same command
    fleet_name = named.get("fleet", default_fleet(any_algorithm.command))
    kind = fleet.parse(fleet_name)
    tern_makes_devices = kind.provisions or kind.simulated
    return choice.choose_algorithm(named, algorithms, names_of_run(), tern_makes_devices, served)


def _take_options(part: Any, remaining: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of one dataclass from the remaining ones, and return them by name.

    part: the dataclass. remaining: the values of options, by name.
    """
    names = names_of(part) & remaining.keys()
    return {name: remaining.pop(name) for name in names}


def _take_extension_options(named: Mapping[str, Any], remaining: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of all extensions from the remaining ones.

    Return an object of `Options` for each extension of which the user gave an option, by the name
    of the extension. named: the values of all options that the user gave.
    """
    options_by_extension = {}
    for extension in EXTENSIONS.available():
        if extension.Options is None:
            continue
        own_options = _take_options(extension.Options, remaining)
        if own_options:
            options_by_extension[extension.name] = extension.options_from(named, own_options)
    return options_by_extension


def _require_no_foreign_option(
    options: Mapping[str, Any],
    learner: type[Learner],
    reason: str,
    algorithms: Mapping[str, type[Learner]],
) -> None:
    """Raise UsageError for an option that only other algorithms have; the message names these.

    options: the values that the user gave, by option. learner: the algorithm of the run. reason:
    why this algorithm was chosen; empty if the user named it. algorithms: all of the command.
    """
    own_names = {option.name for option in fields(learner.Options)}
    for name in options.keys() - own_names:
        owners = [each for each in algorithms if name in names_of(algorithms[each].Options)]
        if not owners:  # only learners of other commands have it
            owners = [each for each in ALGORITHMS if name in names_of(ALGORITHMS[each].Options)]
        # A variant of another learner, such as a baseline of a paper, need not be named beside it.
        owners = [each for each in owners if ALGORITHMS[each].like not in owners]
        text = f"{flag(name)} is an option of {', '.join(owners)}, and this run is {learner.name}"
        if reason:
            text += f": {reason}"
        hint = f"leave it out, or choose the learner {' or '.join(owners)}"
        raise UsageError(text, hint=hint)


def classes_of_run() -> list[Any]:
    """Return the dataclasses of options that a run has whatever its algorithm."""
    return [Terms, RunOptions, *option_classes()]


def names_of_run() -> set[str]:
    """Return the names of the options that a run has whatever its algorithm, without `Terms`."""
    names = names_of(RunOptions)
    for extension_options in option_classes():
        names = names | names_of(extension_options)
    return names


def default_fleet(command: str) -> str:
    """Return the fleet of a command if the user names none, such as 8 emulated boards."""
    if command == "train":
        return "emulated:8"
    return "emulated:2"
