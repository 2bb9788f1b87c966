"""What a run tells the owner of the server, who sees the counts of gateways alone: planned, kept
below a bound by the epsilon of a report, and counted from the rounds of its store.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tern import ledger
from tern.fixed import MAX_EPSILON
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers
from ternhost.errors import RefusedError, UsageError
from ternhost.learn.base import Learner
from ternhost.learn.designs import by_class, ends
from ternhost.options import names_of
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.reach.toward_server import MORE, Bound
from ternhost.run import guarantees
from ternhost.run.options import RunOptions
from ternhost.store.store import Store
from ternhost.text import counted

_SPREADS = (
    3  # standard deviations by which a site may have fewer devices in a drawn group than on average
)
_LEAST = 1000  # micro-epsilon, of a report that is worth asking for
_DIGITS = 3
_MEANS_NOTHING = 1000  # an epsilon
_HORIZON = 10_000  # draws of a run without an end, for a plan

Plan = list[tuple[ReportKind, Integers, int]]
"""Of each class at a site: a report, by the worst mechanism, among those of a round; its devices; rounds of each."""


@dataclass(frozen=True)
class Site:
    """A site, what its counts have told, and what its gateway says of bound and budget."""

    name: str
    devices: Integers
    told: Disclosures
    bounds: Sequence[Bound]  # of the run and of the site
    left: int | None = None  # micro-epsilon on its boards
    registered: int = 0  # its devices, also those that cannot be asked now

    def group(self, asked: int, pool: int, draw: int) -> Group:
        """So many of its devices. pool, draw: as of Group."""
        return Group(max(self.registered, len(self.devices)), asked, pool, draw)


def sites_of(sites: Mapping[str, Integers], store: Store, options: RunOptions) -> list[Site]:
    """The sites with these devices. Their gateways have been heard."""
    heres = {gateway.name: gateway.here for gateway in store.gateways()}
    found = []
    for name, devices in sites.items():
        here = heres.get(name, {})
        bounds = [each for each in (options.bound, Bound.read(here.get("toward_server"))) if each]
        rows = here.get("budgets", ())
        left = min(
            (left for measure, _, left, *_ in rows if measure == ledger.EPSILON), default=None
        )
        registered = int(here.get("registered", 0))
        found.append(Site(name, devices, store.told(name), bounds, left, registered))
    return found


def plan(learner: Learner, site: Site, everybody: int, options: RunOptions) -> Plan:
    """What the run asks of a site, if the groups of its rounds are drawn from `everybody`."""
    share = options.schedule.share if options.schedule else 1.0
    if learner.reports is not None:
        share = min(1.0, learner.reports / (learner.rounds or 1) / everybody)
    drawn = learner.draws_groups and any(bound.honest < 1 for bound in site.bounds)
    found = []
    for _, design, devices in by_class(learner.designs, site.devices, learner.options.seed):
        report = design.report if design.report.gaussian else ReportKind(design.cost)
        asked, pool, draw = _group_size(share, len(devices), learner.rounds, drawn)
        reports = math.floor(options.terms.quorum * asked)
        group = site.group(asked, pool, draw)
        found.append((report.among(reports, group), devices, learner.times))
    return found


def _group_size(
    share: float, devices: int, rounds: int | None, drawn: bool
) -> tuple[int, int, int]:
    """How many of a site's devices a round asks, at least; among how many its gateway draws them
    (0: it does not); and the number of the run's last draw, if this is its first one.
    """
    expected = share * devices
    if share == 1:
        return devices, 0, 0
    if drawn:
        parts = math.ceil(1 / share)
        return devices // parts, devices, max(1, rounds or _HORIZON)
    return max(0, math.floor(expected - _SPREADS * math.sqrt(expected))), 0, 0


def fitted(options: RunOptions, learner: Learner, sites: Sequence[Site]) -> RunOptions:
    """The options with the largest epsilon of a report that keeps the bound at the sites where it
    is worth most: with it, smaller sites hold their counts back. learner: of another epsilon.
    Raises RefusedError, UsageError.
    """
    if "epsilon" not in names_of(type(options.learning)) or learner.unit:
        text = f"--toward-server chooses no epsilon for {learner.name}"
        raise UsageError(
            text, hint="name how much a report may cost, which is then kept or refused"
        )
    if learner.rounds is None:
        text = "an epsilon that keeps --toward-server depends on the number of rounds, and there is no end"
        raise UsageError(text, hint="name --rounds, or the --epsilon of a report")
    everybody = sum(len(site.devices) for site in sites)
    largest = {
        site.name: largest_epsilon(site, plan(learner, site, everybody, options)) for site in sites
    }
    if max(largest.values()) < _LEAST:
        text = f"no epsilon of a report above {_LEAST / MICRO:g} keeps the bound at any site over all rounds"
        raise RefusedError(text, hint=MORE)

    def worth(epsilon: int) -> float:
        able = sum(len(site.devices) for site in sites if largest[site.name] >= epsilon)
        return able * math.tanh(epsilon / MICRO / 2) ** 2

    best = max(largest.values(), key=worth)
    unit = 10 ** max(0, len(str(best)) - _DIGITS)
    epsilon = f"{best // unit * unit / MICRO:g}"
    return replace(options, learning=replace(options.learning, epsilon=epsilon))


def largest_epsilon(site: Site, rows: Plan) -> int:
    """The largest micro-epsilon of a report that keeps the bounds and what boards have left; 0 if
    there is none.
    """
    times = max((times for *_, times in rows), default=1)
    most = min(MAX_EPSILON, MAX_EPSILON if site.left is None else site.left // times)

    def kept(epsilon: int) -> bool:
        told = site.told.with_reports(
            (replace(report, cost=epsilon), ids, n) for report, ids, n in rows
        )
        return all(bound.keeps(told, site.devices) for bound in site.bounds)

    if most < _LEAST or not kept(_LEAST):
        return 0
    low, high = _LEAST, most + 1
    while high - low > low // 300 + 1:
        middle = math.isqrt(low * high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


# In words


def planned_words(
    learner: Learner, sites: Mapping[str, Integers], store: Store, options: RunOptions
) -> list[str]:
    """What the counts of each site will have told after the run, for people."""
    devices = {name: len(ids) for name, ids in sites.items()}
    lines = []
    if options.fits:
        lines.append(
            f"a report of epsilon {options.learning.epsilon} is the largest that keeps --toward-server"
        )
    after = planned(learner, sites, store, options)
    for name in sites.keys() - after.keys():
        text = f"{name}, with {counted(devices[name], 'device')}, will hold counts back, of all rounds or from some "
        lines.append(text + "round on: else they would tell more than the bound")
    return [*lines, *words(told(after, options), devices)]


def planned(
    learner: Learner, sites: Mapping[str, Integers], store: Store, options: RunOptions
) -> dict[str, float]:
    """The epsilon that the counts of each site will have told after the run, without sites that
    hold counts back.
    """
    devices = sum(len(ids) for ids in sites.values())
    after = {}
    for site in sites_of(sites, store, options):
        whole = site.told.with_reports(plan(learner, site, devices, options))
        if all(bound.keeps(whole, site.devices) for bound in site.bounds):
            after[site.name] = whole.largest_loss(
                float(options.delta), options.honest, site.devices
            ).epsilon
    return after


def told(epsilons: Mapping[str, float], options: RunOptions) -> dict[str, dict[str, Any]]:
    """For JSON: the epsilon that the counts of each site tell, None where there is no bound, and
    what it is about.
    """
    bound = options.bound and options.bound.epsilon / MICRO
    about = {"delta": float(options.delta), "honest": options.honest, "bound": bound}
    known = {
        name: epsilon if epsilon <= _MEANS_NOTHING else None for name, epsilon in epsilons.items()
    }
    return {name: {"epsilon": epsilon, **about} for name, epsilon in known.items()}


def words(
    sites: Mapping[str, Mapping[str, Any]], devices: Mapping[str, int] | None = None
) -> list[str]:
    """`told` for people, a line for each site; of many, those that tell least and most. devices: of
    each site, for what is planned.
    """
    if not sites:
        return []
    promised = guarantees.toward_server(sites)
    lines = [
        each.words() + (f" ({counted(devices[each.site], 'device')})" if devices else "")
        for each in ends(promised, lambda each: each.bounds.epsilon)
    ]
    unknown = [name for name, site in sites.items() if site["epsilon"] is None]
    lines += [f"the counts of {name} tell as much as single reports would" for name in unknown]
    head = "toward the owner of the server, who sees counts alone"
    bound = next(iter(sites.values()))["bound"]
    if bound:
        head += f" (the bound is epsilon {bound:g})"
    return [f"{head}:", *(f"  {line}" for line in lines)]
