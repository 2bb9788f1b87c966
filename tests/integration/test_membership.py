"""A board becomes a member of a fleet, and its budget is for life: on emulated boards."""

import dataclasses
import re

import pytest
import sample_store

from tern import ledger, storage
from ternhost.errors import RefusedError, UsageError
from ternhost.provision.keys import fleet_key
from ternhost.store import restored
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store
from terntools.boards import counter, file_changes, installing, provision, starting, update_package
from terntools.boards.member import FleetSettings, Member, dataset_records
from terntools.boards.policy import policy
from terntools.boards.repl import Repl
from terntools.emulators import catalogue

CLIENTS, FLEET, LEDGER = (
    "/" + name for name in (storage.CLIENTS, storage.FLEET, storage.ledger_name(7))
)


def member(device=7, largest="2", budget="100", settings=None, **fields):
    """A member with one record. settings: fields of its FleetSettings."""
    rows = dataset_records("iris", device, 1)
    fields["settings"] = FleetSettings(**(settings or {}))
    return Member(device, rows, policy(largest, budget), **fields)


def join(repl, wanted, store):
    """Make the board this member."""
    provision.apply(repl, provision.plan(repl, wanted, store), wanted, store)


def account_of(repl, folder):
    """The account in the board's ledger."""
    copy = folder / "ledger"
    copy.write_bytes(repl.files.read(LEDGER))
    account = ledger.Ledger()
    account.load(str(copy))
    return account


def spent_ledger(folder, budget):
    """A ledger whose whole budget (micro-epsilon) is spent."""
    path = folder / "spent"
    ledger.create(str(path), budget)
    account = ledger.Ledger()
    account.load(str(path))
    account.pay(1, bytes(32), budget, bytes(18))
    return path.read_bytes()


@pytest.fixture(scope="module")
def port():
    """The port of a board that starts quickly."""
    with catalogue.boot("rv32") as machine:
        yield machine.url


@pytest.fixture
def board(port):
    """The prompt of this board, without files."""
    with Repl(port) as repl:
        erase(repl)
        yield repl


def erase(repl):
    for path in repl.files.sizes("/"):
        repl.files.remove(path)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def test_a_board_stays_the_same_device(board, store):
    join(board, member(7), store)
    with pytest.raises(RefusedError, match="device 7 already"):
        provision.plan(board, member(8), store)


def test_a_ledger_is_never_overwritten(board, store, tmp_path):
    """The ledger on a board says how much of its privacy budget is spent. Provisioning the board
    again with other terms changes its client file and nothing else: otherwise a spent budget would
    be fresh again.
    """
    join(board, member(), store)
    spent = spent_ledger(tmp_path, budget=100_000_000)  # micro-epsilon
    board.files.write(LEDGER, spent)

    changes = provision.plan(board, member(shapes=("table",)), store)
    file_changes.apply(board, changes)

    assert list(changes.write) == [CLIENTS]
    assert board.files.read(LEDGER) == spent


@pytest.mark.parametrize(
    "wanted",
    [{}, {"shapes": ("table",)}, {"budget": "99"}],
    ids=["the same", "of another shape", "of less"],
)
def test_a_lost_ledger_is_not_replaced(board, store, wanted):
    """The ledger on a board says how much of its privacy budget is spent. Once it is lost, nobody
    knows: a new one, on whatever terms, would give the whole budget again.
    """
    join(board, member(), store)
    board.files.remove(LEDGER)
    with pytest.raises(RefusedError, match="lost its ledger"):
        provision.plan(board, member(**wanted), store)


def test_a_lost_ledger_is_not_replaced_by_another_store(board, store, tmp_path):
    """Nor does a fresh store, which has never heard of the board, give it a new ledger."""
    join(board, member(), store)
    board.files.remove(LEDGER)
    with Store(tmp_path / "fresh.sqlite") as fresh:
        with pytest.raises(RefusedError, match="lost its ledger"):
            provision.plan(board, member(), fresh)
        assert not fresh.keys(), "no other key is made"


@pytest.mark.parametrize("damage", [b"", b"what it has released" * 4], ids=["empty", "garbage"])
def test_a_damaged_ledger_counts_as_lost(board, store, damage):
    """A file that is not a ledger tells as little of what is spent as none."""
    join(board, member(), store)
    board.files.write(LEDGER, damage)
    with pytest.raises(RefusedError, match=r"bad ledger .* nobody knows"):
        provision.plan(board, member(), store)


def test_a_budget_for_life_is_not_raised(board, store):
    """The people whose data a device holds were promised its first budget."""
    join(board, member(budget="12.345678"), store)
    with pytest.raises(UsageError) as caught:
        provision.plan(board, member(budget="20"), store)
    assert "--budget 12.345678 or less" in caught.value.hint


def test_a_budget_in_rho_is_not_raised_and_the_named_one_is_accepted(board, store):
    """A ledger counts rho, but the user names a budget as (epsilon, delta)."""
    join(board, of_records(), store)
    larger = dataclasses.replace(of_records(), policy=policy(None, "5", "1e-6"))
    with pytest.raises(UsageError) as caught:
        provision.plan(board, larger, store)
    named = re.search(r"--budget (\S+) --delta (\S+) or less", caught.value.hint)
    accepted = dataclasses.replace(of_records(), policy=policy(None, named[1], named[2]))
    provision.plan(board, accepted, store)


