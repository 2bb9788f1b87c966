"""The fleet of a gateway: its options, which gateway.json keeps, and how it is opened."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from tern import ledger
from terngateway.bound import Bound
from terngateway.fleet import AtGateways
from terngateway.site import Gateway, GatewaySettings
from ternhost import datasets
from ternhost.datasets import Dataset, Holdings, Selection, Table
from ternhost.datasets.holdings import MOST_RECORDS, of_owners
from ternhost.errors import StorageError, UsageError
from ternhost.files import read_object, storage_errors, write_file
from ternhost.learn.schedule import Terms
from ternhost.options import names_of, option, require
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import parse_epsilon
from ternhost.provision.boards import (
    FLEET_NAME,
    BoardSettings,
    board_directories,
    new_keys,
    provision_board,
)
from ternhost.provision.keys import parse_range
from ternhost.reach import fleet
from ternhost.reach.driver import Warn
from ternhost.reach.fleet import Fleet, RunContext, SimulatedClients
from ternhost.store import store_file
from ternhost.store.restored import last_restore
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.text import counted

FILE = "gateway.json"
_RUNS = "runs"  # the member with these options; others belong to the connection to the server
_CLIENTS = 1000  # the default number on emulated boards
# Declare an option of one of two groups, for the help of the command.
_what = partial(option, group="what the gateway runs")
_made = partial(option, group="clients that tern makes: simulated, or on emulated boards")
_NEW = "new"  # directory of boards whose keys are in no store yet
_NAME = "gateway"  # stands for the name of a run in a gateway's store
# Modules of the device library for emulated boards: all that a host may ask for.
_MODULES = ("inference", "local", "collect", "lhp", "softmax", "sums", "projection")


@dataclass(frozen=True)
class SiteFleet:
    """The options of a gateway, which gateway.json keeps from one start to the next.

    The devices are real boards, boards that tern emulates, or clients that it simulates. tern makes
    the latter two at the first start. A client is one device with its records.
    """

    fleet: str = _what("", metavar="KIND:...", shown="")
    store: str | None = _what(None, metavar="FILE", shown="the fleet's own, or one beside it")
    single_results: bool = _what(
        False,
        "send results of single devices, without ids, if vectors are asked for",
    )
    silence: float = _what(Terms.silence, metavar="SECONDS")
    data: str = _made("flights", metavar="D")
    by: str = _made("", metavar="COLUMN", shown="the schema's, or none")
    time: str = _made("", metavar="COLUMN", shown="the schema's, or none")
    held_out: float | None = _made(None, metavar="SHARE", shown="the schema's, or 0.1")
    records: int | None = _made(None, metavar="N", shown="1, or with --by all that a device has")
    ids: str | None = _made(
        None, metavar="FIRST-LAST", shown="from 1: 1000, or as many as are simulated"
    )
    seed: int = _made(1, metavar="S")
    budget: str = _made("2", metavar="E")

    def __post_init__(self) -> None:
        """Raise UsageError unless each option is in its range and they go together."""
        if not self.fleet:
            hint = f"a fleet is {fleet.forms()}"
            raise UsageError("--fleet must name the gateway's devices", hint=hint)
        kind = fleet.parse(self.fleet)
        if isinstance(kind, AtGateways):
            text = "a gateway asks its own devices, and no other gateways"
            raise UsageError(text, hint="such as port:a0")

        self._check_ids(kind)
        if self.records is not None:
            in_order = 1 <= self.records <= MOST_RECORDS
            require(in_order, "records", f"1 to {MOST_RECORDS}", self.records)
        if self.held_out is not None:
            require(0 < self.held_out < 1, "held_out", "above 0 and below 1", self.held_out)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        is_a_day_or_less = 0 < self.silence <= 86_400
        require(is_a_day_or_less, "silence", "above 0 and at most 86400 seconds", self.silence)
        _ = self.policy  # raises UsageError for a wrong budget

    @property
    def policy(self) -> Policy:
        """The privacy budget of each client on emulated boards. Raises UsageError."""
        budget = parse_epsilon(self.budget, ledger.MAX_BUDGET, "--budget")
        return Policy(budget, budget)

    def _check_ids(self, kind: Fleet) -> None:
        """Raise UsageError for ids that are none, or that are not as many as the simulated clients.

        kind: the fleet that the option `fleet` names.
        """
        if self.ids is None:
            return
        count = len(parse_range(self.ids))  # raises
        if kind.simulated:
            must = f"{kind.clients} ids, one for each client of {self.fleet}"
            require(count == kind.clients, "ids", must, f"{count} ({self.ids})")

    def client_ids(self, kind: Fleet) -> range | None:
        """Return the ids of the clients that tern makes; None if the devices are real.

        kind: the fleet that the option `fleet` names.
        """
        if not kind.simulated and not kind.provisions:
            return None
        if self.ids is not None:
            return parse_range(self.ids)
        if kind.simulated and kind.clients is not None:
            return range(1, kind.clients + 1)
        owned = self._owned
        if owned is not None:
            return range(1, owned.clients + 1)
        return range(1, _CLIENTS + 1)

    def holdings(self) -> Holdings:
        """Return the records of the clients of all sites with this data set.

        The client with the id K holds those of the K-th owner. Without owners, they are in a random
        order that follows from the seed, so that every site assigns them alike. Raises UsageError
        if the data set has fewer records than one client is to hold.
        """
        owned = self._owned
        if owned is not None:
            return owned
        data = self._held
        rows = data.records(data.training)
        records = self.records or 1
        require(records <= len(rows), "records", f"at most the data set's {len(rows)}", records)
        order = np.random.default_rng(self.seed).permutation(len(rows))
        return Holdings(rows, order, records)

    @property
    def _held(self) -> Dataset | Table:
        """What the clients hold."""
        return datasets.held(self.data, Selection(self.by, self.time, self.held_out))

    @property
    def _owned(self) -> Holdings | None:
        """The records of each owner; None if the data do not say which device holds which."""
        data = self._held
        if data.owners is None:
            return None
        return of_owners(data, data.training, self.records)

    # In gateway.json

    @classmethod
    def of(cls, directory: Path, named: Mapping[str, Any]) -> Self:
        """Return the options of a gateway: the stored ones, replaced by those that are named now.

        directory: that of the gateway. named: options of the command, by name. Raises UsageError if
        one of them changes an option that was settled at the first start.
        """
        saved = _read(directory).get(_RUNS)
        if saved is None:
            return cls(**named)._with_absolute_paths()

        known_names = names_of(cls)
        stored = {name: value for name, value in saved.items() if name in known_names}
        options = cls(**{**stored, **named})._with_absolute_paths()
        for name in named.keys() & _SETTLED:
            new_value = getattr(options, name)
            old_value = stored.get(name)
            if new_value == old_value:
                continue
            flag = f"--{name.replace('_', '-')}"
            if old_value is None:
                begun = f"without {flag}"
            else:
                begun = f"with {flag} {old_value}"
            hint = "its devices and their answers stay; for others write another directory"
            raise UsageError(f"{directory} was begun {begun}, not with {new_value}", hint)
        return options

    def _with_absolute_paths(self) -> Self:
        """Return these options with paths that are valid in any working directory."""
        store = self.store
        if store:
            store = os.path.abspath(Path(store).expanduser())
        absolute_fleet = fleet.parse(self.fleet).absolute_name
        data = self.data
        if datasets.is_own(data):
            data = os.path.abspath(Path(data).expanduser())
        return replace(self, fleet=absolute_fleet, store=store, data=data)

    def save(self, directory: Path) -> None:
        """Write the options into the gateway.json of a directory; its other members stay.

        Raises StorageError.
        """
        members_before = _read(directory)
        members = {**members_before, _RUNS: asdict(self)}
        if members == members_before:
            return
        with storage_errors():
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_file(directory / FILE, json.dumps(members, indent=1).encode() + b"\n")


# Options that the first start settles, since the devices and their records follow from them.
_SETTLED = {"data", "by", "time", "held_out", "ids", "records", "seed", "store"}


def _read(directory: Path) -> dict[str, Any]:
    """Return the members of gateway.json; none if there is no such file."""
    path = directory / FILE
    if not path.exists():
        return {}
    return read_object(path)


@contextmanager
def opened(
    directory: str | Path, runs: SiteFleet, warn: Warn = lambda message: None
) -> Iterator[Gateway]:
    """Open the gateway of a directory with its store, and close the store at the end.

    Makes emulated boards and simulated clients at the first start. runs: the options, which are
    saved once they have proved to work. warn: is called with the text of each warning. Raises
    TernError.
    """
    directory = Path(directory)
    bound = Bound.of_site(directory)
    kind = fleet.parse(runs.fleet)
    is_made = kind.provisions or kind.simulated
    named_store = Path(runs.store) if runs.store else kind.default_store
    if named_store is None and not is_made:
        raise UsageError("--store must name the store with the devices' keys")
    store_path = named_store or directory / store_file.NAME
    with storage_errors():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    with Store(store_path, create=is_made) as store:
        if last_restore(store) is not None:
            warn(
                "the store of this gateway was restored from a copy, which lacks what its counts "
                "have disclosed since. The host's record keeps the limit toward the server, unless "
                "the host was restored, too"
            )
        if kind.provisions:
            _provision(directory, kind, runs, store, warn)
        driver = kind.driver(_context(directory, kind, runs, store, warn))
        runs.save(directory)  # not before: wrong options can still be corrected
        settings = GatewaySettings(
            fleet=kind.word,
            single_results=runs.single_results,
            silence=runs.silence,
            bound=bound,
        )
        yield Gateway(store, driver, settings, warn)


def _context(directory: Path, kind: Fleet, runs: SiteFleet, store: Store, warn: Warn) -> RunContext:
    """Return what a fleet needs to make the driver of a gateway's devices.

    The gateway takes the place of a run: it asks devices until it is stopped, in rounds that a host
    chooses, so its fleet is a served one (`standing`).
    """
    return RunContext(
        store=store,
        directory=directory,
        run=_NAME,
        terms=Terms(silence=runs.silence),
        warn=warn,
        clients=_simulated_clients(kind, runs, warn),
        modules=_MODULES,
        standing=True,
    )


def _simulated_clients(kind: Fleet, runs: SiteFleet, warn: Warn) -> SimulatedClients:
    """Return the simulated clients of a site; without records if its devices are not simulated."""
    holdings = None
    if kind.simulated:
        holdings = _holdings(kind, runs, warn)
    # The first id is part of the seed: clients of two gateways must not draw the same noise. It is
    # above the lowest 32 bits, where small seeds are.
    ids = runs.client_ids(kind) or range(1, 1)  # none: the devices are real
    seed = runs.seed + (ids.start << 32)
    return SimulatedClients(holdings, len(ids) or None, seed, ids.start)


def _holdings(kind: Fleet, runs: SiteFleet, warn: Warn) -> Holdings:
    """Return the records of all clients with this data set, at this site and others.

    Warns if the data set has too few records for the clients of this site. Raises UsageError if a
    client is no device that the data name.
    """
    holdings = runs.holdings()
    ids = runs.client_ids(kind)
    if ids is not None and ids[-1] > holdings.clients:
        if holdings.names:
            owners = counted(holdings.clients, "device")
            text = f"{runs.data} has records of {owners}, and the last client would be {ids[-1]:,}"
            raise UsageError(text, f"use ids up to {holdings.clients}: --ids, or a smaller fleet")
        first_repeated = max(ids.start, holdings.clients + 1)
        warn(
            f"--data {runs.data} has records for {holdings.clients:,} clients: those with ids "
            f"from {first_repeated:,} to {ids[-1]:,} hold again what the ids from 1 on do"
        )
    return holdings


def _provision(directory: Path, kind: Fleet, runs: SiteFleet, store: Store, warn: Warn) -> None:
    """Make the emulated boards at the first start, or complete what an interrupted start began.

    The boards are written below the directory `new`, then the store gets their keys, and then they
    are moved to their place. So each board that may run has its keys in the store. Raises
    StorageError, and UsageError for a wrong number of boards.
    """
    ids = runs.client_ids(kind)
    assert ids is not None
    fleet_directory = directory / FLEET_NAME
    new_fleet_directory = directory / _NEW / FLEET_NAME
    known_devices = store.keys()
    was_provisioned = ids.start in known_devices
    if was_provisioned:
        if new_fleet_directory.exists():  # the start was interrupted before the last step
            new_fleet_directory.rename(fleet_directory)
        return
    if fleet_directory.exists():
        text = f"{store.path} has no keys of the boards in {fleet_directory}"
        raise StorageError(text, "put that store back; if it is lost, write another directory")
    if kind.count > len(ids):
        text = f"{kind.count} boards for {len(ids)} clients leave some boards without a client"
        raise UsageError(text, "use fewer boards")

    holdings = _holdings(kind, runs, warn)
    runs.save(directory)  # before its devices exist
    # An interrupted start may have left boards, none of which ever ran.
    shutil.rmtree(directory / _NEW, ignore_errors=True)
    keys = new_keys(ids)
    boards = board_directories(directory / _NEW, kind.count)
    _write_boards(boards, keys, holdings, runs.policy, last_round=last_number(store))
    store.add_devices(keys)  # now that the boards are written
    new_fleet_directory.rename(fleet_directory)


def _write_boards(
    boards: Sequence[Path],
    keys: Mapping[int, bytes],
    holdings: Holdings,
    policy: Policy,
    last_round: int,
) -> None:
    """Write the boards' directories, among which the clients are divided as equally as possible.

    keys: those of the clients, by their ids, in ascending order. holdings: the records of all
    clients; the one with the id K holds part K - 1. policy: the privacy budget of each client.
    last_round: the last round number that the store has used, which the boards must not answer
    again.
    """
    ids = list(keys)
    # Where the clients of each board begin, and at last where those of the last board end.
    limits = [len(ids) * board // len(boards) for board in range(len(boards) + 1)]
    for board, (start, end) in zip(boards, pairwise(limits), strict=True):
        clients = np.array(ids[start:end]) - 1
        settings = BoardSettings(last_round=last_round, counts=holdings.counts(clients).tolist())
        provision_board(
            board,
            first=ids[start],
            keys=[keys[device] for device in ids[start:end]],
            rows=holdings.records[holdings.all_positions(clients)],
            policy=policy,
            settings=settings,
        )
