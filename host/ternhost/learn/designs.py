"""Designs of reports: the card and the cost for each class of devices, and the options behind them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tern import card as cards
from ternhost.count.disclosures import ReportCounts
from ternhost.datasets import Indices
from ternhost.errors import UsageError
from ternhost.options import OptionGroup, option, require
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.accounting import Policy, Release
from ternhost.privacy.base import MICRO, parse_epsilon, single_valued
from ternhost.privacy.cards import decode, load
from ternhost.privacy.composing import ReportKind

T = TypeVar("T")

# Rules for k, the number of coordinates in a report, each reported at epsilon / k. "variance"
# assumes values that are spread evenly over [-1, 1], as gradients are once they are scaled to their
# range. `tern experiment coordinates` compares the rules.
VARIANCE = "variance"
WIDE = "wide"
PAPER = "paper"
K_RULES = (VARIANCE, WIDE, PAPER)
K_RULE_HELP = (
    "rule for K; variance: least variance of the estimate for values uniform on [-1, 1]; paper: floor(epsilon / 2.5); "
    "wide: floor(epsilon / 2.5 + 0.6)"
)
_EPSILON_PER_VALUE = 2_500_000  # micro-epsilon, of the paper's rule
_WIDER = 1_500_000  # micro-epsilon that the rule "wide" adds: 0.6 of the above

# Micro-epsilon. Below this per value, one value at the whole epsilon is better with any card.
_LEAST_OF_SEVERAL = 1_500_000

in_privacy = partial(option, group="privacy")
SEED_HELP = "seed that assigns devices and records; on a simulated fleet it also fixes the noise"
EPSILON_HELP = (
    "epsilon that a device spends in a report, whatever the algorithm; several reports add up"
)


def coordinates_by_rule(
    rule: str, epsilon: int, d: int, variance: Callable[[int], float] | None = None
) -> int:
    """Choose the number k of coordinates in a report, from 1 to d, for an epsilon in millionths.

    rule: one of K_RULES. variance: of one of k reported values, as a function of k; only the rule
    VARIANCE needs it. The rules are floor(epsilon / 2.5) of Zhao et al. (IEEE IoT J. 8, 2021),
    floor(epsilon / 2.5 +
    0.6), and the first local minimum of variance(k) / k, where variance(k) is that of one of k
    reported values. The last one follows from the estimate, which rests on about n k / d of n
    reports: its variance, noise and sampling together, is d / (k n) times that of a value.

    Raises UsageError for a rule of another name.
    """
    if rule not in K_RULES:
        raise UsageError(f"unknown rule {rule!r} for k", hint=f"one of: {', '.join(K_RULES)}")

    if rule == VARIANCE:
        assert variance is not None
        largest = min(d, epsilon // _LEAST_OF_SEVERAL)
        k = 1
        while k < largest and variance(k + 1) / (k + 1) < variance(k) / k:
            k += 1
        return k

    if rule == WIDE:
        epsilon += _WIDER
    return max(1, min(d, epsilon // _EPSILON_PER_VALUE))


# Classes of devices

_SHARE_TOLERANCE = 1e-6  # of a sum of shares that were written with few digits


@dataclass(frozen=True)
class DeviceClass:
    """Devices whose reports may cost the same, and what share of all devices they are."""

    epsilon: int  # of a report, in millionths
    share: float = 1.0
    tau: float | None = None  # values are clipped to this safe range, where the class has one

    @classmethod
    def parse(cls, text: str, hint: str) -> "list[DeviceClass]":
        """Parse a text `TAU:E:SHARE,...` into classes. Raises UsageError with this hint."""
        classes = []
        for name, share in shares(text, hint):
            tau, _, epsilon = name.partition(":")
            try:
                classes.append(cls(parse_epsilon(epsilon), share, float(tau)))
            except (ValueError, UsageError):
                raise UsageError(
                    f"{name!r} is not a choice of a safe range and an epsilon", hint
                ) from None
        return classes

    @classmethod
    def of_epsilons(cls, text: str) -> "list[DeviceClass]":
        """Parse a text `E:SHARE,...` into classes. Raises UsageError."""
        return [cls(parse_epsilon(epsilon), share) for epsilon, share in shares(text)]


def shares(text: str, hint: str = "such as 1:0.5,2:0.3,4:0.2") -> list[tuple[str, float]]:
    """Parse a text `NAME:SHARE,...` into pairs of a name and a share, which add up to exactly 1.

    Raises UsageError if a part is not of that form (with this hint), if a name is there twice, or
    if the shares do not add up to 1.
    """
    classes: dict[str, float] = {}  # the share by name
    for part in text.split(","):
        name, _, number = part.strip().rpartition(":")
        share = _positive(number)
        if not name or share is None:
            raise UsageError(f"{part.strip()!r} is not a class of devices", hint)
        if name in classes:
            raise UsageError(
                f"{name} names a class of devices twice", hint="add up its shares: name it once"
            )
        classes[name] = share

    total = sum(classes.values())
    if abs(total - 1) > _SHARE_TOLERANCE:
        raise UsageError(
            f"the shares of the devices must add up to 1, not {total:g}", hint="change a share"
        )
    return [(name, share / total) for name, share in classes.items()]


def _positive(text: str) -> float | None:
    """Parse a number above 0; return None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number > 0 else None