def test_a_budget_is_lowered_and_raised_below_that_of_the_ledger(board, store):
    """A lower budget stands in the client file alone; the ledger keeps the first one, up to which
    it may be raised again.
    """
    join(board, member(budget="12.345678"), store)
    join(board, member(budget="5"), store)
    assert list(provision.plan(board, member(budget="12.345678"), store).write) == [CLIENTS]


def of_records(unit=60, **fields):
    """A member that protects a run of records, with a budget in rho."""
    rho = policy(None, "4", "1e-6")
    return dataclasses.replace(member(settings={"unit": unit}, **fields), policy=rho)


@pytest.mark.parametrize("unit", [0, 1], ids=["device", "record"])
def test_a_unit_stays_for_life(board, store, unit):
    """A device protects a unit of data: here runs of 60 consecutive records. It cannot be changed
    to its single records, or to all of them, since what it has spent was counted for the first one.
    """
    join(board, of_records(unit=60), store)
    with pytest.raises(UsageError, match="device 7 protects one run of 60 consecutive records"):
        provision.plan(board, of_records(unit=unit), store)


def test_a_measure_stays_for_life(board, store):
    """A ledger counts either epsilon or rho (of zCDP), and their sums cannot be converted."""
    join(board, of_records(), store)
    with pytest.raises(UsageError, match="the ledger of device 7 counts rho for life"):
        provision.plan(board, member(settings={"unit": 60}), store)


# A second life: its board was erased, and the store knows of the first


@pytest.fixture
def erased(board, store):
    """A board that was device 7 with a budget of 10, until its flash was erased."""
    join(board, member(budget="10"), store)
    erase(board)
    return board


@pytest.fixture
def erased_after_rounds(erased, store):
    """Its device was asked in two rounds of epsilon 2. One report was lost: it may be paid for."""
    for number in (1, 2):
        sample_store.begin_round(store, number, (7, 8))
    sample_store.report(store, 1, [7])
    return erased


def test_an_erased_board_has_no_second_budget(erased, store):
    """The board's flash was erased, and its ledger with it, but the store remembers device 7.
    Provisioned as if it were new, the board would spend its budget a second time.
    """
    with pytest.raises(RefusedError, match=r"lived before.* of a ledger of epsilon 10$") as caught:
        provision.plan(erased, member(budget="10"), store)
    assert caught.value.hint.startswith("go on with --again: ")
    assert "for the people whose data both hold the two add up" in caught.value.hint


@pytest.mark.parametrize(
    ("budget", "error", "message"),
    [
        ("20", UsageError, "was set to epsilon 10 for life and cannot be raised"),
        (
            "4",
            RefusedError,
            "a ledger of epsilon 10, 2 rounds that asked it, for epsilon 4 at most: "
            "nothing is left of 4",
        ),
    ],
)
def test_a_second_life_gets_what_the_first_left(erased_after_rounds, store, budget, error, message):
    """With `again` the owner may provision the erased board. It was asked in two rounds of epsilon
    2, so 4 counts as spent: a budget of 4 leaves nothing, and the budget of 10 cannot grow.
    """
    with pytest.raises(error, match=message):
        provision.plan(erased_after_rounds, member(budget=budget, again=True), store)


def test_a_device_begins_again_with_new_keys(erased_after_rounds, store, tmp_path):
    """The flash of device 7 was erased after two rounds. With `again`, the owner may provision it a
    second time: it and its fleet then have new keys, and copies of its old files are worth nothing.
    """
    old_key, old_fleet = store.keys()[7], fleet_key(store)
    again = member(budget="10", again=True)
    changes = provision.plan(erased_after_rounds, again, store)
    # Two rounds of epsilon 2 each.
    assert "epsilon 4 of 10 counts as spent, and its key and the fleet's are new" in changes.note
    assert (store.keys()[7], fleet_key(store)) == (old_key, old_fleet), "a plan changes nothing"

    provision.apply(erased_after_rounds, changes, again, store)

    key_on_board = erased_after_rounds.files.read(CLIENTS)[4:36]  # behind the id of the device
    assert key_on_board == store.keys()[7] != old_key
    new_fleet = fleet_key(store)
    path = tmp_path / storage.FLEET
    path.write_bytes(erased_after_rounds.files.read(FLEET))
    fleet_key_on_board, *_, epoch_on_board = storage.read_fleet(str(path))[:5]
    assert (fleet_key_on_board, epoch_on_board) == (new_fleet.key, new_fleet.epoch)
    assert new_fleet.key != old_fleet.key
    assert new_fleet.epoch > old_fleet.epoch


