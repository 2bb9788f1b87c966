"""The statement of a guarantee, for people and for programs.

Every command, report and page takes its words from here.

A guarantee names what is protected, against whom, over what time, and how well. The numbers come
from an account of reports (`composing.compose`), which comes from the integers of the cards. What
neighbours are is defined in shared_specs/ledger.md, Neighbours.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from typing import Any, Self

from tern import ledger
from ternhost.privacy import gaussian_curve, sums
from ternhost.privacy.composing import ReportKind, compose, for_steps, pure_sum
from ternhost.privacy.units import protected

_DIGITS = 3  # of a number for people
# of the pure epsilon: an epsilon at delta that is no smaller is not worth a second number
_LESS = 0.995
REPLACED = 2  # steps between two data sets of which a run of records says different things
_REPLACED_TWICE = 4  # where an event lies in two runs and changes both


class Span(StrEnum):
    """What a guarantee is about."""

    REPORT = "report"
    RUN = "run"
    LIFE = "life"  # of a device so far, in all runs that are known
    BUDGET = "budget"  # of a device for life, at most


class Reader(StrEnum):
    """Whom a guarantee holds against."""

    EVERYBODY = "everybody"  # the host, the broker, the network: whoever sees the reports
    OWNER = "owner of the server"  # who sees the counts of sites alone


_SUBJECTS = {
    Span.REPORT: "a report",
    Span.RUN: "this run",
    Span.LIFE: "all runs so far together",
    Span.BUDGET: "the budget for life",
}
_VERBS = {
    Span.REPORT: "protects",
    Span.RUN: "protects",
    Span.LIFE: "protect",
    Span.BUDGET: "protects",
}


@dataclass(frozen=True)
class Bounds:
    """What is proved of two data sets.

    pure: an epsilon at delta 0; None: there is none. epsilon: at `delta`; it is the pure one where
    no much smaller one is proved. exceeded: at most the probability that somebody's odds grow or
    shrink by more than exp(epsilon); None: not known.
    """

    pure: float | None
    epsilon: float
    delta: float
    exceeded: float | None = None

    @classmethod
    def of(cls, reports: Mapping[ReportKind, int], delta: float) -> Self:
        """The bounds of so many reports of each kind."""
        loss = compose(reports, delta)
        if loss.pure is not None and loss.epsilon >= _LESS * loss.pure:
            return cls(loss.pure, loss.pure, delta, 0.0)
        return cls(loss.pure, loss.epsilon, delta, _exceeded(reports, loss.epsilon))

    @property
    def words(self) -> str:
        """The epsilon, as "4", "0.928 at delta 1e-06", or "36, or 11.2 at delta 1e-06"."""
        at_delta = f"{rounded(self.epsilon)} at delta {self.delta:g}"
        if self.pure is None:
            return at_delta
        if self.epsilon == self.pure:
            return rounded(self.pure)
        return f"{rounded(self.pure)}, or {at_delta}"


def _exceeded(reports: Mapping[ReportKind, int], epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss leaves [-epsilon, epsilon].

    reports: how many of each kind. The bound is the least of those by rho and by the Gaussian noise
    alone. Outcomes with a loss below -epsilon are e**epsilon times as likely for the other data
    set, whose loss there is above epsilon.
    """
    rho = sum(times * report.rho for report, times in reports.items())
    bound = sums.exceeded(rho, epsilon)
    gaussian = {report: times for report, times in reports.items() if report.gaussian}
    pure = {report: times for report, times in reports.items() if not report.gaussian}
    # The losses of pure reports never exceed their sum, so the Gaussian ones must exceed the rest.
    left_for_gaussian = epsilon - pure_sum(pure)
    if gaussian and left_for_gaussian > 0:
        bound = min(bound, _exceeded_by_noise(gaussian, left_for_gaussian))
    return min(1.0, bound * (1 + math.exp(-epsilon)))


