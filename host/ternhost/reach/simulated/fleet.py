"""The kind of fleet that consists of simulated clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ternhost.learn.base import MOST_SIMULATED
from ternhost.reach.fleet import Fleet, RunContext

if TYPE_CHECKING:
    from ternhost.reach.driver import Driver


class Simulated(Fleet):
    """The fleet `simulated:N`: N clients that are simulated with NumPy."""

    form = "simulated:N"
    about = "N clients simulated in NumPy"
    simulated = True
    knows_records = True

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count = self.number("clients", MOST_SIMULATED)

    @property
    def clients(self) -> int:
        return self.count

    def driver(self, context: RunContext) -> Driver:
        """Make the driver that simulates the clients.

        context: what the driver needs to know of the run, with the records of the clients.
        """
        from ternhost.reach.simulated.driver import SimulatedDriver, SimulatedRounds

        clients = context.clients
        assert clients.holdings is not None
        return SimulatedDriver(
            clients.holdings,
            clients.count or self.count,
            clients.seed,
            individual=context.individual,
            first=clients.first,
            keeper=SimulatedRounds(context.store),
        )
