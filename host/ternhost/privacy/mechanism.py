"""The interface of mechanisms: a `Mechanism` is made in a module and registered by one line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ternhost.options import Option
from ternhost.privacy.base import Design, check_levels, checked

# Uses that a mechanism can be tuned for: reports of parts of a gradient, which are mostly near 0; or
# of values of any size.
GRADIENTS, VALUES = "gradients", "values"


def untried(most: int) -> Iterable[Mapping[str, Any]]:
    """Return no options: `auto` leaves a mechanism out if another that it tries is never worse.

    This and `tried_once` are values of `Mechanism.tries`; neither depends on the most outputs.
    """
    return ()


def tried_once(most: int) -> Iterable[Mapping[str, Any]]:
    """Return one set of options, which is empty: `auto` compares the design without options."""
    return ({},)


@dataclass(frozen=True)
class Mechanism:
    """A family of cards, one for each epsilon. (A card is the table from which a device samples.)

    name: in the registry and on the command line.
    design: design(epsilon, levels, **options) takes epsilon (in millionths), the number of outputs
    (None: its own choice) and the mechanism's options. It returns a Design whose card keeps epsilon
    and is unbiased (`checked` makes sure of both), or raises UsageError.
    options: the keywords of `design` that users can give.
    variance: variance(epsilon, x) is that of the continuous mechanism of the paper at a real
    epsilon; None: the paper has no formula.
    worst_variance: worst_variance(epsilon) is its maximum over x; None: as above.
    levels: the default number of outputs.
    drawn: the numbers of outputs for which experiments draw the worst variance; empty: only the
    default.
    tuned: the best options for a use (GRADIENTS, VALUES).
    tries: tries(most) yields the keywords of `design` for each card of at most `most` outputs that
    the mechanism `auto` compares.
    single_valued: whether each symbol stands for one value, so that reports can be averaged.
    slow: whether a card that is shipped with tern is used instead of a design, where there is one.
    about: a line for lists of mechanisms.
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
    about: str = ""

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
        overrides_tuned = bool(given & tuned.keys())
        if overrides_tuned:
            return changed
        return {**tuned, **changed}


def fixed(
    name: str,
    outputs: int,
    card: Callable[[int], bytes],
    notes: Callable[[int], Sequence[str]] | None = None,
    **stated: Any,
) -> Mechanism:
    """Return a mechanism without options, whose cards all have the same number of outputs.

    card: a function that takes an epsilon (in millionths) and returns the bytes of the card. notes:
    one that takes an epsilon (in millionths) and returns remarks on the card; None: there are none.
    stated: further fields of the Mechanism.
    """

    def design(epsilon: int, levels: int | None = None) -> Design:
        """Return the card at epsilon. levels must be None or the only number of outputs."""
        check_levels(levels, default=outputs, least=outputs, most=outputs)  # raises for another one
        remarks: Sequence[str] = ()
        if notes is not None:
            remarks = notes(epsilon)
        return checked(name, epsilon, card(epsilon), *remarks)

    return Mechanism(name, design, **stated)
