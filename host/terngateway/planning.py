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
from ternhost.learn.designs import by_class, cheapest_and_dearest
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
_DIGITS = 3  # significant ones of the epsilon that is chosen
_SEARCH_STEPS = 300  # the search for an epsilon ends at one part in so many
_MEANS_NOTHING = 1000  # an epsilon
_HORIZON = 10_000  # draws of a run without an end, for a plan

Sites = Mapping[str, Mapping[str, Any]]
"""By name of a site, what its counts disclose, as values for JSON (`as_result`)."""


@dataclass(frozen=True)
class PlannedReports:
    """The reports that a run requests from one class of devices at a site.

    report: its cost, and among how many reports of a round it hides; the mechanism is taken to be
    the worst one of this cost. times: the number of rounds in which each device reports.
    """

    report: ReportKind
    devices: Integers
    times: int


@dataclass(frozen=True)
class Site:
    """A site, what its counts have disclosed, and what its gateway reports.

    devices: those that can be asked now. told: what its counts have disclosed so far. bounds: those
    of the run and of the site. left: the least micro-epsilon that a board has left; None if that is
    unknown. registered: how many devices the site has, also those that cannot be asked now.
    """

    name: str
    devices: Integers
    told: Disclosures
    bounds: Sequence[Bound]
    left: int | None = None
    registered: int = 0

    def group(self, asked: int, pool: int, draw: int) -> Group:
        """Return a group of `asked` devices of the site. pool, draw: as of Group."""
        return Group(max(self.registered, len(self.devices)), asked, pool, draw)

    def keeps_bounds(self, planned: Sequence[PlannedReports]) -> bool:
        """Whether the counts of the site keep all bounds after these reports."""
        disclosures = self.after(planned)
        return all(bound.keeps(disclosures, self.devices) for bound in self.bounds)

    def after(self, planned: Sequence[PlannedReports]) -> Disclosures:
        """Return what the counts of the site will have disclosed after these reports."""
        return self.told.with_reports((each.report, each.devices, each.times) for each in planned)


def sites_of(devices: Mapping[str, Integers], store: Store, options: RunOptions) -> list[Site]:
    """Return the sites with their bounds and accounts, by what their gateways have last reported.

    devices: by site, those that can be asked.
    """
    tables = GatewayTables(store)
    here_by_site = {gateway.name: gateway.here for gateway in tables.gateways()}
    bound_of_run = bound_of(options)
    sites = []
    for name, ids in devices.items():
        here = here_by_site.get(name, {})  # the members of its latest HERE
        bound_of_site = Bound.read(here.get("toward_server"))
        sites.append(
            Site(
                name=name,
                devices=ids,
                told=tables.disclosures_of(name),
                bounds=[bound for bound in (bound_of_run, bound_of_site) if bound is not None],
                left=_least_left(here.get("budgets", ())),
                registered=int(here.get("registered", 0)),
            )
        )
    return sites


def _least_left(budgets: Sequence[Sequence[Any]]) -> int | None:
    """Return the least micro-epsilon left in the rows of a HERE; None if no row is in epsilon."""
    micro_epsilons = [left for measure, _, left, *_ in budgets if measure == ledger.EPSILON]
    return min(micro_epsilons, default=None)


def plan(
    learner: Learner, site: Site, all_devices: int, options: RunOptions
) -> list[PlannedReports]:
    """Return the reports that a run will request from a site, by class of devices.

    all_devices: the number at all sites, from which the groups of rounds are drawn.
    """
    share_of_round = _share_of_round(learner, all_devices, options)
    some_are_dishonest = any(bound.honest < 1 for bound in site.bounds)
    gateway_draws_groups = learner.draws_groups and some_are_dishonest

    planned = []
    for _, design, devices in by_class(learner.designs, site.devices, learner.options.seed):
        report = design.report
        if not report.gaussian:
            report = ReportKind(design.cost)  # of the worst mechanism of this cost
        group = _smallest_group(
            site, share_of_round, len(devices), learner.rounds, gateway_draws_groups
        )
        least_reports = math.floor(options.terms.quorum * group.asked)
        planned.append(PlannedReports(report.among(least_reports, group), devices, learner.times))
    return planned


