"""The options that gateways add to a run: a limit to what their counts disclose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ternhost.learn.designs import in_privacy
from ternhost.options import Number, OptionGroup

if TYPE_CHECKING:
    from terngateway.bound import Bound
    from ternhost.run.options import RunOptions

NAME = "gateways"  # of the extension, and of the fleet


@dataclass(frozen=True)
class GatewayOptions(OptionGroup):
    """Options of a run about the owner of the server, who sees only the counts of gateways.

    chooses_epsilon: whether the epsilon of a report is to be the largest that `toward_server`
    allows. chooses_plan: whether tern also chooses between one report of each device and many
    rounds. Neither is an option of the command: they follow from the others.
    """

    toward_server: Number | None = in_privacy(
        None,
        "with gateways: epsilon that all their counts may tell the server",
        metavar="E",
        shown="no limit",
    )
    honest: float = in_privacy(
        1.0,
        "with gateways: share of devices that the server does not control",
        metavar="SHARE",
    )
    chooses_epsilon: bool = False
    chooses_plan: bool = False


def options_of(options: RunOptions) -> GatewayOptions:
    """Return those options of a run that are about gateways; by default they set no limit."""
    own: GatewayOptions = options.extensions.get(NAME, GatewayOptions())
    return own


def bound_of(options: RunOptions | None) -> Bound | None:
    """Return the bound that a run sets to what counts disclose; None if it sets none.

    options: of the run; None if there is no run. Raises UsageError for a wrong bound.
    """
    from terngateway.bound import Bound

    if options is None:
        return None
    own = options_of(options)
    if own.toward_server is None:
        return None
    return Bound.parse(own.toward_server, options.delta, own.honest)
