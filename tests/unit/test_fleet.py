"""Names of fleets, the files of provisioned boards, and rounds of a fleet within this process."""

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:DIRECTORY

from tern import card as cards
from tern import ledger, storage, wire
from ternhost.count.questions import Question
from ternhost.errors import DeviceError, StorageError, UsageError
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import new_keys, provision_board, provision_fleet
from ternhost.reach import fleet
from ternhost.reach.broker.fleet import OnBroker
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.fleet import OnPorts, Ports
from ternhost.reach.simulated.fleet import Simulated
from ternhost.store.store import Store
from terntools.emulators import fleets

CARD = design("duchi", 1).card
COST = cards.decode(CARD).epsilon
POLICY = Policy(COST, 2 * COST)


def rows(n, d=4):
    return np.random.default_rng(1).integers(-16384, 16385, (n, d + 1), dtype=np.int16)


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        ("pico-emulated:2", fleets.Pico, 2),
        ("simulated:1000000", Simulated, 1_000_000),
        ("port:/dev/null, socket://host:1", OnPorts, 2),
        ("mqtt:my-broker", OnBroker, 0),
    ],
)
def test_a_name_has_its_kind_of_fleet(text, kind, count):
    named = fleet.parse(text)
    assert type(named) is kind
    assert (named.count, named.text) == (count, text)
    assert named.may_move == (kind in (OnPorts, OnBroker))


@pytest.mark.parametrize(
    "text",
    [
        "8",
        "pico:3",  # no such kind
        "emulated:0",
        "emulated:٣",
        "emulated:1001",  # up to 1,000
        "port:a,,b",
        "port:a,a",
        "mqtt:",
    ],
)
def test_an_invalid_name_is_refused_with_a_hint(text):
    with pytest.raises(UsageError) as caught:
        fleet.parse(text)
    assert caught.value.hint


# Provisioning


@pytest.fixture
def board(tmp_path):
    """A board with 10 records and the devices 5, 6 and 7, whose keys repeat their id."""
    provision_board(tmp_path, 5, [bytes([i]) * 32 for i in (5, 6, 7)], rows(10), POLICY)
    return f"{tmp_path}/"


def test_a_device_reads_its_provisioned_key_policy_and_ledger(board):
    """The fixture's board has the devices 5, 6 and 7. The device library finds for each what the
    host wrote: its key, the largest cost of a report and the budget for life (its policy), and a
    ledger from which nothing was spent.
    """
    clients = storage.Clients(board + storage.CLIENTS)
    assert (clients.first, clients.count) == (5, 3)
    for device in (5, 6, 7):
        assert clients.find(device)
        assert clients.key == bytes([device]) * 32
        assert (clients.largest, clients.budget) == (COST, 2 * COST)
        account = ledger.Ledger()
        account.load(board + storage.ledger_name(device))
        assert (account.budget, account.spent, account.round) == (2 * COST, 0, 0)


def test_the_devices_of_a_board_share_its_records(board):
    """The fixture's board has ten records, which its devices 5, 6 and 7 divide among them: each
    record belongs to one device, and reads as the host wrote it.
    """
    clients = storage.Clients(board + storage.CLIENTS)
    records = storage.Records(board + storage.RECORDS)

    indices = []
    for device in (5, 6, 7):
        clients.find(device)
        indices += range(clients.start, clients.start + clients.records)
    assert indices == list(range(records.count)) == list(range(10))

    row = np.zeros(5, np.int16)  # four features and a label
    for i, record in enumerate(rows(10)):
        records.read(i, row)
        np.testing.assert_array_equal(row, record)


def test_a_provisioned_board_is_not_overwritten(tmp_path):
    provision_board(tmp_path / "board", 1, [bytes(32)], rows(1), POLICY)
    path = tmp_path / "board" / storage.ledger_name(1)
    before = path.read_bytes()
    with pytest.raises(StorageError, match="holds a board already"):
        provision_board(tmp_path / "board", 1, [bytes(32)], rows(1), Policy(COST, 9 * COST))
    assert path.read_bytes() == before


# A fleet in this process


@pytest.fixture
def site(tmp_path):
    """(store, ports): two boards of this process with 15 devices each, and the store with their
    keys.
    """
    directories = [tmp_path / "a", tmp_path / "b"]
    with Store(tmp_path / "store.sqlite") as store:
        provision_fleet(store, directories, rows(30), POLICY)
        yield store, [f"inprocess:{directory}" for directory in directories]


def test_provisioning_an_emulated_fleet_replaces_keys_of_emulated_devices_only(site, tmp_path):
    """Provisioning gives new devices keys in place of the store's. It is refused, and changes
    nothing, if a directory holds a board already, or if the store has the key of a device that is
    not emulated: real boards would be locked out.
    """
    store, _ = site
    before = store.keys()

    with pytest.raises(StorageError, match="holds a board already"):
        provision_fleet(store, [tmp_path / "a", tmp_path / "b"], rows(30), POLICY)
    assert store.keys() == before

    provision_fleet(store, [tmp_path / "c"], rows(20), POLICY)
    store.add_devices(new_keys([31]))  # of a real board
    before = store.keys()
    with pytest.raises(UsageError, match="not emulated"):
        provision_fleet(store, [tmp_path / "d"], rows(20), POLICY)
    assert store.keys() == before
    assert not (tmp_path / "d").exists()


QUESTION = Question(wire.SVM, [0] * 4, -12, CARD, 1)


def driver(store, ports, warn=print):
    return BoardsDriver(store, Ports(ports), Terms(), warn=warn)


def test_a_round_does_not_wait_for_devices_that_are_on_no_board(site):
    """The store has keys of 30 devices, but the fleet has only the board with the first 15. A round
    that asks all of them ends with 15 reports, at once, and says whom it has not reached.
    """
    store, (first_port, _) = site
    warnings = []

    with driver(store, [first_port], warnings.append) as boards:
        boards.open(1, [(QUESTION, range(1, 31))])
        result = boards.collect(1)

    assert (result.reports, result.asked) == (15, 30)
    assert warnings == ["round 1: on no board of this fleet: 15 devices"]


def test_a_board_without_clients_or_with_a_client_of_another_is_refused(site, tmp_path):
    store, ports = site
    (tmp_path / "empty").mkdir()
    empty = f"inprocess:{tmp_path / 'empty'}"
    for second, message in ((ports[0], "device 1 is on"), (empty, "has no clients")):
        with pytest.raises(DeviceError, match=message), driver(store, [ports[0], second]):
            pass
