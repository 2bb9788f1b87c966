"""What a run discloses to the owner of the server, who sees only the counts of gateways.

It is planned before the run, kept below a bound by the epsilon of a report, and computed from the
rounds of the store afterwards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tern import ledger
from tern.fixed import MAX_EPSILON
from terngateway.bound import MORE, Bound
from terngateway.options import bound_of, options_of
from terngateway.tables import GatewayTables
from ternhost.count.disclosures import Disclosures
from ternhost.count.members import Integers
from ternhost.errors import RefusedError, UsageError
from ternhost.extensions import Row
from ternhost.learn.base import Learner
from ternhost.learn.designs import by_class, ends
from ternhost.options import names_of
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.groups import Group
from ternhost.privacy.guarantee import Guarantee
from ternhost.run.options import RunOptions
from ternhost.store.store import Store
from ternhost.text import counted

# Standard deviations by which a drawn group may have fewer devices of a site than on average.
_SPREADS = 3
_LEAST = 1000  # micro-epsilon, of a report that is worth asking for
_DIGITS = 3
_MEANS_NOTHING = 1000  # an epsilon
_HORIZON = 10_000  # draws of a run without an end, for a plan

Sites = Mapping[str, Mapping[str, Any]]
"""By name of a site, what its counts disclose, as values for JSON (`as_result`)."""


@dataclass(frozen=True)
class PlannedReports:
    """The reports that a run asks from one class of devices at a site.

    report: of the worst mechanism of its cost, among those of a round. times: rounds of each device.
    """

    report: ReportKind
    devices: Integers
    times: int


@dataclass(frozen=True)
class Site:
    """A site, what its counts have disclosed, and what its gateway says.

    bounds: those of the run and of the site. left: micro-epsilon on its boards; None: not known.
    registered: how many devices it has, also those that cannot be asked now.
    """

    name: str
    devices: Integers
    told: Disclosures
    bounds: Sequence[Bound]
    left: int | None = None
    registered: int = 0

    def group(self, asked: int, pool: int, draw: int) -> Group:
        """So many of its devices. pool, draw: as of Group."""
        return Group(max(self.registered, len(self.devices)), asked, pool, draw)

    def keeps_bounds(self, planned: Sequence[PlannedReports]) -> bool:
        """Whether the counts of the site keep all bounds after these reports."""
        told = self.after(planned)
        return all(bound.keeps(told, self.devices) for bound in self.bounds)

    def after(self, planned: Sequence[PlannedReports]) -> Disclosures:
        """What its counts will have disclosed after these reports."""
        return self.told.with_reports((each.report, each.devices, each.times) for each in planned)


def sites_of(devices: Mapping[str, Integers], store: Store, options: RunOptions) -> list[Site]:
    """The sites with these devices, as their gateways have last described themselves."""
    tables = GatewayTables(store)
    fields_of_here = {gateway.name: gateway.here for gateway in tables.gateways()}
    sites = []
    for name, ids in devices.items():
        here = fields_of_here.get(name, {})
        bounds = [bound_of(options), Bound.read(here.get("toward_server"))]
        sites.append(
            Site(
                name=name,
                devices=ids,
                told=tables.told(name),
                bounds=[bound for bound in bounds if bound is not None],
                left=_least_left(here.get("budgets", ())),
                registered=int(here.get("registered", 0)),
            )
        )
    return sites


def _least_left(budgets: Sequence[Sequence[Any]]) -> int | None:
    """The least micro-epsilon that the rows of a HERE report as left."""
    lefts = [left for measure, _, left, *_ in budgets if measure == ledger.EPSILON]
    return min(lefts, default=None)


def plan(learner: Learner, site: Site, everybody: int, options: RunOptions) -> list[PlannedReports]:
    """What a run asks of a site, if the groups of its rounds are drawn from `everybody`."""
    share = options.schedule.share if options.schedule else 1.0
    if learner.reports is not None:
        reports_of_round = learner.reports / (learner.rounds or 1)
        share = min(1.0, reports_of_round / everybody)
    some_are_dishonest = any(bound.honest < 1 for bound in site.bounds)
    is_drawn = learner.draws_groups and some_are_dishonest

    planned = []
    for _, design, devices in by_class(learner.designs, site.devices, learner.options.seed):
        report = design.report if design.report.gaussian else ReportKind(design.cost)
        group = _group(site, share, len(devices), learner.rounds, is_drawn)
        reports = math.floor(options.terms.quorum * group.asked)
        planned.append(PlannedReports(report.among(reports, group), devices, learner.times))
    return planned


def _group(site: Site, share: float, devices: int, rounds: int | None, is_drawn: bool) -> Group:
    """The smallest group that a round asks of a class with so many devices.

    is_drawn: the gateway draws it; the group is then that of the run's last draw.
    """
    if share == 1:
        return site.group(asked=devices, pool=0, draw=0)
    if is_drawn:
        parts = math.ceil(1 / share)
        last_draw = max(1, rounds or _HORIZON)
        return site.group(asked=devices // parts, pool=devices, draw=last_draw)
    expected = share * devices
    asked = max(0, math.floor(expected - _SPREADS * math.sqrt(expected)))
    return site.group(asked=asked, pool=0, draw=0)


# The epsilon of a report that keeps the bound


def with_largest_epsilon(
    options: RunOptions, learner: Learner, store: Store, devices: Mapping[str, Integers]
) -> RunOptions:
    """The options with the epsilon of a report that is worth most and keeps the bound.

    Sites that cannot keep it hold their counts back. learner: of another epsilon. devices: by site.
    Raises RefusedError, UsageError.
    """
    if "epsilon" not in names_of(type(options.learning)) or learner.unit:
        text = f"--toward-server chooses no epsilon for {learner.name}"
        hint = "name how much a report may cost, which is then kept or refused"
        raise UsageError(text, hint=hint)
    if learner.rounds is None:
        text = "an epsilon that keeps --toward-server depends on the number of rounds, and there is no end"
        raise UsageError(text, hint="name --rounds, or the --epsilon of a report")

    sites = sites_of(devices, store, options)
    everybody = sum(len(site.devices) for site in sites)
    largest = {}
    for site in sites:
        largest[site.name] = largest_epsilon(site, plan(learner, site, everybody, options))
    if max(largest.values()) < _LEAST:
        text = f"no epsilon of a report above {_LEAST / MICRO:g} keeps the bound at any site over all rounds"
        raise RefusedError(text, hint=MORE)

    def worth(epsilon: int) -> float:
        able = sum(len(site.devices) for site in sites if largest[site.name] >= epsilon)
        return able * math.tanh(epsilon / MICRO / 2) ** 2

    epsilon = _rounded_down(max(largest.values(), key=worth))
    learning = replace(options.learning, epsilon=f"{epsilon / MICRO:g}")
    return replace(options, learning=learning)


def _rounded_down(micro: int) -> int:
    unit: int = 10 ** max(0, len(str(micro)) - _DIGITS)
    return micro // unit * unit


def largest_epsilon(site: Site, planned: Sequence[PlannedReports]) -> int:
    """The largest micro-epsilon of a report that keeps the bounds and what boards have left.

    0 if there is none. planned: the reports, whose cost is to be chosen.
    """
    times = max((each.times for each in planned), default=1)
    most = MAX_EPSILON if site.left is None else min(MAX_EPSILON, site.left // times)

    def is_kept(epsilon: int) -> bool:
        reports = [replace(each, report=replace(each.report, cost=epsilon)) for each in planned]
        return site.keeps_bounds(reports)

    if most < _LEAST or not is_kept(_LEAST):
        return 0
    low, high = _LEAST, most + 1
    while high - low > low // 300 + 1:
        middle = math.isqrt(low * high)
        if is_kept(middle):
            low = middle
        else:
            high = middle
    return low


# What counts disclose, by site


def planned(
    learner: Learner, devices: Mapping[str, Integers], store: Store, options: RunOptions
) -> dict[str, float]:
    """The epsilon that the counts of each site will have disclosed after the run.

    devices: by site. Sites that hold counts back, since they would break a bound, are left out.
    """
    everybody = sum(len(ids) for ids in devices.values())
    delta, honest = float(options.delta), options_of(options).honest
    epsilons = {}
    for site in sites_of(devices, store, options):
        reports = plan(learner, site, everybody, options)
        if site.keeps_bounds(reports):
            whole = site.after(reports)
            epsilons[site.name] = whole.largest_loss(delta, honest, site.devices).epsilon
    return epsilons


def disclosed_so_far(store: Store, options: RunOptions) -> dict[str, dict[str, Any]]:
    """What the counts of each gateway that was asked have disclosed in all rounds of the store.

    In the form of `as_result`. options: of the run whose delta and honest share are meant.
    """
    tables = GatewayTables(store)
    delta, honest = float(options.delta), options_of(options).honest
    epsilons = {}
    for gateway in tables.gateways():
        epsilon = tables.told(gateway.name).largest_loss(delta, honest).epsilon
        if epsilon:
            epsilons[gateway.name] = epsilon
    return as_result(epsilons, options)


def as_result(epsilons: Mapping[str, float], options: RunOptions) -> dict[str, dict[str, Any]]:
    """For JSON: the epsilon of each site, None where it means nothing, and what it is about."""
    bound = bound_of(options)
    about = {
        "delta": float(options.delta),
        "honest": options_of(options).honest,
        "bound": None if bound is None else bound.epsilon / MICRO,
    }
    sites = {}
    for name, epsilon in epsilons.items():
        is_bounded = epsilon <= _MEANS_NOTHING
        sites[name] = {"epsilon": epsilon if is_bounded else None, **about}
    return sites


def guarantees_of(sites: Sites) -> list[Guarantee]:
    """The guarantee of each site toward the owner of the server, where there is one."""
    return [
        Guarantee.toward_server(name, site["epsilon"], site["delta"], site["honest"])
        for name, site in sites.items()
        if site["epsilon"] is not None
    ]


def unbounded_sites(sites: Sites) -> list[str]:
    """The sites whose counts tell as much as single reports would."""
    return [name for name, site in sites.items() if site["epsilon"] is None]


# In words


def words_before(
    learner: Learner, devices: Mapping[str, Integers], store: Store, options: RunOptions
) -> list[str]:
    """What the counts of each site will have disclosed after the run, for people."""
    numbers = {name: len(ids) for name, ids in devices.items()}
    lines = []
    if options_of(options).chooses_epsilon:
        epsilon = options.learning.epsilon
        lines.append(f"a report of epsilon {epsilon} is the largest that keeps --toward-server")
    after = planned(learner, devices, store, options)
    for name in devices.keys() - after.keys():
        who = f"{name}, with {counted(numbers[name], 'device')}"
        lines.append(
            f"{who}, will hold counts back, of all rounds or from some round on: else they would tell more than the "
            "bound"
        )
    return [*lines, *words(as_result(after, options), numbers)]


def words(sites: Sites, devices: Mapping[str, int] | None = None) -> list[str]:
    """What sites disclose, for people: a line for each; of many, those of the extremes.

    devices: the number at each site, for what is planned.
    """
    if not sites:
        return []
    head = "toward the owner of the server, who sees counts alone"
    bound = next(iter(sites.values()))["bound"]
    if bound:
        head += f" (the bound is epsilon {bound:g})"

    lines = [f"{head}:"]
    for guarantee in ends(guarantees_of(sites), lambda each: each.bounds.epsilon):
        line = f"  {guarantee.words()}"
        if devices:
            line += f" ({counted(devices[guarantee.site], 'device')})"
        lines.append(line)
    for name in unbounded_sites(sites):
        lines.append(f"  the counts of {name} tell as much as single reports would")
    return lines


def rows(sites: Sites) -> list[Row]:
    """The same for the table of results in a report."""
    found = []
    for guarantee in guarantees_of(sites):
        meaning = f"against {guarantee.against}; computed from the counts of all rounds"
        found.append(("privacy", guarantee.words(), meaning))
    for name in unbounded_sites(sites):
        meaning = "its counts tell the owner of the server as much as single reports would"
        found.append((f"toward the server, {name}", "no bound", meaning))
    return found
