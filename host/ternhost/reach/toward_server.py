"""What the counts of a gateway tell the owner of the server, and the bound that a site or a run sets to it
(shared_specs/gateways.md, Toward the owner of the server). Nothing here protects from a gateway that lies: its devices
trust it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tern import card as cards
from tern import ledger
from ternhost.count.members import Integers, integers
from ternhost.count.questions import decode_body
from ternhost.count.rounds import Cohort
from ternhost.count.telling import Told
from ternhost.errors import UsageError
from ternhost.files import read_object
from ternhost.options import require
from ternhost.privacy import sums
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.privacy.composing import Report, fewest

FILE = "site.json"
MORE = "more devices at this site, a smaller epsilon, or fewer rounds"  # what may help
_ALL = 10**6 * MICRO  # stands for no bound
_MEMBERS = ("toward_server", "delta", "honest")

Answered = list[tuple[Report, Integers]]
"""The reports of a round's cohorts, each among as many as there are, and the devices that were asked for them."""


@dataclass(frozen=True)
class Bound:
    """What the counts of all rounds may tell about a device: epsilon (micro) at delta. honest: the share of the reports
    that the owner of the server does not control."""

    epsilon: int
    delta: float = 1e-6
    honest: float = 1.0

    @classmethod
    def parse(cls, epsilon: str, delta: str, honest: float) -> Self:
        """Raises UsageError."""
        require(0 < honest <= 1, "honest", "a share above 0 and at most 1", honest)
        return cls(
            parse_epsilon(epsilon, ledger.MAX_BUDGET, "--toward-server"), sums.parse_delta(delta), honest
        )

    @classmethod
    def read(cls, fields: Sequence[float] | None) -> Self | None:
        """From a message of a gateway or its host, if it has one."""
        return None if fields is None else cls(int(fields[0]), *fields[1:])

    @property
    def fields(self) -> list[float]:
        """For a message."""
        return [self.epsilon, self.delta, self.honest]

    @classmethod
    def of_site(cls, directory: Path) -> Self | None:
        """The bound of a site's site.json, if there is one. Raises UsageError, StorageError."""
        path = directory / FILE
        if not path.exists():
            return None
        found = read_object(path)
        if unknown := found.keys() - set(_MEMBERS):
            hint = f"it may have {', '.join(_MEMBERS)}"
            raise UsageError(f"{path}: unknown {', '.join(sorted(unknown))}", hint)
        try:
            delta, honest = found.get("delta", 1e-6), found.get("honest", 1)
            return cls.parse(str(found.get("toward_server")), str(delta), float(honest))
        except (UsageError, TypeError, ValueError) as error:
            hint = 'such as {"toward_server": 1, "delta": 1e-6, "honest": 0.9}'
            raise UsageError(f"{path}: {getattr(error, 'message', error)}", hint) from error

    def __str__(self) -> str:
        return f"epsilon {self.epsilon / MICRO:g} at delta {self.delta:g}"

    def refuses(self, told: Told, answered: Answered) -> str:
        """Why these reports would break it after what was told before; "" where they do not."""
        now = self.of(told.also((report, devices, 1) for report, devices in answered), answered)
        if now <= self.epsilon / MICRO:
            return ""
        text = f"held back: with this round the owner of the server would know epsilon {now:.4g} of a device, and "
        text += f"{self} is the bound"
        before = self.of(told, answered)
        alone = max(answered, key=lambda each: self.of(Told().also([(*each, 1)]), answered))[0]
        if before:
            return f"{text}; rounds before it told {before:.4g}"
        n = fewest(alone, self.epsilon / MICRO, self.delta)
        many = "no number of devices is" if n is None else f"{math.ceil(n / self.honest):,} devices are"
        return f"{text}: {many} enough to hide a report of epsilon {alone.cost / MICRO:g}, and here are {alone.mixed:,}"

    def of(self, told: Told, answered: Answered) -> float:
        """The epsilon that was told of the devices of a round."""
        devices = [int(device) for _, ids in answered for device in ids]
        return told.most(self.delta, self.honest, devices).epsilon


def reports_of(cohorts: Sequence[Cohort], reports: Iterable[int] | None = None) -> Answered:
    """reports: of each cohort; None: every device reports. Sums over units protect these, and a device not at all."""
    numbers = [len(cohort.devices) for cohort in cohorts] if reports is None else list(reports)
    return [
        (_report(cohort.body, n), integers(cohort.devices))
        for cohort, n in zip(cohorts, numbers, strict=True)
    ]


def _report(body: bytes, reports: int) -> Report:
    request = decode_body(body)
    card = cards.decode(bytes(request.card))
    if card.shape == cards.SUM and sums.of(card).unit:
        return Report(_ALL)
    return Report.asked(request).among(reports)
