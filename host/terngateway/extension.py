"""What gateways add to runs, stores, and what is shown of them: the object that the core finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from terngateway.options import NAME, GatewayOptions, options_of
from terngateway.tables import TABLES, GatewayTables
from ternhost.errors import UsageError
from ternhost.extensions import Extension, Query, Row, StatementPart, View
from ternhost.options import names_of
from ternhost.privacy.units import protected

if TYPE_CHECKING:
    from ternhost.learn.base import Learner
    from ternhost.reach.driver import BoardBudget, Driver
    from ternhost.reach.fleet import Fleet
    from ternhost.run.options import RunOptions
    from ternhost.run.run import Run
    from ternhost.statement.evidence import Evidence
    from ternhost.store.snapshot import OpenRound
    from ternhost.store.store import Store

_RESULT = "toward_server"  # the member of a run's result that this extension adds
_COST_OPTIONS = ("epsilon", "epsilons", "card", "choices")  # each says what a report costs


class Gateways(Extension):
    """Gateways ask the devices of their sites; the host sees only counts."""

    name = NAME
    package = "terngateway"
    title = "Gateways"
    intermediary = "gateway"
    Options = GatewayOptions
    tables = TABLES

    # A run

    def options_from(self, named: Mapping[str, Any], own: Mapping[str, Any]) -> GatewayOptions:
        """Return the options about gateways.

        If a run sets a bound, but does not say what a report costs, the cost is chosen from the
        bound. If it does not say either how many reports there shall be, or anything else that only
        one report of each device or only many rounds have, that is chosen, too. named: all options
        that the user has named. own: those about gateways.
        """
        has_bound = own.get("toward_server") is not None
        cost_is_named = any(name in named for name in _COST_OPTIONS)
        chooses_epsilon = has_bound and not cost_is_named
        return GatewayOptions(
            **own,
            chooses_epsilon=chooses_epsilon,
            chooses_plan=chooses_epsilon and not _plan_is_named(named),
        )

    def check(self, options: RunOptions) -> None:
        """Raise UsageError for a wrong bound, or a bound of a fleet that has no gateways."""
        from terngateway.bound import Bound
        from ternhost.reach import fleet

        own = options_of(options)
        any_epsilon = "1"  # without a bound, only the other options are checked
        epsilon = own.toward_server or any_epsilon
        Bound.parse(epsilon, options.delta, own.honest)  # raises UsageError if one is wrong
        if own.toward_server is not None and not is_by_gateways(fleet.parse(options.fleet)):
            text = "--toward-server is about gateways, and this fleet has none: its host knows who sent a report"
            raise UsageError(text, hint="use a fleet of gateways: --fleet gateways:DIR")

    def fitted(
        self, options: RunOptions, learner: Learner, fleet: Fleet, store: Store
    ) -> RunOptions:
        """Return the options with the largest epsilon of a report that keeps --toward-server.

        Where each device reports once, all report in the same round. If the user leaves it to tern,
        the options are those of one report or of many rounds, whichever promises the better model.
        The epsilon stays as it is if the run names what a report costs, and everything does if it
        sets no such bound. learner: the algorithm of the run. Raises UsageError for an algorithm
        that protects less than a whole device.
        """
        from terngateway import planning, weighing
        from ternhost.run.begin import make_learner, population

        own = options_of(options)
        protects_devices = not learner.unit  # and not only so many consecutive records
        if own.toward_server is not None and not protects_devices:
            text = f"--toward-server is about whole devices, and {learner.name} protects {protected(learner.unit)}"
            raise UsageError(text, hint="leave it out, or protect devices (--unit device)")
        if own.toward_server is None:
            return options
        if not own.chooses_epsilon:
            return weighing.all_at_once(options)
        devices = _devices_by_site(fleet, store, is_served=options.schedule is not None)
        device_count = sum(len(site_devices) for site_devices in devices.values())
        clients = population(fleet, options.schedule, store, device_count)

        def make(changed: RunOptions) -> Learner:
            return make_learner(changed, clients)

        if weighing.may_weigh(options, learner, store):
            return weighing.better_plan(options, make, store, devices)
        at_once = weighing.all_at_once(options)
        if at_once is not options:
            learner = make(at_once)
        return planning.with_largest_epsilon(at_once, learner, store, devices)

    def before_first_round(self, run: Run, driver: Driver) -> list[str]:
        """Return lines on the privacy loss that the counts of each site will have caused in the end.

        There are none if no gateways are asked, or if the run protects less than whole devices.
        """
        from terngateway import planning
        from terngateway.driver import GatewaysDriver

        if not isinstance(driver, GatewaysDriver) or run.algorithm.unit:
            return []
        return planning.words_before(run.algorithm, driver.sites, run.store, run.options)

    def result(self, run: Run) -> Mapping[str, Any]:
        """Return what a run's result says about the privacy loss through each gateway's counts."""
        from terngateway import planning

        by_site: Mapping[str, Any] = {}
        if is_by_gateways(run.fleet):
            by_site = planning.disclosed_so_far(run.store, run.options)
        return {_RESULT: by_site}

    def sentences(self, result: Mapping[str, Any]) -> list[str]:
        from terngateway import planning

        return planning.words(result.get(_RESULT) or {})

    def rows(self, result: Mapping[str, Any]) -> list[Row]:
        from terngateway import planning

        return planning.rows(result.get(_RESULT) or {})

    # A store

    def may_have_reported(self, store: Store, number: int) -> bool | None:
        """Whether a device may have reported in a round; None if no gateway was asked in it.

        A gateway that has not answered yet may have reports. number: that of the round.
        """
        answers = GatewayTables(store).answers(number).values()
        if not answers:
            return None
        all_have_answered = all(answer.answered for answer in answers)
        reports = sum(answer.reports for answer in answers)
        return reports > 0 or not all_have_answered

    def is_numbered_elsewhere(self, store: Store) -> bool:
        """Whether a gateway uses this store, and a host has sent it a question."""
        return GatewayTables(store).last_question() is not None

    def budgets(self, store: Store) -> Sequence[BoardBudget]:
        """Return the budgets that the boards of all gateways in the store have last reported."""
        from terngateway.budgets import budgets_of

        budgets: list[BoardBudget] = []
        for gateway in GatewayTables(store).gateways():
            budgets += budgets_of(gateway.devices, gateway.here.get("budgets", ()))
        return budgets

    # What is shown

    def view(self, query: Query | None, open_rounds: Sequence[OpenRound]) -> View:
        from terngateway.view import read

        return read(query, [round_.number for round_ in open_rounds])

    def statement_part(
        self, store: Store, fleet: Fleet, options: RunOptions, learner: Learner | None = None
    ) -> StatementPart:
        """Return what a privacy statement says about gateways.

        learner: the algorithm of a run that is planned; None if the statement is about the rounds
        that the store already has.
        """
        if learner is None:
            return self._statement_of_store(store, fleet, options)
        return self._statement_of_plan(store, fleet, options, learner)

    def _statement_of_store(self, store: Store, fleet: Fleet, options: RunOptions) -> StatementPart:
        """Return what a statement says about the rounds that a store has."""
        from terngateway import planning, statement

        not_real = ""
        if store.has_tables_of(self):
            not_real = statement.reason_of_made_sites(store)
        if not is_by_gateways(fleet):
            return StatementPart(not_real=not_real)
        sites = planning.disclosed_so_far(store, options)
        return statement.part(sites, options_of(options).honest, not_real)

    def _statement_of_plan(
        self, store: Store, fleet: Fleet, options: RunOptions, learner: Learner
    ) -> StatementPart:
        """Return what a statement says about a run that has not begun."""
        from terngateway import planning, statement

        if not is_by_gateways(fleet):
            return StatementPart()
        sites: Mapping[str, Mapping[str, Any]] = {}
        protects_devices = not learner.unit  # the losses through counts are those of whole devices
        if protects_devices:
            devices = _devices_by_site(fleet, store, is_served=options.schedule is not None)
            epsilons = planning.epsilons_after_run(learner, devices, store, options)
            sites = planning.as_result(epsilons, options)
        return statement.part(sites, options_of(options).honest)

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        from terngateway.statement import EVIDENCE

        return EVIDENCE


def _plan_is_named(named: Mapping[str, Any]) -> bool:
    """Whether the user says how often devices report, or names an option of only one such plan.

    named: all options that the user has named.
    """
    from ternhost.learn.models.fedsgd import FedSGD
    from ternhost.learn.one_answer.direct import Direct

    of_one_plan = names_of(Direct.Options) ^ names_of(FedSGD.Options)
    return bool(named.keys() & (of_one_plan | {"reports"}))


def is_by_gateways(fleet: Fleet) -> bool:
    """Whether gateways ask the devices of a fleet."""
    from terngateway.fleet import AtGateways

    return isinstance(fleet, AtGateways)


def _devices_by_site(fleet: Fleet, store: Store, is_served: bool) -> Mapping[str, Any]:
    """Return the ids of the devices of each gateway, by the gateway's name.

    is_served: whether the fleet is served, so that the store may know the devices.
    """
    from terngateway.fleet import AtGateways

    assert isinstance(fleet, AtGateways)
    return fleet.sites(store, standing=is_served)


GATEWAYS = Gateways()
