"""Home Assistant as a guest of a broker: its users, and their topics."""

from ternhost.reach.broker.access import Rights
from ternhost.reach.broker.guests import Guest


class HomeAssistantGuest(Guest):
    """Home Assistant reads what tern publishes about a fleet, and says whether it is there itself."""

    name = "home_assistant"
    title = "Home Assistant"
    about = (
        "Home Assistant, which 'tern serve --home-assistant' shows the fleet; PREFIX is that of its "
        "discovery topics"
    )
    default_prefix = "homeassistant"
    user = "home-assistant"
    file = "home-assistant.json"
    publisher = "tern-publisher"
    publisher_file = "publisher.json"

    def rights(self, fleet_prefix: str, own_prefix: str) -> tuple[Rights, Rights]:
        figures = f"{fleet_prefix}/fleet/+"
        of_publisher = Rights(write=[discovery_topic(fleet_prefix, own_prefix), figures], read=[])
        of_guest = Rights(write=[f"{own_prefix}/status"], read=[f"{own_prefix}/#", figures])
        return of_publisher, of_guest


GUEST = HomeAssistantGuest()


def discovery_topic(fleet_prefix: str, own_prefix: str) -> str:
    """Return the topic at which Home Assistant discovers a fleet.

    fleet_prefix: the beginning of the fleet's topics. own_prefix: that of Home Assistant's own ones.
    """
    fleet_id = fleet_prefix.replace("/", "_").replace(".", "_")
    return f"{own_prefix}/device/{fleet_id}/config"