def _share_of_round(learner: Learner, all_devices: int, options: RunOptions) -> float:
    """Return the share of all devices that a round of this run asks."""
    if learner.reports is not None:
        reports_of_round = learner.reports / (learner.rounds or 1)
        return min(1.0, reports_of_round / all_devices)
    return options.schedule.share if options.schedule else 1.0


def _smallest_group(
    site: Site, share: float, devices: int, rounds: int | None, is_drawn: bool
) -> Group:
    """Return the smallest group that a round is likely to ask of a class with so many devices.

    share: of all devices that a round asks. rounds: of the run; None if it has no end. is_drawn:
    the gateway draws the group, which is then that of the run's last draw.
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
    """Return the options with the epsilon of a report that is worth most and keeps the bound.

    A site that cannot keep the bound with this epsilon holds its counts back, so that a larger
    epsilon may have fewer sites. learner: as planned with any other epsilon. devices: by site.
    Raises RefusedError if no site can keep the bound, and UsageError if the learner has no epsilon
    or no last round.
    """
    if "epsilon" not in names_of(type(options.learning)) or learner.unit:
        text = f"--toward-server chooses no epsilon for {learner.name}"
        hint = "name how much a report may cost, which is then kept or refused"
        raise UsageError(text, hint=hint)
    if learner.rounds is None:
        text = "an epsilon that keeps --toward-server depends on the number of rounds, and there is no end"
        raise UsageError(text, hint="name --rounds, or the --epsilon of a report")

    sites = sites_of(devices, store, options)
    all_devices = sum(len(site.devices) for site in sites)
    largest = {}  # by site, the largest micro-epsilon that keeps its bounds
    for site in sites:
        largest[site.name] = largest_epsilon(site, plan(learner, site, all_devices, options))
    if max(largest.values()) < _LEAST:
        text = f"no epsilon of a report above {_LEAST / MICRO:g} keeps the bound at any site over all rounds"
        raise RefusedError(text, hint=MORE)

    def information(epsilon: int) -> float:
        """What a round tells the host: reports that it gets, times the signal of each.

        The signal is the squared difference of the two answers' probabilities in randomised
        response, tanh(epsilon / 2)^2.
        """
        answering_devices = 0
        for site in sites:
            if largest[site.name] >= epsilon:
                answering_devices += len(site.devices)
        return answering_devices * math.tanh(epsilon / MICRO / 2) ** 2

    epsilon = _rounded_down(max(largest.values(), key=information))
    learning = replace(options.learning, epsilon=f"{epsilon / MICRO:g}")
    return replace(options, learning=learning)


def _rounded_down(micro_epsilon: int) -> int:
    """Round down to _DIGITS significant decimal digits."""
    unit: int = 10 ** max(0, len(str(micro_epsilon)) - _DIGITS)
    return micro_epsilon // unit * unit


def largest_epsilon(site: Site, planned: Sequence[PlannedReports]) -> int:
    """Return the largest micro-epsilon of a report that a site's bounds and budgets allow; else 0.

    planned: the reports that the run requests, with any cost. The result may be a third of a per
    cent too small.
    """
    most_rounds = max((reports.times for reports in planned), default=1)
    upper_limit = MAX_EPSILON
    if site.left is not None:
        upper_limit = min(MAX_EPSILON, site.left // most_rounds)

    def keeps_bounds(epsilon: int) -> bool:
        with_epsilon = []
        for reports in planned:
            report = replace(reports.report, cost=epsilon)
            with_epsilon.append(replace(reports, report=report))
        return site.keeps_bounds(with_epsilon)

    if upper_limit < _LEAST or not keeps_bounds(_LEAST):
        return 0
    # Bisect by ratios: low keeps the bounds, high does not or is above the limit.
    low, high = _LEAST, upper_limit + 1
    while high - low > low // _SEARCH_STEPS + 1:
        middle = math.isqrt(low * high)
        if keeps_bounds(middle):
            low = middle
        else:
            high = middle
    return low


# What counts disclose, by site


def planned(
    learner: Learner, devices: Mapping[str, Integers], store: Store, options: RunOptions
) -> dict[str, float]:
    """Return, by site, the epsilon that its counts will have disclosed after the run.

    devices: by site. Sites that hold counts back, since they would break a bound, are left out.
    """
    all_devices = sum(len(ids) for ids in devices.values())
    delta = float(options.delta)
    honest = options_of(options).honest
    epsilons = {}
    for site in sites_of(devices, store, options):
        reports = plan(learner, site, all_devices, options)
        if site.keeps_bounds(reports):
            disclosures = site.after(reports)
            epsilons[site.name] = disclosures.largest_loss(delta, honest, site.devices).epsilon
    return epsilons


def disclosed_so_far(store: Store, options: RunOptions) -> dict[str, dict[str, Any]]:
    """Return what the counts of each gateway have disclosed in all rounds of the store.

    Gateways that have disclosed nothing are left out. options: of the run whose delta and share of
    honest devices apply. The result has the form of `as_result`.
    """
    tables = GatewayTables(store)
    delta = float(options.delta)
    honest = options_of(options).honest
    epsilons = {}
    for gateway in tables.gateways():
        epsilon = tables.disclosures_of(gateway.name).largest_loss(delta, honest).epsilon
        if epsilon:
            epsilons[gateway.name] = epsilon
    return as_result(epsilons, options)


def as_result(epsilons: Mapping[str, float], options: RunOptions) -> dict[str, dict[str, Any]]:
    """Return, by site, its epsilon and the terms under which it holds, as values for JSON.

    An epsilon that is so large that it means nothing becomes None.
    """
    bound = bound_of(options)
    terms = {
        "delta": float(options.delta),
        "honest": options_of(options).honest,
        "bound": None if bound is None else bound.epsilon / MICRO,
    }
    sites = {}
    for name, epsilon in epsilons.items():
        is_bounded = epsilon <= _MEANS_NOTHING
        sites[name] = {"epsilon": epsilon if is_bounded else None, **terms}
    return sites


def guarantees_of(sites: Sites) -> list[Guarantee]:
    """Return the guarantees toward the owner of the server, for the sites that have one."""
    return [
        Guarantee.toward_server(name, site["epsilon"], site["delta"], site["honest"])
        for name, site in sites.items()
        if site["epsilon"] is not None
    ]


def unbounded_sites(sites: Sites) -> list[str]:
    """Return the names of the sites whose counts disclose as much as single reports would."""
    return [name for name, site in sites.items() if site["epsilon"] is None]


# In words


def words_before(
    learner: Learner, devices: Mapping[str, Integers], store: Store, options: RunOptions
) -> list[str]:
    """Return lines for people on what the counts of each site will have disclosed after the run."""
    numbers = {name: len(ids) for name, ids in devices.items()}
    lines = []
    if options_of(options).chooses_epsilon:
        epsilon = options.learning.epsilon
        lines.append(f"a report of epsilon {epsilon} is the largest that keeps --toward-server")
    epsilons = planned(learner, devices, store, options)
    for name in devices.keys() - epsilons.keys():
        site = f"{name}, with {counted(numbers[name], 'device')}"
        lines.append(
            f"{site}, will hold counts back, of all rounds or from some round on: else they would "
            "tell more than the bound"
        )
    return lines + words(as_result(epsilons, options), numbers)


def words(sites: Sites, devices: Mapping[str, int] | None = None) -> list[str]:
    """Return lines for people on what sites disclose, one for each; of many, only the extremes.

    devices: the number at each site, which lines about a plan give.
    """
    if not sites:
        return []
    head = "toward the owner of the server, who sees counts alone"
    bound = next(iter(sites.values()))["bound"]
    if bound:
        head += f" (the bound is epsilon {bound:g})"

    lines = [f"{head}:"]
    for guarantee in cheapest_and_dearest(guarantees_of(sites), lambda each: each.bounds.epsilon):
        line = f"  {guarantee.words()}"
        if devices:
            line += f" ({counted(devices[guarantee.site], 'device')})"
        lines.append(line)
    for name in unbounded_sites(sites):
        lines.append(f"  the counts of {name} tell as much as single reports would")
    return lines


def rows(sites: Sites) -> list[Row]:
    """Return rows (name, value, meaning) on what sites disclose, for the results in a report."""
    table = []
    for guarantee in guarantees_of(sites):
        meaning = f"against {guarantee.against}; computed from the counts of all rounds"
        table.append(("privacy", guarantee.words(), meaning))
    for name in unbounded_sites(sites):
        meaning = "its counts tell the owner of the server as much as single reports would"
        table.append((f"toward the server, {name}", "no bound", meaning))
    return table
