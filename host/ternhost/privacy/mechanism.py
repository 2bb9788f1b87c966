"""The interface of mechanisms: a `Mechanism` is made in a module and registered by one line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternhost.options import Option
from ternhost.privacy.base import Design, check_levels, checked

# Uses that a mechanism can be tuned for: reports of parts of a gradient, mostly near 0; or of
# values of any size.
GRADIENTS, VALUES = "gradients", "values"


def untried(most: int) -> Iterable[Mapping[str, Any]]:
    """`auto` leaves the mechanism out, because another that it tries is never worse."""
    return ()


def tried_once(most: int) -> Iterable[Mapping[str, Any]]:
    """`auto` compares the design without options."""
    return ({},)


@dataclass(frozen=True)
class Mechanism:
    """A family of cards, one for each epsilon.

    `design(epsilon, levels, **options)` takes epsilon (micro), the number of outputs (None: its own
    choice) and the mechanism's `options`. It returns a Design whose card keeps epsilon and is
    unbiased (`checked` makes sure of both), or raises UsageError. `variance(epsilon, x)` and
    `worst_variance(epsilon)` are the source's, for the continuous mechanism at a real epsilon.
    Experiments draw the worst variance at the numbers of outputs in `drawn`, or at the default
    `levels`. `tuned` gives the best options for a use (GRADIENTS, VALUES). `tries(most)` yields
    keywords of `design` for each card of at most `most` outputs that `auto` compares.
    `single_valued`: a symbol stands for one value, so that reports can be averaged. `slow`: a
    shipped card is used instead of a design.
    """

    name: str
    design: Callable[..., Design]
    options: tuple[Option, ...] = ()
    variance: Callable[[float, float], float] | None = None
    worst_variance: Callable[[float], float] | None = None
    levels: int | None = None
    drawn: tuple[int, ...] = ()
    tuned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tries: Callable[[int], Iterable[Mapping[str, Any]]] = tried_once
    single_valued: bool = True
    slow: bool = False

    def chosen(self, options: Mapping[str, Any], use: str | None = None) -> dict[str, Any]:
        """Return the options to design with: those that differ from their defaults.

        options: as the user gave them; a value of None counts as not given. use: GRADIENTS or
        VALUES; the options tuned for it are added, unless the user gave one of these.
        """
        declared = {option.name: option for option in self.options}
        changed = {}
        given = set()
        for name, value in options.items():
            if value is not None:
                given.add(name)
            if not declared[name].is_default(value):
                changed[name] = value
        tuned: Mapping[str, Any] = {}
        if use is not None:
            tuned = self.tuned.get(use, {})
        if given & tuned.keys():
            return changed
        return {**tuned, **changed}


def fixed(
    name: str,
    outputs: int,
    card: Callable[[int], bytes],
    notes: Callable[[int], Sequence[str]] = lambda epsilon: (),
    **stated: Any,
) -> Mechanism:
    """Return a mechanism without options, whose cards all have the same number of outputs.

    card, notes: functions that return a design's card and remarks at an epsilon (micro). stated:
    further fields of the Mechanism.
    """

    def design(epsilon: int, levels: int | None = None) -> Design:
        check_levels(levels, outputs, outputs, outputs)
        return checked(name, epsilon, card(epsilon), *notes(epsilon))

    return Mechanism(name, design, **stated)
