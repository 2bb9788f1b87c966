"""Designs of reports: the card and the cost for each class of devices, and the options behind them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, partial
from pathlib import Path, PurePath
from typing import Any, ClassVar, NamedTuple, SupportsBytes, TypeVar

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern.fixed import MAX_EPSILON
from ternhost.count.disclosures import ReportCounts
from ternhost.datasets import Indices
from ternhost.errors import UsageError
from ternhost.options import Number, OptionGroup, option, require
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.accounting import Policy, Release
from ternhost.privacy.base import MICRO, parse_epsilon, single_valued
from ternhost.privacy.cards import decode, load
from ternhost.privacy.composing import ReportKind
from ternhost.text import whole_number

T = TypeVar("T")

_LONGEST_NAME = 255  # characters of a file's name

CardSource = str | Path | SupportsBytes
"""A card: its file, its bytes, or what `ternhost.design` returns. Options keep it in hexadecimal."""

# Rules for k, the number of coordinates in a report, each reported at epsilon / k. "variance"
# assumes values that are spread evenly over [-1, 1], as gradients are once they are scaled to their
# range. `tern papers coordinates` compares the rules.
VARIANCE = "variance"
WIDE = "wide"
PAPER = "paper"
K_RULES = (VARIANCE, WIDE, PAPER)
_EPSILON_PER_VALUE = 2_500_000  # micro-epsilon, of the paper's rule
_WIDER = 1_500_000  # micro-epsilon that the rule "wide" adds: 0.6 of the above

# Micro-epsilon. Below this per value, one value at the whole epsilon is better with any card.
_LEAST_OF_SEVERAL = 1_500_000

in_privacy = partial(option, group="privacy")


def coordinates_by_rule(
    rule: str, epsilon: int, d: int, variance: Callable[[int], float] | None = None
) -> int:
    """Choose how many of d coordinates a report has: a number k, each at epsilon / k.

    More coordinates bring more values, but more noise in each. The rules are:
    - PAPER: floor(epsilon / 2.5) of Zhao et al. (IEEE IoT J. 8, 2021);
    - WIDE: floor(epsilon / 2.5 + 0.6);
    - VARIANCE: the first local minimum of variance(k) / k. An estimate from n reports rests on
      about n k / d values for each coordinate, so that its variance, noise and sampling together,
      is d / (k n) times that of a value.

    rule: one of K_RULES.
    epsilon: what a report may cost, in millionths.
    variance: the variance of one of k reported values, as a function of k; only the rule VARIANCE
        needs it.
    Raises UsageError for a rule of another name.
    """
    if rule not in K_RULES:
        raise UsageError(f"there is no rule {rule!r} for k", hint=f"one of: {', '.join(K_RULES)}")

    if rule == VARIANCE:
        assert variance is not None
        # With less epsilon than that for each value, one value at the whole epsilon is better.
        largest = min(d, epsilon // _LEAST_OF_SEVERAL)
        k = 1
        while k < largest and variance(k + 1) / (k + 1) < variance(k) / k:
            k += 1
        return k

    if rule == WIDE:
        epsilon += _WIDER  # 0.6 * 2.5
    by_epsilon = epsilon // _EPSILON_PER_VALUE
    return max(1, min(d, by_epsilon))


# Classes of devices

_SHARE_TOLERANCE = 1e-6  # of a sum of shares that were written with few digits


@dataclass(frozen=True)
class DeviceClass:
    """A class of devices: those whose reports may cost the same epsilon."""

    epsilon: int  # of a report, in millionths
    share: float = 1.0  # of all devices, that are of this class
    # The safe range: devices clip values to +-tau. None: the class has no range of its own.
    tau: float | None = None

    @classmethod
    def parse(cls, text: str, most: int = MAX_EPSILON) -> "list[DeviceClass]":
        """Parse the option --epsilons, such as "1:0.5,4:0.5" or "0.25:2:0.5,0.5:8:0.5".

        Each part is EPSILON:SHARE or TAU:EPSILON:SHARE. most: the largest epsilon of a report, in
        millionths. Raises UsageError.
        """
        classes = []
        for tau_and_epsilon, share in parse_shares(text):
            tau_text, colon, epsilon = tau_and_epsilon.rpartition(":")
            tau = None
            if colon:
                tau = _positive(tau_text)
                if tau is None:
                    text = f"{tau_text!r} is no bound to clip values to"
                    raise UsageError(text, hint="such as 0.25:2:0.5 for TAU:E:SHARE")
            micro_epsilon = parse_epsilon(epsilon, most, "--epsilons")
            classes.append(cls(micro_epsilon, share, tau))
        return classes


def parse_shares(text: str, hint: str = "such as 1:0.5,2:0.3,4:0.2") -> list[tuple[str, float]]:
    """Parse a text NAME:SHARE,... into pairs of a name and a share of the devices.

    The shares may be rounded, such as 0.333; they are scaled so that they add up to exactly 1.
    Raises UsageError if a part is not of that form (with this hint), if a name is there twice, or
    if the shares are far from adding up to 1.
    """
    share_of_name: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().rpartition(":")
        share = _positive(number)
        if not name or share is None:
            raise UsageError(f"{part.strip()!r} is not a class of devices", hint)
        if name in share_of_name:
            raise UsageError(
                f"{name} names a class of devices twice",
                hint="name it once, with the sum of its shares",
            )
        share_of_name[name] = share

    total = sum(share_of_name.values())
    if abs(total - 1) > _SHARE_TOLERANCE:
        raise UsageError(
            f"the shares of the devices must add up to 1, not {total:g}", hint="change a share"
        )
    return [(name, share / total) for name, share in share_of_name.items()]


def _positive(text: str) -> float | None:
    """Parse a number above 0; return None for any other text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number > 0 else None


