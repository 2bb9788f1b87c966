"""The state that all parts of a broker's driver share."""

from dataclasses import dataclass

from ternhost.count.aggregator import Aggregator
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.roster import BoardRoster
from ternhost.reach.driver import Warn
from ternhost.store.fleet_key import FleetKey


@dataclass
class FleetState:
    """A fleet on a broker: how to reach its boards, and what is known about them."""

    link: MqttLink  # the connection to the broker
    aggregator: Aggregator  # checks and counts the reports of devices
    roster: BoardRoster  # the boards, and the devices on each of them
    key: FleetKey  # seals what is for all boards; it is replaced when the key is rotated
    warn: Warn  # is called with each warning