def class_of(devices: npt.ArrayLike, parts: Sequence[float], seed: int) -> Indices:
    """Assign each device to a class; return the numbers of the classes (n, from 0).

    devices: their ids (n). parts: the share of each class. The class follows from a hash of the
    device's id and the seed: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). So
    it does not change with the round, the run or the other devices.
    """
    ids = np.asarray(devices, np.uint64)
    if len(parts) == 1:
        return np.zeros(len(ids), np.int64)

    with np.errstate(over="ignore"):
        mixed = ids + np.uint64(0x9E3779B97F4A7C15) * np.uint64((seed + 1) % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    # The upper 53 bits, as many as a float has, make a number from 0 to 1.
    uniform = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.searchsorted(np.cumsum(parts)[:-1], uniform, side="right").astype(np.int64)


# Designs


@dataclass(frozen=True)
class ReportDesign:
    """The design of a report for a class of devices: k symbols of `card`."""

    card: cards.Card
    k: int
    variance: float  # of a reported value whose input is 0
    mechanism: str  # its name
    epsilon: int  # millionths that the report may cost; `cost` is what it does
    share: float = 1.0  # of the devices
    tau: float | None = None  # the safe range, of devices that choose one
    what: str = "coordinate"  # the word for one value of the report

    @property
    def cost(self) -> int:
        """The true cost of a report, in micro-epsilon."""
        return self.k * int(self.card.epsilon)

    @property
    def policy(self) -> Policy:
        """The policy of devices of the class: what a report may cost, and as much for life."""
        most = max(self.epsilon, self.cost)
        return Policy(most, most)

    @property
    def report(self) -> ReportKind:
        """The kind of its reports."""
        exact = ReportKind.of(self.card, self.k)
        if exact.cost == self.cost:
            return exact
        return ReportKind(self.cost)

    def report_counts(self, times: int) -> ReportCounts:
        """This number of reports of a device of the class, by kind."""
        return {self.report: times}

    def release(self, times: int) -> Release:
        """The release of a device of the class in this number of reports."""
        what = self.what
        if self.tau is not None:
            what = f"{what} (tau {self.tau:g})"
        return Release(what, self.card.epsilon, self.k, times)

    def summary(self, times: int) -> dict[str, Any]:
        """The class for JSON, and what `times` reports cost each of its devices."""
        return {
            "epsilon": self.epsilon / MICRO,
            "tau": self.tau,
            "share": self.share,
            "k": self.k,
            "card": self.card.data.hex(),
            "card_hash": cards.card_hash(self.card.data).hex(),
            "levels": self.card.symbols,
            "epsilon_per_report": self.cost / MICRO,
            "epsilon_paid": self.cost * times / MICRO,
        }


class ClassMembers(NamedTuple):
    """Devices of one class."""

    number: int  # of the class, from 0
    design: ReportDesign
    devices: Indices


def by_class(
    designs: Sequence[ReportDesign], devices: npt.ArrayLike, seed: int
) -> list[ClassMembers]:
    """Group devices by class, in the order of `designs`; classes without a device are left out."""
    ids = np.asarray(devices, np.int64)
    classes = class_of(ids, [design.share for design in designs], seed)
    groups = []
    for number, design in enumerate(designs):
        members = ids[classes == number]
        if len(members):
            groups.append(ClassMembers(number, design, members))
    return groups


def pools_of(
    designs: Sequence[ReportDesign], asked: npt.ArrayLike, everybody: npt.ArrayLike, seed: int
) -> list[Indices] | None:
    """Return the devices from which those of each asked class were chosen.

    asked: the devices of a round. For each class that has some of them, the result has all devices
    of the class, in the order of `by_class`. It is None if a round asks everybody.
    """
    if len(np.asarray(asked)) == len(np.asarray(everybody)):
        return None
    members_of_class = {}
    for members in by_class(designs, everybody, seed):
        members_of_class[members.number] = members.devices
    return [members_of_class[members.number] for members in by_class(designs, asked, seed)]


def ends(classes: Sequence[T], cost: Callable[[T], float], most: int = 12) -> Sequence[T]:
    """Return all classes, or, of more than `most`, only the cheapest and the dearest one."""
    if len(classes) <= most:
        return classes
    return [min(classes, key=cost), max(classes, key=cost)]


def stated(result: Mapping[str, Any]) -> list[str]:
    """Write a line about the lower epsilon that a paper states for the same reports, if one does."""
    epsilon = result.get("epsilon_stated")
    if epsilon is None:
        return []
    return [f"the paper of HierA counts epsilon {epsilon:g} for a report of this run"]


# Options


def _card_file(path: str) -> str:
    """Read a card from a file, as hexadecimal digits; an empty path stands for no card."""
    if not path:
        return ""
    return load(path).hex()


def epsilons_option(*instead_of: str) -> Any:
    """The option of personalised budgets. instead_of: the options of one epsilon for all."""
    return in_privacy(
        None,
        "personalised budgets: epsilon of each class of devices, and its share of the devices",
        metavar="E:SHARE,...",
        instead_of=instead_of,
    )


@dataclass(frozen=True)
class BudgetOptions(OptionGroup):
    """Options of the epsilon of a report: one for all devices, or one for each class of them."""

    epsilon: str = in_privacy("2", EPSILON_HELP, metavar="E")
    epsilons: str | None = epsilons_option("epsilon")

    def check(self) -> None:
        self.classes()

    def classes(self) -> list[DeviceClass]:
        """The classes of devices that the options name: one, or one for each epsilon.

        Raises UsageError.
        """
        if self.epsilons is None:
            return [DeviceClass(parse_epsilon(self.epsilon))]
        return DeviceClass.of_epsilons(self.epsilons)


@dataclass(frozen=True)
class MechanismOptions(OptionGroup):
    """Options of reports whose values each go through a card, that of a mechanism or a given one."""

    mechanism: str = in_privacy(
        "three-outputs",
        "mechanism that perturbs values: " + ", ".join(mechanisms.NAMES),
        metavar="NAME",
    )
    levels: int | None = in_privacy(
        None, "number of outputs, if the mechanism leaves a choice", metavar="N"
    )
    card: str | None = in_privacy(
        None,
        "card from 'tern card design', instead of a mechanism",
        kind=_card_file,
        metavar="FILE",
        instead_of=("mechanism", "levels"),
    )
    k: int | None = in_privacy(
        None, "coordinates per report, each at epsilon / K", metavar="K", shown="by --k-rule"
    )
    k_rule: str = in_privacy(VARIANCE, K_RULE_HELP, choices=K_RULES)
    mechanism_options: Mapping[str, Any] | None = None  # of the mechanism alone

    def require_one_epsilon(self, classes: int) -> None:
        """Raise UsageError where one card was named for several classes of devices."""
        if classes > 1 and self.card is not None:
            raise UsageError(
                "a card is for one epsilon, and there are several", "name a --mechanism instead"
            )

    def k_for(self, classes: Sequence[DeviceClass], d: int, *, of_gradients: bool = False) -> int:
        """Return how many of d coordinates are in a report: as named, or by the rule.

        All classes report the same number, which suits the class of the least epsilon.
        of_gradients: whether the values are gradients, for which a mechanism may have another card.
        Raises UsageError unless the number is from 1 to d.
        """
        least = DeviceClass(min(device_class.epsilon for device_class in classes))

        @cache
        def variance(k: int) -> float:
            """The variance of one of k reported values, for inputs that are uniform on [-1, 1]."""
            design = self.design(least, k, of_gradients=of_gradients)
            return certify.moments(design.card).even_second_moment()

        if self.k is not None:
            k = self.k
        elif self.card is not None and self.k_rule == VARIANCE:
            card = _given_card(self.card, 1, least.epsilon)
            k = min(d, least.epsilon // card.epsilon)
        else:
            k = coordinates_by_rule(self.k_rule, least.epsilon, d, variance)
        require(1 <= k <= d, "k", f"1 to {d}, the number of coordinates", k)
        return k

    def design(
        self, device_class: DeviceClass, k: int, *, of_gradients: bool = False
    ) -> ReportDesign:
        """Design a report of k values, each at epsilon / k of the class.

        of_gradients: as of `k_for`. Raises UsageError for a card that cannot be averaged.
        """
        epsilon = device_class.epsilon
        if self.card is not None:
            card = _given_card(self.card, k, epsilon)
            mechanism = "card"
        else:
            use = None
            if of_gradients:
                use = mechanisms.GRADIENTS
            mechanism_options = tuple(sorted((self.mechanism_options or {}).items()))
            card = _designed_card(self.mechanism, self.levels, epsilon // k, use, mechanism_options)
            mechanism = self.mechanism

        try:
            variance = float(certify.moments(card).variance(Fraction(0)))
        except certify.Biased as error:
            raise UsageError(
                f"this card cannot be averaged: {error}", hint="see 'tern card show'"
            ) from error
        return ReportDesign(
            card=card,
            k=k,
            variance=variance,
            mechanism=mechanism,
            epsilon=epsilon,
            share=device_class.share,
            tau=device_class.tau,
        )


@lru_cache(maxsize=64)
def _designed_card(
    mechanism: str,
    levels: int | None,
    epsilon: int,
    use: str | None,
    mechanism_options: tuple[tuple[str, Any], ...],
) -> cards.Card:
    """Design the card of a mechanism at an epsilon in millionths.

    use: what the values are, where the mechanism has several cards. mechanism_options: pairs of a
    name and a value. The card is cached, since some cards take seconds to design, and the search
    for k needs them, too.
    """
    design = mechanisms.design(
        mechanism, levels=levels, epsilon_micro=epsilon, use=use, **dict(mechanism_options)
    )
    card: cards.Card = design.decode()
    return card


def _given_card(text: str, k: int, epsilon: int) -> cards.Card:
    """Decode a card, and check that k values of it cost at most epsilon (micro).

    text: the card in hexadecimal digits. Raises UsageError.
    """
    card = single_valued(decode(bytes.fromhex(text), "this"), "this card")
    if k * card.epsilon > epsilon:
        raise UsageError(
            f"{k} coordinates of this card cost an epsilon of {k * card.epsilon / MICRO:g}, "
            f"more than the {epsilon / MICRO:g} of a whole report",
            hint="ask for that with --epsilon, or use a card of a smaller one",
        )
    return card
