"""tern's host: federated learning on microcontrollers under exact local differential privacy.

    import ternhost
    from ternhost import FedSGD, Simulated

    result = ternhost.train(FedSGD(epsilon=2, reports=20_000), Simulated(20_000))
    print(result.accuracy, result.weights)

Each part is imported when it is first used, so that `import ternhost` is fast."""

from typing import TYPE_CHECKING, Any

from ternhost import device_library
from ternhost.errors import DeviceError, RefusedError, StorageError, TernError, UsageError

device_library.provide(__name__)  # for modules that import `tern`: neither of those above does

if TYPE_CHECKING:
    from ternhost.api.accounts import Account, account
    from ternhost.api.cards import Card, Verdict, design, list_cards
    from ternhost.api.data import Data, describe
    from ternhost.api.fleets import Broker, Emulated, FleetChoice, Ports, Simulated
    from ternhost.api.histograms import Histogram, Quantile
    from ternhost.api.learners import (
        Direct,
        FedAvg,
        FedSGD,
        FedSum,
        Infer,
        Means,
        Quantiles,
        Values,
    )
    from ternhost.api.plans import PlanResult, Statistic, plan
    from ternhost.api.protection import Protection
    from ternhost.api.results import Attribute, CollectResult, InferResult, Result, TrainResult
    from ternhost.api.runs import Run, collect, infer, list_runs, resume, serve, train
    from ternhost.api.statements import write_statement
    from ternhost.datasets.schemas.columns import Categorical, Numeric
    from ternhost.datasets.schemas.schema import Schema
    from ternhost.learn.models.limits import first_unusual
    from ternhost.learn.schedule import Schedule, Terms
    from ternhost.planning.years import RoundsForYears
    from ternhost.privacy.matrix import certify
    from ternhost.run.device_model import DeviceModel
    from ternhost.run.status import Status
    from ternhost.store.store import Store
    from ternhost.watch.summary import FleetSummary, fleet_summary

# Where each public name is defined, as "module:attribute". The imports above say the same to type
# checkers.
_PLACES = {
    # What a run is made of.
    "Direct": "ternhost.api.learners:Direct",
    "FedAvg": "ternhost.api.learners:FedAvg",
    "FedSGD": "ternhost.api.learners:FedSGD",
    "FedSum": "ternhost.api.learners:FedSum",
    "Infer": "ternhost.api.learners:Infer",
    "Means": "ternhost.api.learners:Means",
    "Quantiles": "ternhost.api.learners:Quantiles",
    "Values": "ternhost.api.learners:Values",
    "Broker": "ternhost.api.fleets:Broker",
    "Emulated": "ternhost.api.fleets:Emulated",
    "FleetChoice": "ternhost.api.fleets:FleetChoice",
    "Ports": "ternhost.api.fleets:Ports",
    "Simulated": "ternhost.api.fleets:Simulated",
    "Data": "ternhost.api.data:Data",
    "describe": "ternhost.api.data:describe",
    "Schema": "ternhost.datasets.schemas.schema:Schema",
    "Numeric": "ternhost.datasets.schemas.columns:Numeric",
    "Categorical": "ternhost.datasets.schemas.columns:Categorical",
    "Protection": "ternhost.api.protection:Protection",
    "Schedule": "ternhost.learn.schedule:Schedule",
    "Terms": "ternhost.learn.schedule:Terms",
    # Runs.
    "Run": "ternhost.api.runs:Run",
    "Status": "ternhost.run.status:Status",
    "collect": "ternhost.api.runs:collect",
    "infer": "ternhost.api.runs:infer",
    "fleet_summary": "ternhost.watch.summary:fleet_summary",
    "list_runs": "ternhost.api.runs:list_runs",
    "plan": "ternhost.api.plans:plan",
    "Statistic": "ternhost.api.plans:Statistic",
    "RoundsForYears": "ternhost.planning.years:RoundsForYears",
    "resume": "ternhost.api.runs:resume",
    "write_statement": "ternhost.api.statements:write_statement",
    "serve": "ternhost.api.runs:serve",
    "train": "ternhost.api.runs:train",
    # What comes of them.
    "Attribute": "ternhost.api.results:Attribute",
    "CollectResult": "ternhost.api.results:CollectResult",
    "DeviceModel": "ternhost.run.device_model:DeviceModel",
    "first_unusual": "ternhost.learn.models.limits:first_unusual",
    "Histogram": "ternhost.api.histograms:Histogram",
    "InferResult": "ternhost.api.results:InferResult",
    "PlanResult": "ternhost.api.plans:PlanResult",
    "Quantile": "ternhost.api.histograms:Quantile",
    "Result": "ternhost.api.results:Result",
    "Store": "ternhost.store.store:Store",
    "FleetSummary": "ternhost.watch.summary:FleetSummary",
    "TrainResult": "ternhost.api.results:TrainResult",
    # Mechanisms.
    "Card": "ternhost.api.cards:Card",
    "Account": "ternhost.api.accounts:Account",
    "account": "ternhost.api.accounts:account",
    "Verdict": "ternhost.api.cards:Verdict",
    "design": "ternhost.api.cards:design",
    "list_cards": "ternhost.api.cards:list_cards",
    "certify": "ternhost.privacy.matrix:certify",
}

__all__ = [
    "Account",
    "Attribute",
    "Broker",
    "Card",
    "Categorical",
    "CollectResult",
    "Data",
    "DeviceError",
    "DeviceModel",
    "Direct",
    "Emulated",
    "FedAvg",
    "FedSGD",
    "FedSum",
    "FleetChoice",
    "FleetSummary",
    "Histogram",
    "Infer",
    "InferResult",
    "Means",
    "Numeric",
    "PlanResult",
    "Ports",
    "Protection",
    "Quantile",
    "Quantiles",
    "RefusedError",
    "Result",
    "RoundsForYears",
    "Run",
    "Schedule",
    "Schema",
    "Simulated",
    "Statistic",
    "Status",
    "StorageError",
    "Store",
    "Terms",
    "TernError",
    "TrainResult",
    "UsageError",
    "Values",
    "Verdict",
    "account",
    "certify",
    "collect",
    "describe",
    "design",
    "first_unusual",
    "fleet_summary",
    "infer",
    "list_cards",
    "list_runs",
    "plan",
    "resume",
    "serve",
    "train",
    "write_statement",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import ternhost` is fast."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, _, attribute = _PLACES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value  # so that this function is not called for it again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
