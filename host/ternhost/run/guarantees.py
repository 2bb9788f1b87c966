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
from ternhost.learn.designs import ReportDesign, by_class, ends
from ternhost.learn.devices import Devices
from ternhost.privacy.guarantee import Guarantee, Span


@dataclass(frozen=True)
class OfClass:
    """What devices of a class are promised.

    They may lose as much as the most telling account of one of them says.
    """

    report: Guarantee
    run: Guarantee
    life: Guarantee

    def words(self) -> list[str]:
        """The run and the life in sentences; one, where the life has had no other reports."""
        if self.life.bounds == self.run.bounds and self.life.unit == self.run.unit:
            return [self.run.words()]
        return [self.run.words(), self.life.words()]

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).as_json() for name in ("report", "run", "life")}

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> Self:
        return cls(*(Guarantee.from_json(known[name]) for name in ("report", "run", "life")))


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
    """What a run promises the devices of each class. disclosures: by these devices before, in other
    runs. fixed: whether the number of its reports was fixed before the first one.
    """
    before: dict[int, list[ReportCounts]] = {}
    if disclosures:
        for i, _, devices in by_class(learner.designs, members, learner.options.seed):
            before[i] = disclosures.report_counts(of=devices)
    return [
        _of_class(design, learner.times, before.get(i) or [{}], delta, fixed)
        for i, design in enumerate(learner.designs)
    ]


def _of_class(
    design: ReportDesign, times: int, before: Sequence[ReportCounts], delta: float, fixed: bool
) -> OfClass:
    of_run = design.report_counts(times)
    report = Guarantee.of(Span.REPORT, {design.report: 1}, delta, design.share)
    run = Guarantee.of(Span.RUN, of_run, delta, design.share, fixed)
    lives = [
        Guarantee.of(Span.LIFE, Counter(account) + Counter(of_run), delta, design.share)
        for account in before
    ]
    return OfClass(report, run, max(lives, key=lambda each: each.bounds.epsilon))


def words_of(classes: Sequence[OfClass]) -> list[str]:
    """The sentences of each class; of many classes, of those that are told least and most of."""
    shown = ends(classes, lambda each: each.life.bounds.epsilon)
    return [line for each in shown for line in each.words()]


def words_of_reports(classes: Sequence[OfClass]) -> list[str]:
    """The same of a report: all that can be said before a run that has no end."""
    return [
        each.words()
        for each in ends([each.report for each in classes], lambda each: each.bounds.epsilon)
    ]


def worst(classes: Sequence[OfClass], span: Span) -> Guarantee | None:
    """The guarantee of the class that loses most; None where devices report nothing that is
    protected.
    """
    found: list[Guarantee] = [getattr(each, span.value) for each in classes]
    if not found:
        return None
    return replace(max(found, key=lambda each: each.bounds.epsilon), share=1.0)
