"""The report of a run: its page and pictures, by the algorithm that ran."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ternhost.registry import Registry
from ternhost.run.plugins import learner_of

if TYPE_CHECKING:
    from ternhost.run.report.page import Page

# Draws the page of an algorithm's result, also for algorithms derived from it. Others get a page
# with their summary.
_OWN = dict.fromkeys(("direct", "fedsgd", "fedsum", "fedavg"), "ternhost.run.report.training:page")
_OWN |= dict.fromkeys(("collect", "means"), "ternhost.run.report.collecting:page")
_OWN |= {"infer": "ternhost.run.report.inference:page"}
PAGES: Registry[Callable[[Mapping[str, Any]], Page]] = Registry("report", "tern.reports", _OWN)


def page_of(result: Mapping[str, Any]) -> Page:
    """Return the report of a result, by the page that is registered for its algorithm.

    An algorithm without a page of its own gets that of the algorithm it is derived from, or else
    a page with its summary.
    """
    algorithm = learner_of(result)
    for kind in algorithm.__mro__:
        name = getattr(kind, "name", "")
        if name in PAGES:
            return PAGES[name](result)
    from ternhost.run.report import page  # matplotlib takes a second

    return page.Page(
        title=f"tern {algorithm.name}",
        lead="; ".join(algorithm.summary(result)),
        pictures={},
        results=page.common_results(result),
        settings=page.common_settings(result),
    )
