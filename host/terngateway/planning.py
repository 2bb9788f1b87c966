"""What a run discloses to the owner of the server, who sees only the counts of gateways.

It is planned before the run, kept below a bound by the epsilon of a report, and computed from the
rounds of the store afterwards.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tern import ledger
from tern.fixed import MAX_EPSILON
from terngateway.bound import MORE, Bound
from terngateway.messages import BudgetRow
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
_LEAST = 1000  # micro-epsilon: reports that cost less are too noisy to be worth a round
_DIGITS = 3  # significant decimal digits of the epsilon that is chosen
_SEARCH_STEPS = 300  # the search for an epsilon ends within this fraction (1/300) of the result
# The epsilons that are tried first differ from the estimate by these factors.
_FARTHER = (1.0, 1.004, 1.015, 1.05)
_MEANS_NOTHING = 1000  # an epsilon above this is shown as no bound at all
_HORIZON = 10_000  # rounds for which the plan of a run without an end reckons

Sites = Mapping[str, Mapping[str, Any]]
"""By name of a site, the privacy loss through its counts, as values for JSON (`as_result`)."""


@dataclass(frozen=True)
class PlannedReports:
    """The reports that a run requests from one class of devices at a site.

    Devices of one class get the same questions. report: the kind of each report, which holds its
    cost and how many reports of a round are added up with it; its mechanism is taken to be the one
    that discloses most at this cost. devices: the ids of the class. times: the number of rounds in
    which each of these devices reports.
    """

    report: ReportKind
    devices: Integers
    times: int


@dataclass(frozen=True)
class Site:
    """A site as a plan sees it: its devices, their privacy loss so far, and its limits.

    devices: the ids of those that can be asked now. disclosed: what the counts of the site have
    disclosed so far. bounds: those of the run and of the site, none to two. least_budget: the
    smallest rest of a device's lifetime budget at the site, in micro-epsilon; None if it is
    unknown. registered: how many devices the site has, also those that cannot be asked now.
    """

    name: str
    devices: Integers
    disclosed: Disclosures
    bounds: Sequence[Bound]
    least_budget: int | None = None
    registered: int = 0

    def group(self, asked: int, pool: int, draw: int) -> Group:
        """Return a group of `asked` devices of this site, for the privacy account.

        pool: the number of devices from which the gateway draws the group at random; 0 if the host
        chooses it. draw: the number of this draw, counted from 1; 0 if the host chooses.
        """
        all_devices = max(self.registered, len(self.devices))
        return Group(all_devices, asked, pool, draw)

    def keeps_bounds(self, planned: Sequence[PlannedReports]) -> bool:
        """Whether the counts of the site stay within all its bounds after these reports."""
        disclosures = self.after(planned)
        return all(bound.keeps(disclosures, self.devices) for bound in self.bounds)

    def after(self, planned: Sequence[PlannedReports]) -> Disclosures:
        """Return what the counts of the site will have disclosed after these reports."""
        rows = [(reports.report, reports.devices, reports.times) for reports in planned]
        return self.disclosed.with_reports(rows)


def sites_of(devices: Mapping[str, Integers], store: Store, options: RunOptions) -> list[Site]:
    """Return the sites of a run with their privacy losses so far and their bounds.

    These come from the store of the host, which has the latest message of each gateway about
    itself. devices: by name of the site, the devices that can be asked. options: of the run, which
    may set a bound, too.
    """
    tables = GatewayTables(store)
    gateways = {gateway.name: gateway for gateway in tables.gateways()}
    bound_of_run = bound_of(options)
    sites = []
    for name, site_devices in devices.items():
        reported: Mapping[str, Any] = {}  # what the gateway has reported about itself
        if name in gateways:
            reported = gateways[name].here
        bound_of_site = Bound.read(reported.get("toward_server"))
        bounds = [bound for bound in (bound_of_run, bound_of_site) if bound is not None]
        site = Site(
            name=name,
            devices=site_devices,
            disclosed=tables.disclosures_of(name),
            bounds=bounds,
            least_budget=_least_budget(reported.get("budgets", ())),
            registered=int(reported.get("registered", 0)),
        )
        sites.append(site)
    return sites


def _least_budget(rows: Sequence[Sequence[Any]]) -> int | None:
    """Return the smallest rest of a budget in micro-epsilon; None if no budget is in epsilon.

    rows: the fields of `messages.BudgetRow`, as the store has them.
    """
    micro_epsilons = []
    for row in rows:
        budget = BudgetRow(*row)
        if budget.measure == ledger.EPSILON:
            micro_epsilons.append(budget.left)
    return min(micro_epsilons, default=None)


def planned_reports(
    learner: Learner, site: Site, all_devices: int, options: RunOptions
) -> list[PlannedReports]:
    """Return the reports that a run will request from a site, for each class of its devices.

    learner: the algorithm of the run. all_devices: the number of devices at all sites, from which
    the devices of a round are drawn.
    """
    share_of_round = _share_of_round(learner, all_devices, options)
    some_are_dishonest = any(bound.honest < 1 for bound in site.bounds)
    gateway_draws_groups = learner.draws_groups and some_are_dishonest

    planned = []
    classes = by_class(learner.designs, site.devices, learner.options.seed)
    for _, design, class_devices in classes:
        report = design.report
        if not report.gaussian:
            report = ReportKind(design.cost)  # of the mechanism that discloses most at this cost
        group = _smallest_group(
            site,
            share=share_of_round,
            devices=len(class_devices),
            rounds=learner.rounds,
            is_drawn=gateway_draws_groups,
        )
        # A round may end early, with a quorum of its reports. The fewer, the less a report hides.
        least_reports = math.floor(options.terms.quorum * group.asked)
        report = report.among(least_reports, group)
        planned.append(PlannedReports(report, class_devices, times=learner.times))
    return planned


def _share_of_round(learner: Learner, all_devices: int, options: RunOptions) -> float:
    """Return the share of all devices that one question of a round is for, from 0 to 1.

    Of several questions it is the smallest share. It follows from the plan of the learner, else
    from the schedule of a served fleet; without either, a round asks all devices.
    """
    if learner.fewest_asked is not None:
        return min(1.0, learner.fewest_asked / all_devices)
    if options.schedule:
        return options.schedule.share
    return 1.0


def _smallest_group(
    site: Site, share: float, devices: int, rounds: int | None, is_drawn: bool
) -> Group:
    """Return the smallest group of a class of devices that a round is likely to ask at a site.

    share: the share of all devices that a round asks. devices: the number of devices of the class
    at the site. rounds: the number of rounds of the run; None if it has no end. is_drawn: whether
    the gateway draws the group, not the host. Then the result is the group of the last draw, for
    which the account is strictest.
    """
    if share == 1:
        return site.group(asked=devices, pool=0, draw=0)
    if is_drawn:
        groups_of_pool = math.ceil(1 / share)
        last_draw = max(1, rounds or _HORIZON)
        return site.group(asked=devices // groups_of_pool, pool=devices, draw=last_draw)

    # The host draws from all sites, so the number of devices at one site is random. Its standard
    # deviation is at most that of a Poisson distribution, the square root of the mean.
    mean = share * devices
    asked = max(0, math.floor(mean - _SPREADS * math.sqrt(mean)))
    return site.group(asked=asked, pool=0, draw=0)


# The epsilon of a report that keeps the bound


def with_largest_epsilon(
    options: RunOptions, learner: Learner, store: Store, devices: Mapping[str, Integers]
) -> RunOptions:
    """Return the options of a run with the most useful epsilon of a report that keeps the bounds.

    A gateway whose devices could not keep a bound sends no counts at all. So a larger epsilon makes
    each report more precise, but may have fewer sites; the result is the best compromise.

    learner: the algorithm, as planned with any other epsilon. devices: by name of the site, the
    devices that can be asked. Raises RefusedError if no site can keep its bounds, and UsageError if
    the algorithm has no epsilon or no last round.
    """
    _require_epsilon_and_end(options, learner)
    sites = sites_of(devices, store, options)
    all_devices = sum(len(site.devices) for site in sites)
    largest = {}  # by name of the site, the largest micro-epsilon that keeps its bounds
    for site in sites:
        planned = planned_reports(learner, site, all_devices, options)
        largest[site.name] = largest_epsilon(site, planned)
    if max(largest.values()) < _LEAST:
        text = f"no epsilon of a report above {_LEAST / MICRO:g} keeps the bound at any site over all rounds"
        raise RefusedError(text, hint=MORE)

    def information(micro_epsilon: int) -> float:
        """Return how much a round tells the host: the number of reports times the signal of each.

        The signal is the squared difference of the two answers' probabilities in randomised
        response, tanh(epsilon / 2)^2.
        """
        answering_devices = 0
        for site in sites:
            if largest[site.name] >= micro_epsilon:
                answering_devices += len(site.devices)
        signal = math.tanh(micro_epsilon / MICRO / 2) ** 2
        return answering_devices * signal

    best = max(largest.values(), key=information)
    epsilon = _rounded_down(best) / MICRO
    learning = replace(options.learning, epsilon=f"{epsilon:g}")
    return replace(options, learning=learning)


def _require_epsilon_and_end(options: RunOptions, learner: Learner) -> None:
    """Raise UsageError if no epsilon can be chosen for a run.

    That is so if its algorithm has no option for the epsilon of a report, or protects less than a
    whole device, or if the run has no last round.
    """
    has_epsilon = "epsilon" in names_of(type(options.learning))
    protects_devices = not learner.unit  # and not only so many consecutive records
    if not has_epsilon or not protects_devices:
        text = f"--toward-server chooses no epsilon for {learner.name}"
        hint = "name how much a report may cost, which is then kept or refused"
        raise UsageError(text, hint=hint)
    if learner.rounds is None:
        text = "an epsilon that keeps --toward-server depends on the number of rounds, and this run has no end"
        raise UsageError(text, hint="give --rounds, or the --epsilon of a report")


def _rounded_down(micro_epsilon: int) -> int:
    """Return the number with all but its first _DIGITS decimal digits replaced by zeros."""
    digits = len(str(micro_epsilon))
    zeros = max(0, digits - _DIGITS)
    power_of_ten: int = 10**zeros
    return micro_epsilon // power_of_ten * power_of_ten


def largest_epsilon(site: Site, planned: Sequence[PlannedReports]) -> int:
    """Return the largest epsilon of a report that a site's bounds and budgets allow.

    The result is in millionths; 0 if not even the least useful epsilon is allowed. It may be a
    third of a per cent too small. planned: the reports that the run requests; their costs do not
    matter.
    """
    most_rounds = max((reports.times for reports in planned), default=1)
    upper_limit = MAX_EPSILON
    if site.least_budget is not None:
        upper_limit = min(MAX_EPSILON, site.least_budget // most_rounds)

    def keeps_bounds(micro_epsilon: int) -> bool:
        """Whether the site keeps its bounds if each report costs so much."""
        with_epsilon = []
        for reports in planned:
            report = replace(reports.report, cost=micro_epsilon)
            with_epsilon.append(replace(reports, report=report))
        return site.keeps_bounds(with_epsilon)

    if upper_limit < _LEAST or not keeps_bounds(_LEAST):
        return 0
    estimate = _estimated_epsilon(site, planned)
    return largest_by_bisection(keeps_bounds, _LEAST, upper_limit + 1, estimate)


def _estimated_epsilon(site: Site, planned: Sequence[PlannedReports]) -> int:
    """Return about the largest epsilon, in millionths, that keeps the bounds of a site.

    The estimate leaves out what the counts of the site have disclosed so far.
    """
    estimates = []
    for bound in site.bounds:
        for reports in planned:
            estimates.append(bound.estimated_cost(reports.report, max(1, reports.times)))
    return min(estimates, default=MAX_EPSILON)


def largest_by_bisection(
    keeps_bounds: Callable[[int], bool], lower: int, upper: int, estimate: int
) -> int:
    """Return nearly the largest epsilon that keeps the bounds; all are in millionths.

    The result keeps them, and is too small by the share 1 / _SEARCH_STEPS at most. It does not
    depend on the estimate, with which it is found in less time: first the epsilons around the
    estimate are tried, from which most of the others follow.

    keeps_bounds: if it is true for an epsilon, it is true for all smaller ones. It takes long.
    lower: keeps the bounds. upper: does not, or is above the limit. estimate: of the result.
    """
    largest_known = lower  # of those that keep the bounds
    smallest_known = upper  # of those that do not

    def is_allowed(micro_epsilon: int) -> bool:
        """Whether an epsilon keeps the bounds, by what is known of others if that says it."""
        nonlocal largest_known, smallest_known
        if largest_known < micro_epsilon < smallest_known:
            if keeps_bounds(micro_epsilon):
                largest_known = micro_epsilon
            else:
                smallest_known = micro_epsilon
        return micro_epsilon <= largest_known

    below, above = _bisect(lambda micro_epsilon: micro_epsilon <= estimate, lower, upper)
    for factor in _FARTHER:
        is_allowed(round(below / factor))
        is_allowed(round(above * factor))
    allowed, _ = _bisect(is_allowed, lower, upper)
    return allowed


def _bisect(is_allowed: Callable[[int], bool], allowed: int, too_large: int) -> tuple[int, int]:
    """Return the ends between which the largest allowed epsilon is, by bisection.

    Means are geometric, since only the ratio of epsilons matters. allowed: one that is allowed.
    too_large: one that is not, or is above the limit.
    """
    while too_large - allowed > allowed // _SEARCH_STEPS + 1:
        middle = math.isqrt(allowed * too_large)
        if is_allowed(middle):
            allowed = middle
        else:
            too_large = middle
    return allowed, too_large


# What counts disclose, by site


def epsilons_after_run(
    learner: Learner, devices: Mapping[str, Integers], store: Store, options: RunOptions
) -> dict[str, float]:
    """Return, by site, the privacy loss (epsilon) through its counts after the planned run.

    It is that of the device that loses most. Sites that would break a bound, and so will hold their
    counts back, are left out. learner: the algorithm of the run. devices: by name of the site, the
    devices that can be asked.
    """
    all_devices = sum(len(site_devices) for site_devices in devices.values())
    delta = float(options.delta)
    honest = options_of(options).honest
    epsilons = {}
    for site in sites_of(devices, store, options):
        planned = planned_reports(learner, site, all_devices, options)
        if site.keeps_bounds(planned):
            disclosures = site.after(planned)
            loss = disclosures.largest_loss(delta, honest, of=site.devices)
            epsilons[site.name] = loss.epsilon
    return epsilons


def disclosed_so_far(store: Store, options: RunOptions) -> dict[str, dict[str, Any]]:
    """Return, by site, the privacy loss of its devices toward the owner of the server so far.

    The owner of the server sees only counts, which a gateway has added up. The loss is that of the
    device that loses most, through the counts of all rounds in the store, in the form of
    `as_result`. Sites without a loss are left out.

    options: those of a run, which say at which delta the epsilons hold, and which share of the
    devices the owner of the server is taken not to control.
    """
    tables = GatewayTables(store)
    delta = float(options.delta)
    honest_share = options_of(options).honest
    epsilons = {}
    for gateway in tables.gateways():
        disclosures = tables.disclosures_of(gateway.name)
        loss = disclosures.largest_loss(delta, honest_share)
        if loss.epsilon:
            epsilons[gateway.name] = loss.epsilon
    return as_result(epsilons, options)


def as_result(epsilons: Mapping[str, float], options: RunOptions) -> dict[str, dict[str, Any]]:
    """Return, by site, its epsilon and the terms under which it holds, as values for JSON.

    epsilons: by site, the privacy loss of its devices through counts. One that is so large that it
    means nothing becomes None in the result. options: those of the run that sets the terms.
    """
    bound = bound_of(options)
    bound_epsilon = None
    if bound is not None:
        bound_epsilon = bound.epsilon / MICRO
    delta = float(options.delta)
    honest = options_of(options).honest

    sites = {}
    for name, epsilon in epsilons.items():
        sites[name] = {
            "epsilon": epsilon if epsilon <= _MEANS_NOTHING else None,
            "delta": delta,
            "honest": honest,
            "bound": bound_epsilon,
        }
    return sites


def guarantees_of(sites: Sites) -> list[Guarantee]:
    """Return the guarantees toward the owner of the server, for the sites that have one."""
    guarantees = []
    for name, site in sites.items():
        if site["epsilon"] is not None:
            guarantee = Guarantee.toward_server(
                name, site["epsilon"], site["delta"], site["honest"]
            )
            guarantees.append(guarantee)
    return guarantees


def unbounded_sites(sites: Sites) -> list[str]:
    """Return the names of the sites whose counts disclose as much as single reports would."""
    return [name for name, site in sites.items() if site["epsilon"] is None]


# In words


def words_before(
    learner: Learner, devices: Mapping[str, Integers], store: Store, options: RunOptions
) -> list[str]:
    """Return lines for people, before a run, on the privacy loss that each site's counts will cause.

    learner: the algorithm of the run. devices: by name of the site, the devices that can be asked.
    """
    lines = []
    if options_of(options).chooses_epsilon:
        epsilon = options.learning.epsilon
        lines.append(f"a report of epsilon {epsilon} is the largest that keeps --toward-server")

    numbers = {name: len(site_devices) for name, site_devices in devices.items()}
    epsilons = epsilons_after_run(learner, devices, store, options)
    sites_that_hold_back = devices.keys() - epsilons.keys()
    for name in sites_that_hold_back:
        site = f"{name}, with {counted(numbers[name], 'device')}"
        lines.append(
            f"{site}, will hold counts back, of all rounds or from some round on: else they would "
            "tell more than the bound"
        )
    return lines + words(as_result(epsilons, options), numbers)


def words(sites: Sites, devices: Mapping[str, int] | None = None) -> list[str]:
    """Return lines for people on the privacy loss through counts, one line for each site.

    Of many sites, only those with the smallest and the largest loss get a line. sites: as from
    `as_result`. devices: by site, the number of its devices, for the lines about a plan; None if
    the lines shall not say it.
    """
    if not sites:
        return []
    head = "toward the owner of the server, who sees counts alone"
    any_site = next(iter(sites.values()))  # the bound of the run is the same in all
    if any_site["bound"]:
        head += f" (the bound is epsilon {any_site['bound']:g})"

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
    """Return rows for a table of results, on the privacy loss through each site's counts.

    A row has a name, a value and what the value means. sites: as from `as_result`.
    """
    table = []
    for guarantee in guarantees_of(sites):
        meaning = f"against {guarantee.against}; computed from the counts of all rounds"
        table.append(("privacy", guarantee.words(), meaning))
    for name in unbounded_sites(sites):
        meaning = "its counts tell the owner of the server as much as single reports would"
        table.append((f"toward the server, {name}", "no bound", meaning))
    return table
