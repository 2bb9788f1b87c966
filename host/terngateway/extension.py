"""What gateways add to runs, stores, and what is shown of them: the object that the core finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from terngateway.options import NAME, GatewayOptions, options_of
from terngateway.tables import TABLES, GatewayTables
from ternhost.errors import UsageError
from ternhost.extensions import Extension, Query, Row, StatementPart, View
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

_RESULT = "toward_server"  # the member of a result
_CHOOSE_EPSILON = ("epsilon", "epsilons", "card", "choices")  # options that say what a report costs


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
        """Return the options about gateways; a bound without an epsilon has tern choose the epsilon."""
        has_bound = own.get("toward_server") is not None
        epsilon_is_named = any(name in named for name in _CHOOSE_EPSILON)
        return GatewayOptions(**own, chooses_epsilon=has_bound and not epsilon_is_named)

    def check(self, options: RunOptions) -> None:
        """Raise UsageError for a wrong bound, or a bound of a fleet that has no gateways."""
        from terngateway.bound import Bound
        from ternhost.reach import fleet

        own = options_of(options)
        Bound.parse(own.toward_server or "1", options.delta, own.honest)
        if own.toward_server is not None and not is_by_gateways(fleet.parse(options.fleet)):
            text = "--toward-server is about gateways, and this fleet has none: its host knows who sent a report"
            raise UsageError(text, hint="name a fleet of them: --fleet gateways:DIR")

    def fitted(
        self, options: RunOptions, learner: Learner, fleet: Fleet, store: Store
    ) -> RunOptions:
        """Return the options with the largest epsilon of a report that keeps --toward-server.

        They stay as they are if the run names its epsilon, or sets no such bound. Raises UsageError
        for a learner that protects less than a whole device.
        """
        from terngateway import planning

        own = options_of(options)
        if own.toward_server is not None and learner.unit:
            text = f"--toward-server is about whole devices, and {learner.name} protects {protected(learner.unit)}"
            raise UsageError(text, hint="leave it out, or protect devices (--unit device)")
        if not own.chooses_epsilon:
            return options
        sites = _sites_of(fleet, store, options.schedule is not None)
        return planning.with_largest_epsilon(options, learner, store, sites)

    def before_first_round(self, run: Run, driver: Driver) -> list[str]:
        """Return lines on what the counts of each site will have disclosed after the run."""
        from terngateway import planning
        from terngateway.driver import GatewaysDriver

        if not isinstance(driver, GatewaysDriver) or run.algorithm.unit:
            return []
        return planning.words_before(run.algorithm, driver.sites, run.store, run.options)

    def result(self, run: Run) -> Mapping[str, Any]:
        """Return the member of a run's result with what the counts of each gateway have disclosed."""
        from terngateway import planning

        if not is_by_gateways(run.fleet):
            return {_RESULT: {}}
        return {_RESULT: planning.disclosed_so_far(run.store, run.options)}

    def sentences(self, result: Mapping[str, Any]) -> list[str]:
        from terngateway import planning

        return planning.words(result.get(_RESULT) or {})

    def rows(self, result: Mapping[str, Any]) -> list[Row]:
        from terngateway import planning

        return planning.rows(result.get(_RESULT) or {})

    # A store

    def may_have_reported(self, store: Store, number: int) -> bool | None:
        """Whether a device may have reported in a round; None if no gateway was asked in it."""
        answers = GatewayTables(store).answers(number).values()
        if not answers:
            return None
        all_answered = all(answer.answered for answer in answers)
        reports = sum(answer.reports for answer in answers)
        return reports > 0 or not all_answered

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
        """Return what a privacy statement says about gateways, of one store or of a plan.

        learner: of a run that is planned; None: the statement is about the rounds in the store.
        """
        from terngateway import planning, statement

        if learner is None:
            not_real = ""
            if store.has_tables_of(self):
                not_real = statement.reason_of_made_sites(store)
            if not is_by_gateways(fleet):
                return StatementPart(not_real=not_real)
            sites = planning.disclosed_so_far(store, options)
            return statement.part(sites, options_of(options).honest, not_real)

        if not is_by_gateways(fleet):
            return StatementPart()
        honest = options_of(options).honest
        if learner.unit:  # the accounts of counts are about whole devices
            return statement.part({}, honest)
        devices = _sites_of(fleet, store, options.schedule is not None)
        epsilons = planning.epsilons_after_run(learner, devices, store, options)
        return statement.part(planning.as_result(epsilons, options), honest)

    @property
    def evidence(self) -> Mapping[str, Evidence]:
        from terngateway.statement import EVIDENCE

        return EVIDENCE


def is_by_gateways(fleet: Fleet) -> bool:
    """Whether gateways ask the devices of a fleet."""
    from terngateway.fleet import AtGateways

    return isinstance(fleet, AtGateways)


def _sites_of(fleet: Fleet, store: Store, standing: bool) -> Mapping[str, Any]:
    """Return the devices of each gateway by name. standing: the fleet is served."""
    from terngateway.fleet import AtGateways

    assert isinstance(fleet, AtGateways)
    return fleet.sites(store, standing)


GATEWAYS = Gateways()
