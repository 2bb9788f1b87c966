"""The guarantees of a run: of a report, of the run, and of all runs so far together, for each class
of devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from ternhost.count.disclosures import Disclosures, ReportCounts
from ternhost.learn.base import Learner
from ternhost.learn.designs import ReportDesign, by_class, cheapest_and_dearest
from ternhost.learn.devices import Devices
from ternhost.privacy.guarantee import Guarantee, Span


@dataclass(frozen=True)
class ClassGuarantees:
    """The privacy guarantees of a class of devices: of one report, of the run, and for life.

    They hold for each device of the class, also for the one that loses most privacy. `life` is
    about the reports of this run and of all earlier ones.
    """

    report: Guarantee
    run: Guarantee
    life: Guarantee

    def words(self) -> list[str]:
        """Return the guarantees of the run and for life as sentences.

        If the devices have made no reports in earlier runs, one sentence is about both.
        """
        is_first_run = self.life.bounds == self.run.bounds and self.life.unit == self.run.unit
        if is_first_run:
            return [self.run.words()]
        return [self.run.words(), self.life.words()]

    def as_json(self) -> dict[str, Any]:
        """Return the guarantees as a dict for JSON, as a result and a store keep them."""
        return {
            "report": self.report.as_json(),
            "run": self.run.as_json(),
            "life": self.life.as_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the guarantees from the dict that `as_json` made of them."""
        return cls(
            report=Guarantee.from_json(values["report"]),
            run=Guarantee.from_json(values["run"]),
            life=Guarantee.from_json(values["life"]),
        )


def classes_of(result: Mapping[str, Any]) -> list[ClassGuarantees]:
    """Return the guarantees in the result of a run, for each class of devices."""
    return [ClassGuarantees.from_json(each) for each in result.get("guarantees", ())]


def of_classes(
    learner: Learner,
    disclosures: Disclosures,
    members: Sequence[int] | Devices,
    delta: float,
    fixed: bool = True,
) -> list[ClassGuarantees]:
    """Compute the privacy guarantees of a run for each class of devices.

    Devices of a class make reports of the same design, at the same epsilon.

    learner: the algorithm, which has the designs and the number of reports of a device.
    disclosures: the reports of the devices in earlier runs. members: the ids of the run's devices.
    delta: the probability with which each epsilon may fail to hold. fixed: whether the number of
    the run's reports was fixed before the first one, as composition theorems with a better bound
    require.
    """
    counts_before: dict[int, list[ReportCounts]] = {}  # by class
    if disclosures:
        for number, _design, devices in by_class(learner.designs, members, learner.options.seed):
            counts_before[number] = disclosures.report_counts(of=devices)
    classes = []
    no_reports: list[ReportCounts] = [{}]
    for number, design in enumerate(learner.designs):
        before = counts_before.get(number) or no_reports
        classes.append(_of_class(design, learner.times, before, delta, fixed))
    return classes


def _of_class(
    design: ReportDesign, times: int, before: Sequence[ReportCounts], delta: float, fixed: bool
) -> ClassGuarantees:
    """Compute the guarantees of a class of devices, which make `times` reports in the run.

    design: of each report: its mechanism, and the share of all devices that are in the class.
    before: how many reports of each kind devices of the class have made in earlier runs, for each
    device that may have disclosed most. delta: at which each epsilon holds. fixed: whether the
    number of the run's reports was fixed before the first one.
    """
    reports_of_run = design.report_counts(times)
    report = Guarantee.of(Span.REPORT, {design.report: 1}, delta, design.share)
    run = Guarantee.of(Span.RUN, reports_of_run, delta, design.share, fixed)
    lives = []
    for reports_before in before:
        reports_of_life = Counter(reports_before) + Counter(reports_of_run)
        lives.append(Guarantee.of(Span.LIFE, reports_of_life, delta, design.share))
    return ClassGuarantees(report, run, life=max(lives, key=_epsilon))


def _epsilon(guarantee: Guarantee) -> float:
    """Return the epsilon of a guarantee, by which guarantees are ordered."""
    return guarantee.bounds.epsilon


def words_of(classes: Sequence[ClassGuarantees]) -> list[str]:
    """Return the guarantees of the classes as sentences.

    If there are many classes, only those that lose least and most privacy in their life are
    described.
    """
    lines: list[str] = []
    for of_class in cheapest_and_dearest(classes, lambda of_class: _epsilon(of_class.life)):
        lines += of_class.words()
    return lines


def words_of_reports(classes: Sequence[ClassGuarantees]) -> list[str]:
    """Return the guarantees of single reports as sentences.

    More cannot be said before a run that has no planned end. If there are many classes, only the
    smallest and the largest loss are described.
    """
    of_reports = [of_class.report for of_class in classes]
    return [guarantee.words() for guarantee in cheapest_and_dearest(of_reports, _epsilon)]


def worst(classes: Sequence[ClassGuarantees], span: Span) -> Guarantee | None:
    """Return the guarantee of the class that loses most privacy, which then holds for all devices.

    span: which of a class's guarantees is meant: of a report, of the run, or for life. Return None
    if there are no classes, because reports are not protected.
    """
    guarantees: list[Guarantee] = [getattr(of_class, span.value) for of_class in classes]
    if not guarantees:
        return None
    largest = max(guarantees, key=_epsilon)
    return replace(largest, share=1.0)  # the share of all devices for which it holds
