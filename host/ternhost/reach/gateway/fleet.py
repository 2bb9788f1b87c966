"""The devices of several sites, each with a gateway that asks them: what `--fleet gateways:DIR`
names.
"""

from collections.abc import Mapping
from pathlib import Path

from ternhost.count.members import Integers
from ternhost.errors import UsageError
from ternhost.learn.schedule import Terms
from ternhost.reach.driver import Driver
from ternhost.reach.fleet import Fleet, RunContext
from ternhost.reach.gateway.driver import GatewaysDriver
from ternhost.reach.gateway.post import Post
from ternhost.store import store_file
from ternhost.store.store import Store


class AtGateways(Fleet):
    """The gateways of a directory of `tern gateway init`."""

    form = "gateways:DIR"
    about = "devices of the gateways in DIR ('tern gateway init')"
    may_move = True
    by_gateways = True
    opening = "asking the gateways"
    count = 0  # boards: nobody knows before gateways have said hello

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if not self.rest:
            raise UsageError(
                f"fleet {text!r} names no directory", hint=f"such as {self.word}:my-sites"
            )
        self.directory = Path(self.rest).expanduser()

    @property
    def default_store(self) -> Path:
        from ternhost.reach.gateway.nats.directories import Server

        return Server.load(self.directory).directory / store_file.NAME

    def registered(self) -> Mapping[str, range]:
        """The ids that the devices of gateways may have, by name; of others any.

        Raises TernError.
        """
        from ternhost.reach.gateway.nats.directories import registered

        return registered(self.directory)

    def post(self) -> Post:
        """The way to the gateways. Raises TernError."""
        from ternhost.reach.gateway.nats import NatsPost

        return NatsPost(self.directory)

    def census(self, store: Store, standing: bool) -> int:
        """As of Fleet: gateways are asked, but for a fleet that is served and whose gateways have
        been heard before.
        """
        return sum(map(len, self.sites(store, standing).values()))

    def sites(self, store: Store, standing: bool) -> Mapping[str, Integers]:
        if not (standing and store.gateways()):
            with GatewaysDriver(store, self.post(), Terms(), registered=self.registered) as driver:
                return driver.sites
        return {gateway.name: gateway.devices for gateway in store.gateways()}

    def driver(self, context: RunContext) -> Driver:
        options = context.driver_options
        return GatewaysDriver(
            context.store, self.post(), context.terms, self.registered, context.bound, **options
        )
