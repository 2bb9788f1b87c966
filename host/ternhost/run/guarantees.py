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
class OfClass:
    """The privacy that devices of a class are guaranteed: in a report, in the run, for life.

    They are those of the device of the class that may lose most.
    """

    report: Guarantee
    run: Guarantee
    life: Guarantee

    def words(self) -> list[str]:
        """Write the guarantees of the run and for life as sentences.

        If the life has had no other reports than the run's, there is one sentence for both.
        """
        if self.life.bounds == self.run.bounds and self.life.unit == self.run.unit:
            return [self.run.words()]
        return [self.run.words(), self.life.words()]

    def as_json(self) -> dict[str, Any]:
        """For a result and for the store."""
        return {
            "report": self.report.as_json(),
            "run": self.run.as_json(),
            "life": self.life.as_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The guarantees that `as_json` returned."""
        return cls(
            report=Guarantee.from_json(values["report"]),
            run=Guarantee.from_json(values["run"]),
            life=Guarantee.from_json(values["life"]),
        )


def classes_of(result: Mapping[str, Any]) -> list[OfClass]:
    """The guarantees in the result of a run."""
    return [OfClass.from_json(each) for each in result.get("guarantees", ())]


def of_classes(
    learner: Learner,
    disclosures: Disclosures,
    members: Sequence[int] | Devices,
    delta: float,
    fixed: bool = True,
) -> list[OfClass]:
    """Return the guarantees of a run for each class of devices.

    disclosures: what these devices have disclosed before, in other runs. members: the devices.
    delta: at which epsilon holds. fixed: whether the number of the run's reports was fixed before
    the first one.
    """
    counts_before: dict[int, list[ReportCounts]] = {}
    if disclosures:
        for number, _, devices in by_class(learner.designs, members, learner.options.seed):
            counts_before[number] = disclosures.report_counts(of=devices)
    classes = []
    for number, design in enumerate(learner.designs):
        before = counts_before.get(number) or [{}]
        classes.append(_of_class(design, learner.times, before, delta, fixed))
    return classes


def _of_class(
    design: ReportDesign, times: int, before: Sequence[ReportCounts], delta: float, fixed: bool
) -> OfClass:
    """Return the guarantees of one class, whose devices make `times` reports in the run.

    before: the reports that devices of the class may have made in earlier runs, by kind; the
    worst of these cases counts.
    """
    reports_of_run = design.report_counts(times)
    report = Guarantee.of(Span.REPORT, {design.report: 1}, delta, design.share)
    run = Guarantee.of(Span.RUN, reports_of_run, delta, design.share, fixed)
    lives = []
    for reports_before in before:
        reports_of_life = Counter(reports_before) + Counter(reports_of_run)
        lives.append(Guarantee.of(Span.LIFE, reports_of_life, delta, design.share))
    return OfClass(report, run, life=max(lives, key=_epsilon))


def _epsilon(guarantee: Guarantee) -> float:
    return guarantee.bounds.epsilon


def words_of(classes: Sequence[OfClass]) -> list[str]:
    """Write the guarantees of the classes as sentences.

    Of many classes only those that lose least and most are described.
    """
    lines: list[str] = []
    for of_class in cheapest_and_dearest(classes, lambda each: each.life.bounds.epsilon):
        lines += of_class.words()
    return lines


def words_of_reports(classes: Sequence[OfClass]) -> list[str]:
    """Write the guarantees of single reports as sentences.

    That is all that can be said before a run that has no end.
    """
    of_reports = [each.report for each in classes]
    return [guarantee.words() for guarantee in cheapest_and_dearest(of_reports, _epsilon)]


def worst(classes: Sequence[OfClass], span: Span) -> Guarantee | None:
    """Return the guarantee of the class that loses most in this span, as one for all devices.

    None if no report is protected.
    """
    guarantees: list[Guarantee] = [getattr(each, span.value) for each in classes]
    if not guarantees:
        return None
    return replace(max(guarantees, key=_epsilon), share=1.0)
