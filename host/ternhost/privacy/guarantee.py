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
from ternhost.privacy.composing import PrivacyLoss, ReportKind, compose, for_steps, pure_sum
from ternhost.privacy.units import DEVICE, protected

_DIGITS = 3  # of a number for people
# An epsilon at delta is worth a second number only if it is below this share of the pure epsilon.
_WORTHWHILE = 0.995
# Neighbours are data sets with and without a run of records. So a run with other content is two
# steps away (one takes the old run out, one puts the new in), and two such runs are four.
REPLACED = 2
_REPLACED_TWICE = 4


class Span(StrEnum):
    """The reports that a guarantee is about."""

    REPORT = "report"  # one report
    RUN = "run"  # all reports of one run
    LIFE = "life"  # all reports of a device so far, in all runs that are known
    BUDGET = "budget"  # all reports that a device's budget for life can pay for


class Reader(StrEnum):
    """Who is assumed to read the reports."""

    EVERYBODY = "everybody"  # the host, the broker, the network: whoever sees the reports
    OWNER = "owner of the server"  # who sees only the counts of sites


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
    """How well two data sets are proved to be hidden from each other.

    pure: an epsilon that needs no delta; None if there is none.
    epsilon: the epsilon at `delta`; it is the pure one where no much smaller one is proved.
    exceeded: an upper bound of the probability that somebody's odds grow or shrink by more than the
    factor exp(epsilon); None if it is not known.
    """

    pure: float | None
    epsilon: float
    delta: float
    exceeded: float | None = None

    @classmethod
    def of(cls, reports: Mapping[ReportKind, int], delta: float) -> Self:
        """Return the bounds for a device that makes these reports. reports: how many of each kind."""
        bounds = cls.of_loss(compose(reports, delta))
        if bounds.exceeded is not None:
            return bounds
        return replace(bounds, exceeded=_probability_of_exceeding(reports, bounds.epsilon))

    @classmethod
    def of_loss(cls, loss: PrivacyLoss) -> Self:
        """Return the bounds that a privacy loss proves.

        How likely `epsilon` is exceeded is known only if it needs no delta.
        """
        if loss.pure is not None and loss.epsilon >= _WORTHWHILE * loss.pure:
            return cls(loss.pure, loss.pure, loss.delta, exceeded=0.0)
        return cls(loss.pure, loss.epsilon, loss.delta)

    @property
    def words(self) -> str:
        """The epsilon, as "4", "0.928 at delta 1e-06", or "36, or 11.2 at delta 1e-06"."""
        at_delta = f"{rounded(self.epsilon)} at delta {self.delta:g}"
        if self.pure is None:
            return at_delta
        if self.epsilon == self.pure:
            return rounded(self.pure)
        return f"{rounded(self.pure)}, or {at_delta}"


