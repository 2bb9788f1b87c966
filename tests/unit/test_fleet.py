"""Names of fleets, the files of boards, and a fleet without processes."""

import stat
import time

import numpy as np
import pytest

from tern import card as cards
from tern import ledger, storage, wire
from ternhost import fleet
from ternhost.aggregate.aggregator import Aggregator, Question
from ternhost.aggregate.store import Store
from ternhost.drivers.boards import Collector
from ternhost.errors import DeviceError, StorageError, UsageError
from ternhost.fleet.board import PortFleet
from ternhost.fleet.provision import new_keys, provision_board
from ternhost.mechanisms import design
from ternhost.mechanisms.accounting import Policy
from ternhost.runs.session import coordinates_by_rule, provision_fleet
from terntools.emulators import machines as emulators

CARD = design("duchi", 1).card
COST = cards.decode(CARD).epsilon
POLICY = Policy(COST, 2 * COST)


def rows(n, d=4):
    return np.random.default_rng(1).integers(-16384, 16385, (n, d + 1), dtype=np.int16)


@pytest.mark.parametrize(
    ("text", "kind", "count", "ports"),
    [
        ("emulated:8", "emulated", 8, ()),
        ("port:/dev/ttyACM0", "port", 1, ("/dev/ttyACM0",)),
        ("port:/dev/pts/3, socket://host:1", "port", 2, ("/dev/pts/3", "socket://host:1")),
    ],
)
def test_names_of_fleets(text, kind, count, ports):
    assert fleet.parse(text) == fleet.FleetSpec(kind, count, ports)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "emulated",
        "emulated:",
        "emulated:0",
        "emulated:-1",
        "emulated:٣",
        "emulated:1001",
        "emulated:8x",
        "port:",
        "port",
        "port:a,,b",
        "port:a,a",
        "pico:3",
        "8",
    ],
)
def test_names_of_no_fleet(text):
    with pytest.raises(UsageError) as caught:
        fleet.parse(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("epsilon", "wide", "paper"),
    [
        (100_000, 1, 1),
        (2_000_000, 1, 1),
        (3_499_999, 1, 1),
        (3_500_000, 2, 1),
        (5_000_000, 2, 2),
        (20_000_000, 4, 4),
    ],
)
def test_k_by_rule(epsilon, wide, paper):
    assert coordinates_by_rule("wide", epsilon, 4) == wide
    assert coordinates_by_rule("paper", epsilon, 4) == paper
    assert wide == max(1, min(4, int(epsilon / 2.5e6 + 0.6)))


# Provisioning


def test_the_device_reads_what_was_provisioned(tmp_path):
    records = rows(10)
    keys = [bytes([i]) * 32 for i in (5, 6, 7)]
    provision_board(tmp_path / "board", 5, keys, records, POLICY)
    clients = storage.Clients(str(tmp_path / "board" / storage.CLIENTS))
    data = storage.Records(str(tmp_path / "board" / storage.RECORDS))
    assert (clients.first, clients.count, data.d, data.count) == (5, 3, 4, 10)
    owned = []
    for device, key in zip((5, 6, 7), keys, strict=True):
        assert clients.find(device)
        assert (clients.key, clients.largest, clients.budget) == (key, COST, 2 * COST)
        owned += range(clients.start, clients.start + clients.records)
        account = ledger.Ledger()
        account.load(str(tmp_path / "board" / storage.ledger_name(device)))
        assert (account.budget, account.spent, account.round, account.state) == (2 * COST, 0, 0, ledger.IDLE)
    assert owned == list(range(10))
    row = np.zeros(5, np.int16)
    for i in range(10):
        data.read(i, row)
        np.testing.assert_array_equal(row, records[i])


def test_keys_are_for_the_owner_alone(tmp_path):
    provision_board(tmp_path / "board", 1, [bytes(32)], rows(1), POLICY)
    assert stat.S_IMODE((tmp_path / "board" / storage.CLIENTS).stat().st_mode) == 0o600


def test_new_keys_differ():
    keys = new_keys(range(1, 1001))
    assert len(set(keys.values())) == 1000
    assert {len(key) for key in keys.values()} == {wire.KEY_BYTES}


