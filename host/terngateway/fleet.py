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
        from terngateway.nats.directories import Server

        return Server.load(self.directory).directory / store_file.NAME

    def registered(self) -> Mapping[str, range]:
        """Return, by gateway, the ids that its devices may have; the devices of others may have any.

        Raises TernError.
        """
        from terngateway.nats.directories import registered

        return registered(self.directory)

    def post(self) -> Post:
        """The way to the gateways. Raises TernError."""
        from terngateway.nats import NatsPost

        return NatsPost(self.directory)

    def device_count(self, store: Store, standing: bool) -> int:
        """Return the number of devices of all gateways, as `sites` finds them."""
        return sum(len(devices) for devices in self.sites(store, standing).values())

    def sites(self, store: Store, standing: bool) -> Mapping[str, Integers]:
        """Return the devices of each gateway, by name.

        Gateways are asked for them, except in a served fleet (`standing`) whose store knows them
        from before. Raises TernError.
        """
        stored = GatewayTables(store).gateways()
        if standing and stored:
            return {gateway.name: gateway.devices for gateway in stored}
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