def _exceeded_by_noise(reports: Mapping[ReportKind, int], epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss is above epsilon.

    reports: how many of each kind, all of them with Gaussian noise.
    """
    rho = sum(times * report.rho for report, times in reports.items())
    bound = sums.exceeded(rho, epsilon)
    if all(report.normal for report in reports):
        normal = sum(times * report.normal for report, times in reports.items())
        bound = min(bound, gaussian_curve.exceeded(normal, epsilon))
    return bound


@dataclass(frozen=True)
class Guarantee:
    """What is promised of one unit: the whole device (0), or a run of so many consecutive records.

    bounds: for neighbours, which are any two data sets of a device, or data sets with and without a
    run. content: for data sets in which a run says something else; event: where an event lies in
    two runs and changes both. Both are None for a device, whose neighbours are replaced already.
    share: of the devices, where they differ by class. site: whose counts are meant, toward the
    owner of the server; honest: the share of its devices that are not the owner's. fixed: whether
    number and cards of the reports were fixed before the first one, as numbers at a delta need it.
    """

    span: Span
    unit: int
    bounds: Bounds
    content: Bounds | None = None
    event: Bounds | None = None
    reader: Reader = Reader.EVERYBODY
    share: float = 1.0
    site: str = ""
    honest: float = 1.0
    fixed: bool = True

    @classmethod
    def of(
        cls,
        span: Span,
        reports: Mapping[ReportKind, int],
        delta: float,
        share: float = 1.0,
        fixed: bool | None = None,
    ) -> Self:
        """Return the guarantee that a device's reports give toward everybody, at `delta`.

        reports: how many of each kind. If some are sums over runs of records, only the shortest
        such run is protected. share: of the devices for which it holds. fixed: whether the reports
        were fixed before the first one; by default yes, except over a life.
        """
        if fixed is None:
            fixed = span != Span.LIFE
        unit = min((report.unit for report in reports if report.unit), default=0)
        reports_of_unit = _for_unit(reports, unit)
        bounds = Bounds.of(reports_of_unit, delta)
        if not unit:
            return cls(span, unit, bounds, share=share, fixed=fixed)
        content = Bounds.of(for_steps(reports_of_unit, REPLACED), delta)
        event = Bounds.of(for_steps(reports_of_unit, _REPLACED_TWICE), delta)
        return cls(span, unit, bounds, content, event, share=share, fixed=fixed)

    @classmethod
    def of_budget(
        cls, budget: int, measure: int, unit: int, delta: float, span: Span = Span.BUDGET
    ) -> Self:
        """Return the guarantee of a ledger's budget, whatever reports it pays for.

        budget: in millionths of the ledger's measure. unit: the records of a run that is protected;
        0: the device. span: LIFE if `budget` is what a ledger has paid so far.
        """
        if measure == ledger.RHO:
            paid = ReportKind(budget, gaussian=True, unit=unit)
        else:
            paid = ReportKind(budget, unit=unit)
        return cls.of(span, {paid: 1}, delta)

    @classmethod
    def toward_server(cls, site: str, epsilon: float, delta: float, honest: float) -> Self:
        """Return the guarantee for a device of a site toward the owner of the server.

        The owner sees only the site's counts. epsilon: of all rounds so far, at `delta`. honest:
        the share of the site's devices that are not the owner's.
        """
        bounds = Bounds(None, epsilon, delta)
        return cls(Span.LIFE, 0, bounds, reader=Reader.OWNER, site=site, honest=honest, fixed=False)

    @property
    def needs_fixed(self) -> bool:
        """Whether one of the numbers holds only for reports that were fixed beforehand."""
        known = (self.bounds, self.content, self.event)
        return any(bounds.epsilon != bounds.pure for bounds in known if bounds is not None)

    # In words

    @property
    def protects(self) -> str:
        """What is protected, for people."""
        return protected(self.unit)

    @property
    def against(self) -> str:
        """Whom the guarantee holds against, for people."""
        if self.reader == Reader.OWNER:
            return f"the owner of the server, who sees the counts of {self.site} alone"
        return "everybody who sees the reports, the host included"

    def numbers(self) -> str:
        """The epsilon of what is protected: of a run of records also of what it says."""
        if self.content is None:
            return f"with epsilon {self.bounds.words}"
        return f"with epsilon {self.bounds.words} (that it was there) and {self.content.words} (what it says)"

    def words(self) -> str:
        """Return the guarantee as a sentence without a full stop. Numbers are rounded up."""
        subject, verb = _SUBJECTS[self.span], _VERBS[self.span]
        if self.reader == Reader.OWNER:
            subject, verb = f"the counts of {self.site}", "protect"
        text = f"{subject} {verb} {self.protects} {self.numbers()}"
        if self.share < 1:
            text = f"{100 * self.share:.3g} % of the devices: {text}"
        conditions = list(self.conditions())
        if conditions:
            text += f", if {' and '.join(conditions)}"
        return text

    def conditions(self) -> Iterable[str]:
        """Yield the conditions under which the numbers hold, as clauses after an "if"."""
        if self.honest < 1:
            yield f"{100 * self.honest:g} % of the site's devices are honest"
        if self.needs_fixed and not self.fixed:
            yield "no run was chosen by the results of earlier ones"

    # For JSON

    def as_json(self) -> dict[str, Any]:
        """Return the exact numbers and their meaning in words; `from_json` takes them back."""
        return {
            **asdict(self),
            "protects": self.protects,
            "neighbours": "presence" if self.unit else "replacement",
            "against": self.against,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the guarantee that `as_json` turned into these fields."""
        return cls(
            span=Span(fields["span"]),
            unit=fields["unit"],
            bounds=Bounds(**fields["bounds"]),
            content=_optional_bounds(fields["content"]),
            event=_optional_bounds(fields["event"]),
            reader=Reader(fields["reader"]),
            share=fields["share"],
            site=fields["site"],
            honest=fields["honest"],
            fixed=fields["fixed"],
        )


def _optional_bounds(fields: Mapping[str, Any] | None) -> Bounds | None:
    if fields is None:
        return None
    return Bounds(**fields)


def _for_unit(reports: Mapping[ReportKind, int], unit: int) -> Mapping[ReportKind, int]:
    """Return the reports at what each of them costs one run of `unit` records.

    unit: the length of the shortest run that any of the reports protects; 0: none protects a run.
    """
    reports_of_unit: Counter[ReportKind] = Counter()
    for report, times in reports.items():
        if report.unit in (0, unit):
            reports_of_unit[report] += times
            continue
        # The short run changes what a longer one says, which is two steps (ledger.md, Neighbours).
        # It lies in one longer run if its length divides the longer one, and else in two at most.
        steps = REPLACED if report.unit % unit == 0 else _REPLACED_TWICE
        reports_of_unit[replace(report.for_steps(steps), unit=unit)] += times
    return reports_of_unit


def rounded(number: float) -> str:
    """Return a number for people, rounded up to three digits, or whole from 1,000 on.

    3.99999 becomes "4", 0.927374 becomes "0.928".
    """
    exact = Decimal(repr(number))
    last_digit = 0
    if exact:
        last_digit = min(0, exact.adjusted() - _DIGITS + 1)
    up = exact.quantize(Decimal(1).scaleb(last_digit), rounding=ROUND_CEILING)
    text = f"{up:,f}"
    if "." not in text:
        return text
    return text.rstrip("0").rstrip(".")


def believed(before: float, epsilon: float) -> float:
    """The most that somebody believes after the reports, if odds change by at most exp(epsilon).

    before: the belief before them, a probability.
    """
    return before / (before + (1 - before) * math.exp(-epsilon))
