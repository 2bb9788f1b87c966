"""The design of a report of a class of devices: its card, its cost, and the options that choose
them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tern import card as cards
from ternhost.count.disclosures import ReportCounts
from ternhost.datasets import Indices
from ternhost.errors import UsageError
from ternhost.options import option, require
from ternhost.privacy import certify, mechanisms
from ternhost.privacy.accounting import Policy, Release
from ternhost.privacy.base import MICRO, parse_epsilon, single_valued
from ternhost.privacy.cards import decode, load
from ternhost.privacy.composing import ReportKind

T = TypeVar("T")

# How many of d coordinates a device reports, each at epsilon / k. "variance" takes values that are
# spread evenly over [-1, 1], as gradients are once they are scaled to their range. `tern experiment
# coordinates` measures the rules.
VARIANCE = "variance"
K_RULES = (VARIANCE, "wide", "paper")
K_RULE_HELP = (
    "rule for K; variance: least variance of the estimate for values uniform on [-1, 1]; paper: floor(epsilon / 2.5); "
    "wide: floor(epsilon / 2.5 + 0.6)"
)

# Micro-epsilon: less for each of several values is worse than all for one, by any card.
_LEAST_OF_SEVERAL = 1_500_000

in_privacy = partial(option, group="privacy")
SEED_HELP = "seed that assigns devices and records; on a simulated fleet it also fixes the noise"
EPSILON_HELP = (
    "epsilon that a device spends in a report, whatever the algorithm; several reports add up"
)


def coordinates_by_rule(
    rule: str, epsilon: int, d: int, variance: Callable[[int], float] | None = None
) -> int:
    """k in 1..d for an epsilon (micro): floor(epsilon / 2.5 + 0.6), the paper's floor(epsilon /
    2.5), or the k of the least variance(k) / k, with variance(k) of one of k values. An estimate
    rests on about n k / d of n reports: its variance, noise and sampling together, is d / (k n)
    times that of a value. Raises UsageError for another rule.
    """
    if rule not in K_RULES:
        raise UsageError(f"unknown rule {rule!r} for k", hint=f"one of: {', '.join(K_RULES)}")
    if rule == VARIANCE:
        assert variance is not None
        k, most = 1, min(d, epsilon // _LEAST_OF_SEVERAL)
        while k < most and variance(k + 1) / (k + 1) < variance(k) / k:
            k += 1
        return k
    return max(1, min(d, (epsilon + (1_500_000 if rule == "wide" else 0)) // 2_500_000))


# Options


def _card_file(path: str) -> str:
    return path and load(path).hex()


def epsilons_option(*instead_of: str) -> Any:
    """The option of personalised budgets. instead_of: the options of one epsilon for all."""
    return in_privacy(
        None,
        "personalised budgets: epsilon of each class of devices, and its share of the devices",
        metavar="E:SHARE,...",
        instead_of=instead_of,
    )


@dataclass(frozen=True)
class Budgeted:
    """Options of everything that devices report: the epsilon of a report, of all devices or of
    classes of them.
    """

    epsilon: str = in_privacy("2", EPSILON_HELP, metavar="E")
    epsilons: str | None = epsilons_option("epsilon")

    def classes(self) -> list[tuple[str, float]]:
        """(epsilon, share of the devices) of each class. Raises UsageError."""
        return [(self.epsilon, 1.0)] if self.epsilons is None else shares(self.epsilons)

    def __post_init__(self) -> None:
        for epsilon, _ in self.classes():
            parse_epsilon(epsilon)


@dataclass(frozen=True)
class Mechanised:
    """Options of reports whose values each go through a card.

    `card` (hex) replaces the mechanism's.
    """

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

    def k_of(self, classes: Sequence[tuple[str, float]], d: int, of_gradients: bool = False) -> int:
        """k of d for these classes: as named, or by the rule for the least epsilon.

        Raises UsageError.
        """
        least, _ = min(classes, key=lambda one: parse_epsilon(one[0]))
        micro = parse_epsilon(least)

        @cache
        def variance(k: int) -> float:
            return certify.moments(
                self.design(least, k, of_gradients=of_gradients).card
            ).even_second_moment()

        if self.k is not None:
            k = self.k
        elif self.card is not None and self.k_rule == VARIANCE:  # its epsilon is given
            k = min(d, micro // _given_card(self.card, 1, micro).epsilon)
        else:
            k = coordinates_by_rule(self.k_rule, micro, d, variance)
        require(1 <= k <= d, "k", f"1 to {d}, the number of coordinates", k)
        return k

    def design(
        self,
        epsilon: str,
        k: int,
        *,
        of_gradients: bool = False,
        share: float = 1.0,
        tau: float | None = None,
    ) -> "ReportDesign":
        """The report of k values that costs at most `epsilon`, of a class of devices.

        Raises UsageError.
        """
        micro = parse_epsilon(epsilon)
        if self.card is not None:
            card, name = _given_card(self.card, k, micro), "card"
        else:
            use = mechanisms.GRADIENTS if of_gradients else None
            more = tuple(sorted((self.mechanism_options or {}).items()))
            card = _designed_card(self.mechanism, self.levels, micro // k, use, more)
            name = self.mechanism
        try:
            variance = float(certify.moments(card).variance(Fraction(0)))
        except certify.Biased as error:
            raise UsageError(
                f"this card cannot be averaged: {error}", hint="see 'tern card show'"
            ) from error
        return ReportDesign(card, k, variance, name, micro, share, tau)


@lru_cache(maxsize=64)
def _designed_card(
    mechanism: str,
    levels: int | None,
    epsilon: int,
    use: str | None,
    options: tuple[tuple[str, Any], ...],
) -> cards.Card:
    """A card is designed to choose k, and used again; some take seconds to design."""
    made = mechanisms.design(
        mechanism, levels=levels, epsilon_micro=epsilon, use=use, **dict(options)
    )
    card: cards.Card = made.decode()
    return card


def _given_card(text: str, k: int, epsilon: int) -> cards.Card:
    card = single_valued(decode(bytes.fromhex(text), "this"), "this card")
    if k * card.epsilon > epsilon:
        raise UsageError(
            f"{k} coordinates of this card cost an epsilon of {k * card.epsilon / MICRO:g}, "
            f"more than the {epsilon / MICRO:g} of a whole report",
            hint="ask for that with --epsilon, or use a card of a smaller one",
        )
    return card


def shares(text: str, hint: str = "such as 1:0.5,2:0.3,4:0.2") -> list[tuple[str, float]]:
    """`WHAT:SHARE,...` of the devices: (WHAT, SHARE) each, the shares made to add up to 1.

    Raises UsageError, with this hint where something is not of that form.
    """
    classes: list[tuple[str, float]] = []
    for part in text.split(","):
        what, colon, share = part.strip().rpartition(":")
        try:
            classes.append((what, float(share)))
        except ValueError:
            colon = ""
        if not colon or not what or not classes[-1][1] > 0:
            raise UsageError(f"{part.strip()!r} is not a class of devices", hint)
        if what in dict(classes[:-1]):
            raise UsageError(
                f"{what} names a class of devices twice", hint="add up its shares: name it once"
            )
    total = sum(share for _, share in classes)
    if abs(total - 1) > 1e-6:
        raise UsageError(
            f"the shares of the devices must add up to 1, not {total:g}", hint="change a share"
        )
    return [(what, share / total) for what, share in classes]


# Classes of devices


@dataclass(frozen=True)
class Choice:
    """The choice of a class of clients: a safe range tau, or none, and the epsilon of one report of
    k values.
    """

    tau: float | None
    epsilon: str
    share: float = 1.0  # of the clients

    @classmethod
    def read(cls, text: str, hint: str) -> "list[Choice]":
        """The choices `TAU:E:SHARE,...`. Raises UsageError with this hint."""
        choices = []
        for what, share in shares(text, hint):
            tau, _, epsilon = what.partition(":")
            try:
                parse_epsilon(epsilon)
                choices.append(cls(float(tau), epsilon, share))
            except (ValueError, UsageError):
                raise UsageError(
                    f"{what!r} is not a choice of a safe range and an epsilon", hint
                ) from None
        return choices


def ends(classes: Sequence[T], cost: Callable[[T], float], most: int = 12) -> Sequence[T]:
    """These, or of more than `most` the one of the least cost and that of the largest, for people."""
    return classes if len(classes) <= most else [min(classes, key=cost), max(classes, key=cost)]


def stated(result: Mapping[str, Any]) -> list[str]:
    """The lower epsilon that a paper states for the same reports, for people, if there is one."""
    if result.get("epsilon_stated") is None:
        return []
    return [
        f"the paper of HierA counts epsilon {result['epsilon_stated']:g} for a report of this run"
    ]


@dataclass(frozen=True)
class ReportDesign:
    """A report of a class of devices: k symbols of `card`, which may cost `epsilon` (micro)."""

    card: cards.Card
    k: int
    variance: float  # of a value at 0
    mechanism: str
    epsilon: int
    share: float = 1.0  # of the devices
    tau: float | None = None  # the safe range, of clients that choose one
    what: str = "coordinate"  # one value of the report

    @property
    def cost(self) -> int:
        """The true cost of a report, micro-epsilon."""
        return self.k * int(self.card.epsilon)

    @property
    def policy(self) -> Policy:
        """What devices of the class allow: the largest cost of a report, and at least that for
        life.
        """
        return Policy(max(self.epsilon, self.cost), max(self.epsilon, self.cost))

    @property
    def report(self) -> ReportKind:
        """What one report tells."""
        made = ReportKind.of(self.card, self.k)
        return made if made.cost == self.cost else ReportKind(self.cost)

    def report_counts(self, times: int) -> ReportCounts:
        """What this number of reports tells."""
        return {self.report: times}

    def release(self, times: int) -> Release:
        """The release of a device of the class in this number of reports."""
        what = self.what if self.tau is None else f"{self.what} (tau {self.tau:g})"
        return Release(what, self.card.epsilon, self.k, times)

    def summary(self, times: int) -> dict[str, Any]:
        """For JSON: the class, and what `times` reports cost each of its devices."""
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


def class_of(devices: npt.ArrayLike, parts: Sequence[float], seed: int) -> Indices:
    """The class of each device, in these shares, by a hash (the finaliser of SplitMix64) of its id
    and the seed alone: it does not change with the round, the run or the other devices.
    """
    ids = np.asarray(devices, np.uint64)
    if len(parts) == 1:
        return np.zeros(len(ids), np.int64)
    with np.errstate(over="ignore"):
        mixed = ids + np.uint64(0x9E3779B97F4A7C15) * np.uint64((seed + 1) % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    uniform = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.searchsorted(np.cumsum(parts)[:-1], uniform, side="right").astype(np.int64)


def by_class(
    designs: Sequence[ReportDesign], devices: npt.ArrayLike, seed: int
) -> list[tuple[int, ReportDesign, Indices]]:
    """(class, its design, its devices) of the classes that have some of these devices."""
    ids = np.asarray(devices, np.int64)
    classes = class_of(ids, [design.share for design in designs], seed)
    parts = [(i, design, ids[classes == i]) for i, design in enumerate(designs)]
    return [part for part in parts if len(part[2])]


def pools_of(
    designs: Sequence[ReportDesign], asked: npt.ArrayLike, everybody: npt.ArrayLike, seed: int
) -> list[Indices] | None:
    """Of each class that has some of the asked devices, all devices; None where everybody is asked."""
    if len(np.asarray(asked)) == len(np.asarray(everybody)):
        return None
    members = {i: devices for i, _, devices in by_class(designs, everybody, seed)}
    return [members[i] for i, _, _ in by_class(designs, asked, seed)]
