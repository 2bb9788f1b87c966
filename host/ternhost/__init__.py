"""tern's host: federated learning on microcontrollers under exact local differential privacy.

    import ternhost

    result = ternhost.train(fleet="simulated:20000", reports=20_000, epsilon=2)
    result.figures["accuracy"], result.weights, result.history

Nothing is imported before it is used, so that `import ternhost` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ternhost.errors import DeviceError, RefusedError, StorageError, TernError, UsageError

if TYPE_CHECKING:
    from ternhost.api import Result, collect, design, infer, list_runs, resume, train
    from ternhost.run.device_model import DeviceModel
    from ternhost.run.status import Status
    from ternhost.store.store import Store

__all__ = [
    "DeviceError",
    "DeviceModel",
    "RefusedError",
    "Result",
    "Status",
    "StorageError",
    "Store",
    "TernError",
    "UsageError",
    "collect",
    "design",
    "infer",
    "list_runs",
    "resume",
    "train",
]

_ELSEWHERE = {
    "DeviceModel": "ternhost.run.device_model",
    "Status": "ternhost.run.status",
    "Store": "ternhost.store.store",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_ELSEWHERE.get(name, "ternhost.api")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
