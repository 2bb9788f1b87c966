"""The kind of fleet whose boards are connected to an MQTT broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ternhost.errors import UsageError
from ternhost.reach.broker import copies, sites
from ternhost.reach.broker.access import HOST, Access, host_file
from ternhost.reach.fleet import Fleet, RunContext

if TYPE_CHECKING:
    from ternhost.reach.driver import Driver


class OnBroker(Fleet):
    """The fleet `mqtt:DIR`: boards on the broker that 'tern broker config' has set up in DIR."""

    form = "mqtt:DIR"
    about = "boards on the broker in DIR ('tern broker config')"
    may_move = True
    count = 0  # not known before they connect
    way = (
        "Frames travel through an MQTT broker, which sees all of them. With TLS, which is the default, "
        "nobody else on the way can read them; without it (--no-tls), everybody there can."
    )

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if not self.rest:
            raise UsageError(f"fleet {text!r} names no directory", hint="such as mqtt:my-broker")

    @property
    def absolute_name(self) -> str:
        return f"{self.word}:{Path(self.rest).expanduser().absolute()}"

    @property
    def broker_directory(self) -> Path:
        return self._host_file.parent

    @property
    def _host_file(self) -> Path:
        return host_file(Path(self.rest).expanduser())

    @property
    def _access(self) -> Access:
        """How the host reaches the broker. Raises UsageError and StorageError."""
        directory = self.broker_directory
        if sites.is_site(directory):
            hint = "name the directory of the central broker, which 'tern broker config' made"
            raise UsageError(f"{directory} is a site: its broker lets no host in", hint)
        return Access.load(self._host_file)

    @property
    def default_store(self) -> Path | None:
        store = self._access.store
        if store is None:
            return None
        return Path(store)

    def moved_with(self, store: Path) -> str | None:
        """Return the name of the fleet whose broker is in the directory of this store.

        Return None if the store is that of this fleet's directory, or if no broker is beside it. So
        a run goes on with the broker of its own directory, and never with that of an original from
        which the directory was copied.
        """
        beside = store.parent
        if _uses(self.broker_directory, store) or not _uses(beside, store):
            return None
        return f"{self.word}:{beside}"

    def driver(self, context: RunContext) -> Driver:
        """Make the driver that reaches the fleet through its broker. Raises TernError."""
        from ternhost.reach.broker.driver import BrokerDriver
        from ternhost.reach.broker.link import MqttLink

        directory = self.broker_directory
        own_fleet = self.moved_with(context.store.path)
        if own_fleet is not None:
            raise UsageError(
                f"the store {context.store.path} belongs to another broker, not to the one of {directory}",
                hint=f"give --fleet {own_fleet}, or the store of this broker",
            )

        def load_site_ids() -> sites.Ids:
            """Load which devices belong to each site; it is called again when a site changes."""
            return sites.ids(directory)

        access = self._access
        copies.check_original(directory, access)
        link = MqttLink(access, site_ids=load_site_ids)
        return BrokerDriver(
            context.store,
            link,
            context.terms,
            patience=context.patience,
            directory=directory,
            **context.driver_options,
        )


def _uses(directory: Path, store: Path) -> bool:
    """Return whether the broker of a directory names this file as its store."""
    if not (directory / HOST).exists():
        return False
    named = Access.load(directory / HOST).store
    return named is not None and Path(named).exists() and store.samefile(named)