def test_the_ledger_of_a_second_life_has_spent_what_the_first_did(
    erased_after_rounds, store, tmp_path
):
    """An erased board is provisioned again. Its new ledger begins with the two rounds of epsilon 2
    of its first life, in millionths.
    """
    join(erased_after_rounds, member(budget="10", again=True), store)
    account = account_of(erased_after_rounds, tmp_path)
    assert (account.budget, account.spent, account.round) == (10_000_000, 4_000_000, 2)
    assert not provision.plan(erased_after_rounds, member(budget="10"), store), "it is a member"


def hello_row(spent):
    """Device 7 as the store knows it from the HELLO of its board, with this amount spent."""
    hello = {"budget": 10_000_000 - spent, "spent": spent, "measure": 0, "unit": 0}
    return BoardRow("00000007", first=7, clients=1, online=True, heard=1.0, hello=hello)


def test_no_second_life_begins_while_a_restored_store_does_not_know_the_first(
    erased_after_rounds, store
):
    """The device may have paid for rounds after the copy was made."""
    restored.mark(store, saved=1.0, now=2.0)
    with pytest.raises(RefusedError, match="unknown"):
        provision.plan(erased_after_rounds, member(budget="10", again=True), store)


def test_a_second_life_counts_what_a_board_has_told_after_a_restore(
    erased_after_rounds, store, tmp_path
):
    """The store knows of two rounds of epsilon 2, and of none that was answered. The board has told
    that it paid for three.
    """
    restored.mark(store, saved=1.0, now=2.0)
    store.boards_seen([hello_row(spent=6_000_000)])
    join(erased_after_rounds, member(budget="10", again=True), store)
    assert account_of(erased_after_rounds, tmp_path).spent >= 6_000_000


def test_a_device_that_was_sent_updates_has_lived_before(board, store):
    """An erased board that never had a round may still have had an update."""
    update_package.number_for(store, 7, b"content")
    with pytest.raises(RefusedError, match="the store knows of updates of its program"):
        provision.plan(board, member(), store)


def test_a_device_with_its_own_key_only_has_a_key_that_stays(board, store):
    """Such a device takes no questions to the whole fleet: it does not get the fleet's key, and its
    file names the last epoch, so that it takes no later key either.
    """
    alone = member(settings={"whole_fleet": False})
    join(board, alone, store)
    assert fleet_key(store).key not in board.files.read(FLEET)
    assert board.files.read(FLEET)[44:48] == b"\xff" * 4, "the last epoch"
    assert not provision.plan(board, alone, store)


# The counter of a chip, as a file beside the files of an emulated one: two fuses for each of 6 steps

COUNTER = "/..count"
NEW = bytes(12)


def bound(reserve=10):
    """A member whose ledger is bound to the counter."""
    return member(settings={"reserve": reserve}, counter=True)


@pytest.fixture(scope="module")
def chip():
    """The port of a Cortex-M33 with the library and the module for a counter."""
    with catalogue.boot("m33") as machine:
        with Repl(machine.url) as repl:
            file_changes.apply(repl, installing.plan(repl, more=["counter"])[1])
        yield machine.url


@pytest.fixture
def counting(chip):
    """The prompt of that board, unprovisioned, with no fuse burnt."""
    with Repl(chip) as repl:
        for path in (CLIENTS, LEDGER):
            repl.files.remove(path)
        repl.files.write(COUNTER, NEW)
        yield repl


def test_a_counter_needs_its_module(board, store):
    with pytest.raises(UsageError, match="lacks the module for its counter"):
        provision.plan(board, bound(), store)


def test_a_counter_must_pay_for_the_budget(counting, store):
    """A step of the chip's counter pays for `reserve` reports, 9 here, and one step of six is kept.
    A budget of 100 is for 50 reports of epsilon 2: too many for five steps.
    """
    with pytest.raises(UsageError, match="5 steps left, which pay for 45 reports") as caught:
        provision.plan(counting, bound(reserve=9), store)
    assert caught.value.hint == "--reserve 10"
    assert not store.keys()


def test_fuses_burn_when_the_board_starts(counting, store):
    """An old copy of a ledger would give a board its spent budget back. So a ledger can be bound to
    a counter of one-time fuses in the chip: two for each of 6 steps, one burnt at the begin of the
    step and one at its end. The first step begins at the first start of the board.
    """
    join(counting, bound(), store)
    # (begun, ended, all) steps
    assert counter.look(counting) == (0, 0, 6), "provisioning burns nothing by itself"

    counting.start_main()
    counting.close()

    assert starting.wait_for_hello(counting.name).budget == 100_000_000  # micro-epsilon, all of it
    with Repl(counting.name) as repl:
        assert counter.look(repl) == (1, 1, 6)
        assert not provision.plan(repl, bound(), store), "the board is as provisioned"


def test_an_old_copy_of_a_bound_ledger_is_refused(counting, store):
    """The counter of the chip has counted on to its second step, but the ledger is still at the
    first: it is an old copy, from before budget was spent.
    """
    join(counting, bound(), store)
    two_steps_burnt = bytes((1, 1, 1, 1)) + bytes(8)
    counting.files.write(COUNTER, two_steps_burnt)
    with pytest.raises(RefusedError, match="old copy of its ledger"):
        provision.plan(counting, member(), store)
