"""tern's host: federated learning on microcontrollers under exact local differential privacy.

    import ternhost

    result = ternhost.train(fleet="simulated:20000", reports=20_000, epsilon=2)
    result.figures["accuracy"], result.weights, result.history

Each part is imported when it is first used, so that `import ternhost` is fast."""

from typing import TYPE_CHECKING, Any

from ternhost import device_library
from ternhost.errors import DeviceError, RefusedError, StorageError, TernError, UsageError

device_library.provide(__name__)  # for modules that import `tern`: neither of those above does

if TYPE_CHECKING:
    from ternhost.api import Result, certify, collect, design, infer, list_runs, resume, train
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
    "certify",
    "collect",
    "design",
    "infer",
    "list_runs",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import ternhost` is fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module = "ternhost.api"
    if name == "Store":
        module = "ternhost.store.store"
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value  # so that this function is not called for it again
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