def _probability_of_exceeding(reports: Mapping[ReportKind, int], epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss leaves [-epsilon, epsilon].

    It is the lesser of two bounds: by the total rho, and by the Gaussian noise alone. reports: how
    many of each kind.
    """
    rho = sum(times * report.rho for report, times in reports.items())
    above = sums.exceeded(rho, epsilon)
    gaussian = {report: times for report, times in reports.items() if report.gaussian}
    others = {report: times for report, times in reports.items() if not report.gaussian}
    # The losses of reports without Gaussian noise never exceed their sum. So if the total exceeds
    # epsilon, those with Gaussian noise exceed what is left.
    left_for_gaussian = epsilon - pure_sum(others)
    if gaussian and left_for_gaussian > 0:
        above = min(above, _exceeded_by_noise(gaussian, left_for_gaussian))

    # Outcomes with a loss below -epsilon have a loss above epsilon for the other data set, and are
    # at most e**-epsilon times as likely for this one.
    share_below = math.exp(-epsilon)
    return min(1.0, above * (1 + share_below))


def _exceeded_by_noise(reports: Mapping[ReportKind, int], epsilon: float) -> float:
    """Return an upper bound of the probability that the privacy loss is above epsilon.

    It is the lesser of two bounds. One holds for any reports with this total rho. The other needs,
    for each kind of report, an amount of normal noise that is known to disclose at least as much as
    the report (`ReportKind.normal`). Then a bound of the loss of all this normal noise, whose
    distribution is known, is a bound of the loss of the reports, too.

    reports: how many of each kind, all of them with Gaussian noise, which is drawn in integers.
    """
    rho = sum(times * report.rho for report, times in reports.items())
    bound_by_rho = sums.exceeded(rho, epsilon)
    normal_noise_is_known = all(report.normal > 0 for report in reports)
    if not normal_noise_is_known:
        return bound_by_rho

    rho_of_normal = sum(times * report.normal for report, times in reports.items())
    bound_by_normal = gaussian_curve.exceeded(rho_of_normal, epsilon)
    return min(bound_by_rho, bound_by_normal)


@dataclass(frozen=True)
class Guarantee:
    """What is guaranteed about the data that reports are made of.

    span: which reports the guarantee is about.
    unit: what is protected: a run of so many consecutive records, or the whole device (0).
    bounds: how well neighbouring data sets are hidden from each other. For a device these are any
    two data sets; for a run of records, data sets with and without the run.
    content: the bounds for data sets in which a run says something else; None for a device, whose
    neighbours differ in content already.
    event: the bounds where an event lies in two runs and changes both; None for a device.
    reader: whom the guarantee holds against.
    share: the share of the devices for which it holds, where devices of different classes get
    different questions.
    site: the name of the site whose counts are meant, if the reader is the owner of the server.
    honest: the share of that site's devices that do not work for the owner.
    fixed: whether the number and the cards of the reports were fixed before the first one, which is
    a condition for numbers at a delta.
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

        span: which reports these are, such as those of a run or of a life. reports: how many of
        each kind. If some are sums over runs of records, only the shortest such run is protected.
        share: the share of the devices for which it holds. fixed: whether the reports were fixed
        before the first one; None: yes, except over a life.
        """
        if fixed is None:
            fixed = span != Span.LIFE
        unit = min((report.unit for report in reports if report.unit), default=DEVICE)
        reports_of_unit = _for_unit(reports, unit)
        bounds = Bounds.of(reports_of_unit, delta)
        if unit == DEVICE:
            return cls(span, unit, bounds, share=share, fixed=fixed)
        # Neighbouring data sets are with and without a run. A run with other content is two steps
        # away, and an event in two runs, which changes both, four.
        content = Bounds.of(for_steps(reports_of_unit, REPLACED), delta)
        event = Bounds.of(for_steps(reports_of_unit, _REPLACED_TWICE), delta)
        return cls(span, unit, bounds, content, event, share=share, fixed=fixed)

    @classmethod
    def of_budget(
        cls, budget: int, measure: int, unit: int, delta: float, span: Span = Span.BUDGET
    ) -> Self:
        """Return the guarantee of a device's budget, whatever reports it pays for.

        budget: the amount, in millionths of the ledger's measure (epsilon or rho). unit: how many
        consecutive records of a device it protects; 0: the whole device. span: LIFE if `budget` is
        what the device has paid so far.
        """
        # Accounting sees it as one report that costs the whole budget.
        if measure == ledger.RHO:
            paid = ReportKind(budget, gaussian=True, unit=unit)
        else:
            paid = ReportKind(budget, unit=unit)
        return cls.of(span, {paid: 1}, delta)

    @classmethod
    def toward_server(cls, site: str, epsilon: float, delta: float, honest: float) -> Self:
        """Return the guarantee for a device of a site toward the owner of the server.

        The owner sees only the site's counts. epsilon: that of all rounds so far, at `delta`.
        honest: the share of the site's devices that do not work for the owner.
        """
        return cls(
            span=Span.LIFE,
            unit=DEVICE,
            bounds=Bounds(pure=None, epsilon=epsilon, delta=delta),
            reader=Reader.OWNER,
            site=site,
            honest=honest,
            fixed=False,
        )

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
        """Return the epsilon in words; for a run of records also that of what it says."""
        if self.content is None:
            return f"with epsilon {self.bounds.words}"
        return f"with epsilon {self.bounds.words} (that it was there) and {self.content.words} (what it says)"

    def words(self) -> str:
        """Return the guarantee as a sentence without a full stop. Numbers are rounded up."""
        subject = _SUBJECTS[self.span]
        verb = _VERBS[self.span]
        if self.reader == Reader.OWNER:
            subject = f"the counts of {self.site}"
            verb = "protect"
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
    """Return the bounds with these fields, or None if there are no fields."""
    if fields is None:
        return None
    return Bounds(**fields)


def _for_unit(reports: Mapping[ReportKind, int], unit: int) -> Mapping[ReportKind, int]:
    """Return the reports at what each of them costs a run of `unit` consecutive records.

    A report is about a whole device, or about sums in which runs of some length are protected.
    Reports about whole devices, and about runs of this length, cost what they are. Those about
    longer runs cost more, since the short run changes what the longer run says.

    unit: the length of the shortest run that any of the reports protects; 0: none protects a run.
    """
    reports_of_unit: Counter[ReportKind] = Counter()
    for report, times in reports.items():
        if report.unit in (DEVICE, unit):  # it costs what it is
            reports_of_unit[report] += times
            continue
        # To change what a longer run says takes two steps (ledger.md, Neighbours). The short run
        # lies in one longer run if its length divides the longer one, and else in two at most.
        steps = REPLACED if report.unit % unit == 0 else _REPLACED_TWICE
        reports_of_unit[replace(report.for_steps(steps), unit=unit)] += times
    return reports_of_unit


def rounded(number: float) -> str:
    """Return a number for people, rounded up to three digits, or to a whole one from 1,000 on.

    3.99999 becomes "4", 0.927374 becomes "0.928".
    """
    exact = Decimal(repr(number))
    last_place = 0  # the power of ten of the last digit that is kept
    if exact:
        last_place = min(0, exact.adjusted() - _DIGITS + 1)
    one_in_last_place = Decimal(1).scaleb(last_place)
    rounded_up = exact.quantize(one_in_last_place, rounding=ROUND_CEILING)
    text = f"{rounded_up:,f}"
    if "." not in text:
        return text
    return text.rstrip("0").rstrip(".")


def believed(before: float, epsilon: float) -> float:
    """Return the strongest belief that somebody can have after the reports, as a probability.

    By Bayes' rule the odds p / (1 - p) of a belief p grow by at most the factor exp(epsilon).
    before: the belief before the reports, a probability.
    """
    return before / (before + (1 - before) * math.exp(-epsilon))
