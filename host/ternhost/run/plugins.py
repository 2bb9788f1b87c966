"""The plugins that a stored run needs, and the message where one is missing."""

from collections.abc import Mapping
from typing import Any

from ternhost.errors import UsageError
from ternhost.extensions import EXTENSIONS
from ternhost.learn.base import ALGORITHMS, Learner
from ternhost.learn.models.optimisers import OPTIMISERS
from ternhost.privacy import mechanisms
from ternhost.reach.fleet import KINDS
from ternhost.registry import Registry


def require_all(run: str, asked: Mapping[str, Any]) -> None:
    """Raise UsageError if a stored run needs a plugin that is not registered here; it is named.

    Algorithms, kinds of fleets, noise mechanisms, optimisers and extensions are plugins, each in a
    registry of its own. run: the name of the run. asked: its settings in the store.
    """
    _require(run, ALGORITHMS, asked["algorithm"])
    kind, _, _ = asked["fleet"].partition(":")  # of KIND:...
    _require(run, KINDS, kind)
    _require(run, mechanisms.REGISTRY, asked["learning"].get("mechanism"))
    _require(run, OPTIMISERS, asked["learning"].get("optimiser"))
    for name in asked["extensions"]:
        _require(run, EXTENSIONS, name)


def learner_of(result: Mapping[str, Any]) -> type[Learner]:
    """Return the class of the algorithm that made a result.

    Raises UsageError if it is not registered; its name is in the message.
    """
    _require(result["run"], ALGORITHMS, result["algorithm"])
    return ALGORITHMS[result["algorithm"]]


def _require(run: str, registry: Registry[Any], name: str | None) -> None:
    """Raise UsageError if a run needs the plugin `name`, and the registry does not have it.

    name: None if the run needs none of this registry.
    """
    if name is not None and name not in registry:
        hint = "name the file that defines it: tern --with FILE.py ...; or install its package"
        raise UsageError(
            f"the run {run} needs the {registry.what} {name!r}, which is not registered", hint
        )
