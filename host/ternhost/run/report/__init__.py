"""The report of a run: its page and pictures, by the algorithm that ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ternhost.registry import Registry
from ternhost.run.plugins import learner_of

if TYPE_CHECKING:
    from ternhost.run.report.page import Page

# The function that makes the page of a result, by the name of the algorithm. It is imported when it
# is needed. `page_of` also uses it for algorithms that are derived from this one.
_TRAINING = "ternhost.run.report.training:page"
_COLLECTING = "ternhost.run.report.collecting:page"
_OWN = {
    "direct": _TRAINING,
    "fedsgd": _TRAINING,
    "fedsum": _TRAINING,
    "fedavg": _TRAINING,
    "values": _COLLECTING,
    "means": _COLLECTING,
    "infer": "ternhost.run.report.inference:page",
}
PAGES: Registry[Callable[[Mapping[str, Any]], Page]] = Registry("report", "tern.reports", _OWN)


def page_of(result: Mapping[str, Any]) -> Page:
    """Return the report of a result, made by the function that is registered for its algorithm.

    If there is none, it is made by that of the algorithm from which this one is derived; and if
    there is none either, it has the algorithm's summary and what all reports have.
    """
    algorithm = learner_of(result)
    for ancestor in algorithm.__mro__:  # the class itself, then those from which it is derived
        name = getattr(ancestor, "name", "")
        if name in PAGES:
            return PAGES[name](result)
    from ternhost.run.report import page  # here, since importing matplotlib takes a second

    return page.Page(
        title=f"tern {algorithm.name}",
        lead="; ".join(algorithm.summary(result)),
        pictures={},
        results=page.common_results(result),
        settings=page.common_settings(result),
    )