def class_of(devices: npt.ArrayLike, parts: Sequence[float], seed: int) -> Indices:
    """Assign each device to a class at random, but always in the same way.

    The class follows from a hash of the device's id and the seed, so that it does not change with
    the round, the run or the other devices. The hash is the finaliser of SplitMix64, with its
    constants (Steele, Lea and Flood, OOPSLA 2014).

    devices: ids of devices (n).
    parts: the share of the devices that each class gets, in the order of the classes.
    Returns the number of each device's class (n, from 0).
    """
    ids = np.asarray(devices, np.uint64)
    if len(parts) == 1:
        return np.zeros(len(ids), np.int64)

    with np.errstate(over="ignore"):  # products are meant modulo 2**64
        mixed = ids + np.uint64(0x9E3779B97F4A7C15) * np.uint64((seed + 1) % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    # The upper 53 bits, as many as a float has, make a number from 0 to 1.
    uniform = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    # Class i gets the numbers from the sum of the shares before it to the sum including it.
    upper_ends = np.cumsum(parts)
    return np.searchsorted(upper_ends[:-1], uniform, side="right").astype(np.int64)


# Designs


@dataclass(frozen=True)
class ReportDesign:
    """The design of the reports of a class of devices: k values, each perturbed by a card.

    A card is a certified table of probabilities, from which a device draws the symbol that it
    reports instead of a value.
    """

    card: cards.Card
    k: int  # values of a report
    variance: float  # of a reported value whose input is 0
    mechanism: str  # the name of the mechanism that the card is of
    epsilon: int  # millionths that the report may cost; `cost` is what it does
    share: float = 1.0  # of the devices, that are of this class
    tau: float | None = None  # the safe range: devices clip values to +-tau
    what: str = "coordinate"  # the word for one value of the report

    @property
    def cost(self) -> int:
        """The true cost of a report, in micro-epsilon."""
        return self.k * int(self.card.epsilon)

    @property
    def policy(self) -> Policy:
        """The limits that devices of the class enforce: for one report, and for life the same."""
        most = max(self.epsilon, self.cost)
        return Policy(most, most)

    @property
    def report(self) -> ReportKind:
        """The privacy loss of one report, in the form that many reports are composed from."""
        exact = ReportKind.of(self.card, self.k)
        if exact.cost == self.cost:
            return exact
        return ReportKind(self.cost)

    def report_counts(self, times: int) -> ReportCounts:
        """Return how many reports of each kind a device makes, if it reports so many times."""
        return {self.report: times}

    def release(self, times: int) -> Release:
        """Return what a device of the class releases if it reports so many times."""
        what = self.what
        if self.tau is not None:
            what = f"{what} (tau {self.tau:g})"
        return Release(what, self.card.epsilon, values=self.k, times=times)

    def summary(self, times: int) -> dict[str, Any]:
        """Return the design for JSON, and what `times` reports cost each device of the class.

        Costs are stored in millionths, and here they are plain epsilons. A report may cost a little
        less than it is allowed to, since a card has its own certified cost.
        """
        return {
            "epsilon": self.epsilon / MICRO,  # that a report may cost
            "tau": self.tau,
            "share": self.share,
            "k": self.k,
            "card": self.card.data.hex(),
            "card_hash": cards.card_hash(self.card.data).hex(),
            "levels": self.card.symbols,
            "epsilon_per_report": self.cost / MICRO,  # that it does cost
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
    """Divide devices into classes that each have a report design of their own.

    designs: the design of each class, and what share of all devices it gets.
    devices: ids of devices.
    seed: says which device is of which class: see `class_of`.
    The classes have the order of `designs`; those without a device are left out.
    """
    ids = np.asarray(devices, np.int64)
    shares_of_classes = [design.share for design in designs]
    classes = class_of(ids, shares_of_classes, seed)
    groups = []
    for number, design in enumerate(designs):
        members = ids[classes == number]
        if len(members):
            groups.append(ClassMembers(number, design, members))
    return groups


def pools_of(
    designs: Sequence[ReportDesign], asked: npt.ArrayLike, everybody: npt.ArrayLike, seed: int
) -> list[Indices] | None:
    """Return, for each class of devices that a round asks, all devices that are of the class.

    The devices that the round asks were drawn from these.

    designs: the design of each class.
    asked: ids of the devices of a round.
    everybody: ids of all devices of the run.
    seed: says which device is of which class: see `class_of`.
    The result has the order of `by_class` for the devices of the round. It is None if the round
    asks everybody.
    """
    if len(np.asarray(asked)) == len(np.asarray(everybody)):
        return None
    all_of_class = {}
    for members in by_class(designs, everybody, seed):
        all_of_class[members.number] = members.devices
    return [all_of_class[members.number] for members in by_class(designs, asked, seed)]


def cheapest_and_dearest(
    classes: Sequence[T], cost: Callable[[T], float], most: int = 12
) -> Sequence[T]:
    """Return the classes to show to people: all, or the cheapest and the dearest of too many.

    classes: the classes of devices, in any form.
    cost: what a class costs. most: how many are not too many.
    """
    if len(classes) <= most:
        return classes
    return [min(classes, key=cost), max(classes, key=cost)]


def stated_epsilon_lines(result: Mapping[str, Any]) -> list[str]:
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


def _card_value(value: Any) -> str:
    """Return a card that Python hands over as hexadecimal digits.

    value: its bytes, an object that has them, its hexadecimal digits, or the path of its file.
    Raises UsageError if the file cannot be read, TypeError for any other value.
    """
    is_path = isinstance(value, str | PurePath)  # a Path has bytes, too: those of its name
    if not is_path:
        if not isinstance(value, SupportsBytes):
            raise TypeError
        return bytes(value).hex()
    text = str(value)
    is_hexadecimal = re.fullmatch("([0-9a-f]{2})*", text) is not None
    try:
        if is_hexadecimal and (len(text) > _LONGEST_NAME or not Path(text).exists()):
            return text
        return _card_file(text)
    except (OSError, ValueError) as error:  # ValueError: the path has a NUL
        reason = getattr(error, "strerror", None) or error
        hint = "give a card file, or what ternhost.design returns"
        raise UsageError(f"{text[:60]}: {reason}", hint) from error


def epsilons_option(metavar: str) -> Any:
    """Return the option by which each class of devices gets an epsilon of its own.

    metavar: the form of its value in the help.
    """
    return in_privacy(None, metavar=metavar, instead_of=("epsilon",))


@dataclass(frozen=True)
class BudgetOptions(OptionGroup):
    """Options of the epsilon of a report: one for all devices, or one for each class of them."""

    takes_taus: ClassVar[bool] = False  # whether a class of devices may have a bound of clipping

    epsilon: Number = in_privacy("2", metavar="E")
    epsilons: str | None = epsilons_option("E:SHARE,...")

    @property
    def most_epsilon(self) -> int:
        """The largest epsilon of a class of devices, in millionths."""
        return MAX_EPSILON

    def check(self) -> None:
        self.classes()

    def classes(self) -> list[DeviceClass]:
        """Return the classes of devices that the options name: one, or one for each epsilon.

        Raises UsageError.
        """
        if self.epsilons is None:
            return [DeviceClass(parse_epsilon(self.epsilon))]
        classes = DeviceClass.parse(self.epsilons, self.most_epsilon)
        has_taus = any(device_class.tau is not None for device_class in classes)
        if has_taus and not self.takes_taus:
            text = (
                f"--epsilons {self.epsilons} has bounds to clip values to, and this run takes none"
            )
            raise UsageError(text, hint="name E:SHARE of each class, such as 1:0.5,4:0.5")
        return classes


@dataclass(frozen=True)
class MechanismOptions(OptionGroup):
    """Options of reports whose values each go through a card, that of a mechanism or a given one."""

    mechanism: str = in_privacy("three-outputs", metavar="NAME")
    card: CardSource | None = in_privacy(
        None, kind=_card_file, accepts=_card_value, metavar="FILE", instead_of=("mechanism",)
    )
    k: str | int = in_privacy(VARIANCE, metavar="|".join(("K", *K_RULES)))

    def check(self) -> None:
        """Raise UsageError for a k that is neither a number nor the name of a rule."""
        if self.named_k is None and self.k not in K_RULES:
            raise UsageError(
                f"--k {self.k} is neither a number nor a rule", f"one of: {', '.join(K_RULES)}"
            )

    @property
    def named_k(self) -> int | None:
        """The number of coordinates of a report; None if a rule chooses it."""
        return whole_number(str(self.k))

    @property
    def k_rule(self) -> str:
        """The rule that chooses the number of coordinates of a report, where none is named."""
        return VARIANCE if self.named_k is not None else str(self.k)

    def require_one_epsilon(self, classes: int) -> None:
        """Raise UsageError where one card was named for several classes of devices."""
        if classes > 1 and self.card is not None:
            raise UsageError(
                "a card is for one epsilon, and there are several", "name a --mechanism instead"
            )

    def choose_k(
        self, classes: Sequence[DeviceClass], d: int, *, of_gradients: bool = False
    ) -> int:
        """Return how many of d coordinates a report has: as the user named it, or by the rule.

        The coordinates of a report share its epsilon. All classes of devices report the same
        number. It suits the class of the least epsilon, whose reports are the noisiest.

        classes: the classes of devices, each with an epsilon of its own.
        of_gradients: whether the values are gradients, for which a mechanism may have another card.
        Raises UsageError unless the number is from 1 to d.
        """
        least_epsilon = min(device_class.epsilon for device_class in classes)
        if self.named_k is not None:
            k = self.named_k
        elif self.card is not None and self.k_rule == VARIANCE:
            # The user gave the card (a table that perturbs a value), and so its epsilon for each value:
            # a report has as many values as its own epsilon allows.
            card = _given_card(str(self.card), k=1, epsilon=least_epsilon)
            k = min(d, least_epsilon // card.epsilon)
        else:
            least_class = DeviceClass(least_epsilon)

            @cache
            def variance(k: int) -> float:
                """Return the variance of one of k reported values.

                It is the mean over inputs that are spread evenly over [-1, 1].
                """
                design = self.design(least_class, k, of_gradients=of_gradients)
                return certify.moments(design.card).even_second_moment()

            k = coordinates_by_rule(self.k_rule, least_epsilon, d, variance)
        require(1 <= k <= d, "k", f"1 to {d}, the number of coordinates", k)
        return k

    def design(
        self, device_class: DeviceClass, k: int, *, of_gradients: bool = False
    ) -> ReportDesign:
        """Design the reports of a class of devices: k values, each perturbed at epsilon / k.

        They are perturbed by a card, a certified table of probabilities: the one that the user
        gave, or one of the named mechanism.

        device_class: the class, with the epsilon of its reports.
        of_gradients: whether the values are gradients, for which a mechanism may have another card.
        Raises UsageError for a card whose reports have no unbiased mean.
        """
        epsilon = device_class.epsilon
        if self.card is not None:
            card = _given_card(str(self.card), k, epsilon)
            mechanism = "card"
        else:
            use = None
            if of_gradients:
                use = mechanisms.GRADIENTS
            card = _designed_card(self.mechanism, epsilon // k, use)
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
def _designed_card(mechanism: str, epsilon: int, use: str | None) -> cards.Card:
    """Return the card of a mechanism: the table by which it perturbs one value.

    Cards are cached, since some take seconds to design, and the search for k needs them, too.

    epsilon: what one value may cost, in millionths.
    use: what the values are, where the mechanism has several cards; None: anything.
    """
    design = mechanisms.design(mechanism, epsilon_micro=epsilon, use=use)
    card: cards.Card = design.decode()
    return card


def _given_card(text: str, k: int, epsilon: int) -> cards.Card:
    """Decode the card that the user gave, and check that k values perturbed by it cost at most
    epsilon.

    A card is a certified table of probabilities, from which a device draws what it reports.

    text: the card in hexadecimal digits.
    k: how many values a report has.
    epsilon: what all of them may cost together, in millionths.
    Raises UsageError if they cost more.
    """
    card = single_valued(decode(bytes.fromhex(text), "this"), "this card")
    if k * card.epsilon > epsilon:
        raise UsageError(
            f"{k} coordinates of this card cost an epsilon of {k * card.epsilon / MICRO:g}, "
            f"more than the {epsilon / MICRO:g} of a whole report",
            hint="give that with --epsilon, or use a card of a smaller epsilon",
        )
    return card
