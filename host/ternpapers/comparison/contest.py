"""What a figure compares: mechanisms, on the data of sources, at settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from ternhost.errors import UsageError
from ternhost.privacy.mechanisms import REGISTRY
from ternpapers.base import Options
from ternpapers.figure import Axis
from ternpapers.perturbing import MECHANISMS

EPSILONS = (0.5, 1.0, 2.0, 4.0)
EPSILON = Axis("epsilon", "epsilon of a client", log=True)
OUTPUTS = Axis("outputs", "number of outputs of a report", log=True)
CLIENTS = Axis("clients", "number of clients", log=True)
DIMENSION = Axis("d", "number of attributes")


@dataclass(frozen=True)
class Case:
    """A point of a figure: whose records are reported, and at which setting.

    source: a name of SHAPES, or a data set. epsilon: the epsilon of a client. d: how many attributes
    there are; None for all of the source. outputs: see `reported`. share: the part of all clients
    that report. split: whether a client with d_n numbers among its d attributes has
    d_n epsilon / d for them, with each mechanism. If not, the mechanism decides what it spends on
    each attribute.
    """

    source: str
    epsilon: float
    d: int | None = None
    outputs: int | None = None
    share: float = 1.0
    split: bool = False


@dataclass(frozen=True)
class Contest:
    """What a figure compares: mechanisms, on the data of sources, at settings.

    mechanisms: names of perturbing.py. sources: names of SHAPES, or data sets. settings: the
    values of fields of `Case` that are tried, where they are not the default.
    """

    mechanisms: Sequence[str]
    sources: Sequence[str]
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def values(self) -> dict[str, Sequence[Any]]:
        """Return the values of each setting that are tried, by its name; EPSILONS by default."""
        return {"epsilon": EPSILONS, **self.settings}

    def on(self, options: Options) -> "Contest":
        """Return the same contest, on the data set of --data alone if the user has named one."""
        if not options.data:
            return self
        return replace(self, sources=(options.data,))


def every_case(contest: Contest) -> list[Case]:
    """Return a case for each source and combination of the settings, the last one varying fastest."""
    values = contest.values()
    all_cases = []
    for source in contest.sources:
        for combination in product(*values.values()):
            setting = dict(zip(values, combination, strict=True))
            all_cases.append(Case(source, **setting))
    return all_cases


def cases(contest: Contest, options: Options) -> list[Case]:
    """Return every case, or fewer of them for the quick version.

    That has about three values of each setting: the first, one in the middle, and the last.
    """
    if not options.quick:
        return every_case(contest)
    settings = {}
    for name, values in contest.values().items():
        step = max(1, (len(values) - 1) // 2)
        settings[name] = values[::step]
    return every_case(replace(contest, settings=settings))


def compared(names: Sequence[str], options: Options) -> Sequence[str]:
    """Return the mechanisms of a figure, and the one of --mechanism, each once.

    names: those of the figure. Raises UsageError if no paper has the one of --mechanism.
    """
    if options.contender is None:
        return names
    name = options.contender.label
    if name not in MECHANISMS:
        known = [name for name in REGISTRY if name in MECHANISMS]
        hint = f"one of {', '.join(known)}, without options"
        raise UsageError(f"the figures of the papers compare their mechanisms, not {name}", hint)
    return tuple(dict.fromkeys((*names, name)))
