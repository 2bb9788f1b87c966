"""The devices of several sites, each with a gateway that asks them: what `--fleet gateways:DIR`
names.
"""

from collections.abc import Mapping
from pathlib import Path

from terngateway.driver import GatewaysDriver
from terngateway.options import bound_of
from terngateway.post import Post
from terngateway.tables import GatewayTables
from ternhost.count.members import Integers
from ternhost.errors import UsageError
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import Driver
from ternhost.reach.fleet import Fleet, RunContext
from ternhost.store import store_file
from ternhost.store.store import Store


class AtGateways(Fleet):
    """The gateways of a directory of `tern gateway init`."""

    form = "gateways:DIR"
    about = "devices of the gateways in DIR ('tern gateway init')"
    may_move = True
    has_keys = False
    opening = "asking the gateways"
    count = 0  # boards: nobody knows before gateways have said hello
    way = (
        "Frames travel within a site. Beyond it travel counts of reports, over TLS, and, if the site "
        "allows it (--single-results), results of single devices without their names."
    )

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if not self.rest:
            raise UsageError(
                f"fleet {text!r} names no directory", hint=f"such as {self.word}:my-sites"
            )
        self.directory = Path(self.rest).expanduser()

    @property
    def default_store(self) -> Path:
        """The store of the host in the directory of its NATS server."""
        from terngateway.nats.directories import Server

        return Server.load(self.directory).directory / store_file.NAME

    def registered(self) -> Mapping[str, range]:
        """Return the ids that the devices of each gateway may have, by the gateway's name.

        Gateways that are not in the result may have devices with any other ids. Raises TernError.
        """
        from terngateway.nats.directories import registered

        return registered(self.directory)

    def post(self) -> Post:
        """Return the connection to the gateways. Raises TernError."""
        from terngateway.nats import NatsPost

        return NatsPost(self.directory)

    def device_count(self, store: Store, standing: bool) -> int:
        """Return the number of devices of all gateways, as `sites` finds them."""
        devices_by_site = self.sites(store, standing)
        return sum(len(devices) for devices in devices_by_site.values())

    def sites(self, store: Store, standing: bool) -> Mapping[str, Integers]:
        """Return the ids of the devices of each gateway, by the gateway's name.

        The gateways are asked for them, unless the fleet is served and the store knows them from
        before. standing: whether it is served. Raises TernError.
        """
        stored_gateways = GatewayTables(store).gateways()
        if standing and stored_gateways:
            return {gateway.name: gateway.devices for gateway in stored_gateways}
        with GatewaysDriver(store, self.post(), Terms(), registered=self.registered) as driver:
            return driver.sites

    def driver(self, context: RunContext) -> Driver:
        """Return a driver that asks the gateways in this run's rounds. Raises TernError."""
        return GatewaysDriver(
            context.store,
            self.post(),
            context.terms,
            registered=self.registered,
            bound=bound_of(context.options),
            **context.driver_options,
        )