def test_a_board_is_not_provisioned_over(tmp_path):
    provision_board(tmp_path / "board", 1, [bytes(32)], rows(1), POLICY)
    before = (tmp_path / "board" / storage.ledger_name(1)).read_bytes()
    with pytest.raises(StorageError, match="holds a board already"):
        provision_board(tmp_path / "board", 1, [bytes(32)], rows(1), Policy(COST, 9 * COST))
    assert (tmp_path / "board" / storage.ledger_name(1)).read_bytes() == before


@pytest.mark.parametrize(("first", "keys", "records"), [(0, 1, 1), (1, 2, 1), (2**32 - 1, 1, 1)])
def test_clients_that_cannot_be(tmp_path, first, keys, records):
    with pytest.raises(UsageError):
        provision_board(tmp_path / "board", first, [bytes(32)] * keys, rows(records), POLICY)


@pytest.mark.parametrize(("largest", "budget"), [(0, 1), (1, 0), (1, 1_000_000_001)])
def test_policies_that_cannot_be(largest, budget):
    with pytest.raises(UsageError):
        Policy(largest, budget)


# A fleet in this process


@pytest.fixture
def site(tmp_path):
    directories = [tmp_path / "a", tmp_path / "b"]
    with Store(tmp_path / "store.sqlite") as store:
        provision_fleet(store, directories, rows(30), POLICY)
        yield store, [f"inprocess:{directory}" for directory in directories]


def test_an_emulated_fleet_takes_no_keys_away(site, tmp_path):
    store, _ = site
    before = store.keys()
    with pytest.raises(StorageError, match="holds a board already"):
        provision_fleet(store, [tmp_path / "a", tmp_path / "b"], rows(30), POLICY)
    assert store.keys() == before
    provision_fleet(store, [tmp_path / "c"], rows(20), POLICY)  # of emulated devices it may
    store.add_devices(new_keys([31]))
    before = store.keys()
    with pytest.raises(UsageError, match="not emulated"):
        provision_fleet(store, [tmp_path / "d"], rows(20), POLICY)
    assert store.keys() == before
    assert not (tmp_path / "d").exists()


def test_a_round_without_processes(site):
    store, ports = site
    aggregator = Aggregator(store)
    with Collector(aggregator, PortFleet(ports)) as collector:
        assert collector.devices == list(range(1, 31))
        for number in (1, 2):
            question = Question(wire.SVM, [0] * 4, -12, CARD, 1)
            aggregator.open(number, [(question, collector.devices)], time.monotonic())
            result = collector.collect(number)
            assert (result.reports, result.cohorts[0].counts.sum()) == (30, 30)
            store.end_round(number, result.ended, {})


def test_devices_that_are_on_no_board_are_given_up(site):
    store, ports = site
    warnings = []
    aggregator = Aggregator(store)
    with Collector(aggregator, PortFleet(ports[:1]), warnings.append) as collector:
        question = Question(wire.SVM, [0] * 4, -12, CARD, 1)
        aggregator.open(1, [(question, range(1, 31))], time.monotonic())
        result = collector.collect(1)
    assert (result.reports, result.asked) == (15, 30)
    assert warnings == ["round 1: 15 devices are on no board of this fleet"]


def test_one_device_on_two_boards(site):
    store, ports = site
    with (
        pytest.raises(DeviceError, match="device 1 is on"),
        Collector(Aggregator(store), PortFleet([ports[0]] * 2)),
    ):
        pass


def test_a_board_without_clients(site, tmp_path):
    store, ports = site
    (tmp_path / "empty").mkdir()
    fleet_of_two = PortFleet([ports[0], f"inprocess:{tmp_path / 'empty'}"])
    with pytest.raises(DeviceError, match="has no clients"), Collector(Aggregator(store), fleet_of_two):
        pass


def test_fleets_of_firmware_are_called_as_their_boards_in_a_hardware_map():
    boards = [name for name in emulators.NAMES if name != "rv32-newest"]  # a target of tests alone
    assert {emulators.platform_of(name): name for name in boards} == fleet.FIRMWARE
