"""The fleet of simulated clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ternhost.reach.fleet import Fleet, Setting

if TYPE_CHECKING:
    from ternhost.reach.driver import Driver


class Simulated(Fleet):
    """Clients in NumPy."""

    form = "simulated:N"
    about = "N clients in NumPy"
    simulated = True
    knows_records = True
    MOST: ClassVar[int] = 1_000_000_000

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.count = self.number("clients", self.MOST)

    @property
    def clients(self) -> int:
        return self.count

    def driver(self, setting: Setting) -> Driver:
        from ternhost.reach.simulated.driver import SimulatedDriver

        assert setting.holdings is not None
        return SimulatedDriver(
            setting.holdings,
            setting.clients or self.count,
            setting.seed,
            individual=setting.individual,
            first=setting.first,
        )
