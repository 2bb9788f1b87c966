"""`tern up` makes a new emulated Pico a member of a fleet, and goes on where it was interrupted."""

import dataclasses
import json
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import rig
import sample_store
import serial
from framing import encoded
from harness.port import silent
from harness.raw_client import wait_for
from spec.files import uf2_file

from tern import frames, host_frames, ledger, storage, wire
from tern.boards.emulated import Board
from tern.model import Model
from tern.update import Update
from ternhost import cache, errors
from ternhost.errors import DeviceError, RefusedError, UsageError
from ternhost.provision.boards import fleet_file
from ternhost.provision.keys import fleet_key
from ternhost.store.store import Store
from terntools.boards import counter, deploy, flash, provision, uf2, up, update, update_package
from terntools.boards.policy import policy
from terntools.boards.repl import Repl
from terntools.emulators import catalogue
from terntools.emulators.pico import FIRMWARE, boot_pico


@pytest.fixture
def box(tmp_path):
    """A folder with a firmware file, in which the boot loader's volume will appear."""
    image = cache.find_entry(FIRMWARE) / "firmware.bin"
    (tmp_path / "firmware.uf2").write_bytes(uf2_file(image.read_bytes()))
    return tmp_path


def command(box, url):
    return [
        "up",
        url,
        "--firmware",
        box / "firmware.uf2",
        "--volume",
        box / "volume",
        "--store",
        box / "store.sqlite",
        "--device",
        7,
        "--dataset",
        "flights",
        "--count",
        2,
        "--yes",
        "--json",
    ]


def begin(box, url):
    """`tern up` as a process."""
    name, *words = command(box, url)
    return rig.Train(*words, cwd=box, command=name).process


def tern_up(box, url):
    return rig.tern(*command(box, url)).json


def wait_until_flashed(box, process):
    """Wait until the boot loader has taken the firmware, and its volume is gone."""

    def flashed():
        assert process.poll() is None
        return not (box / "volume" / "INFO_UF2.TXT").exists()

    wait_for(flashed, 120)


def boot(box, **options):
    return boot_pico(box / "flash.bin", volume=box / "volume", **options)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("until_killed", "until_unplugged"),
    [(2.0, 1.0), (0.7, 3.0), (1.5, 1.0), (5.0, 1.0), (8.0, 3.0)],
)
def test_up_goes_on_after_a_kill_and_a_power_cut_until_nothing_is_left_to_do(
    box, until_killed, until_unplugged
):
    """The host is killed at any time, then the board is unplugged; the same command goes on."""
    with boot(box, blank=True) as board:
        process = begin(box, board.url)
        time.sleep(until_killed)
        process.kill()
        process.communicate()
        process = begin(box, board.url)
        wait_until_flashed(box, process)  # a Pico with half a firmware does not start
        time.sleep(until_unplugged)
        board.cut_power()
        message = process.communicate(timeout=300)[1]
        assert process.returncode in (3, 0), message
    with boot(box, blank=True) as board:
        first = tern_up(box, board.url)
        with Repl(board.url) as repl:
            deploy.apply(repl, deploy.plan(repl, more=["inference"])[1])
        second = tern_up(box, board.url)
    assert (first["clients"], first["epsilon_left"]) == (1, 100.0)
    assert second["changed"] is False
    assert second["deployed"] == second["provisioned"] == []  # modules of `tern deploy --with` stay
    assert second["hello"].split("; ")[:3] == first["hello"].split("; ")[:3]


def member(device, largest="2", budget="100", **options):
    rows = provision.dataset_records("flights", device, 1)
    return provision.Member(device, rows, policy(largest, budget), **options)


def join(repl, wanted, store):
    """Make the board this member."""
    provision.apply(repl, provision.plan(repl, wanted, store), wanted, store)


@pytest.fixture
def board():
    """The prompt of a blank board that starts quickly."""
    with catalogue.boot("rv32") as blank, Repl(blank.url) as repl:
        yield repl


@pytest.fixture
def store(box):
    with Store(box / "store.sqlite") as opened:
        yield opened


def test_a_board_has_the_key_of_the_store_and_stays_the_same_device(board, store):
    policy = {"pause": 2, "slot": 300, "reserve": 5}
    join(board, member(7, **policy), store)
    assert board.read_file("/" + storage.CLIENTS)[4:36] == store.keys()[7]
    fleet = fleet_key(store)
    assert board.read_file("/" + storage.FLEET) == fleet_file(fleet.key, 2, 300, 5, fleet.epoch, 64)
    assert not provision.plan(board, member(7, **policy), store)
    with pytest.raises(RefusedError, match="device 7 already"):
        provision.plan(board, member(8), store)


def spent_ledger(folder, budget):
    """A ledger whose whole budget (micro-epsilon) is spent."""
    path = folder / "spent"
    ledger.create(str(path), budget)
    account = ledger.Ledger()
    account.load(str(path))
    account.pay(1, bytes(32), budget, bytes(18))
    return path.read_bytes()


def test_a_ledger_is_never_overwritten_and_a_lost_one_is_not_replaced(board, store, box):
    join(board, member(7), store)
    path = "/" + storage.ledger_name(7)
    spent = spent_ledger(box, 100_000_000)
    board.write_file(path, spent)
    changed = provision.plan(board, member(7, shapes=("table",)), store)
    assert list(changed.write) == ["/" + storage.CLIENTS]
    deploy.apply(board, changed)
    assert board.read_file(path) == spent
    board.remove(path)
    for lost in (
        member(7, shapes=("table",)),  # as before
        member(7),
        member(7, budget="101"),
        member(7, budget="99"),
        member(7, largest="3"),
    ):
        with pytest.raises(RefusedError, match="lost its ledger"):
            provision.plan(board, lost, store)
    with Store(box / "fresh.sqlite") as fresh:
        with pytest.raises(RefusedError, match="lost its ledger"):
            provision.plan(board, member(7), fresh)
        assert not fresh.keys(), "no other key is made"


def test_a_provisioning_that_was_interrupted_before_its_ledger_goes_on(board, store):
    changes = provision.plan(board, member(7), store)
    board.write_file("/" + storage.RECORDS, changes.write["/" + storage.RECORDS])
    assert (
        "/" + storage.ledger_name(7) in provision.plan(board, member(7, budget="50"), store).write
    )


def erase(board):
    """Remove all that provisioning wrote, as erasing the flash does."""
    for path in (storage.CLIENTS, storage.RECORDS, storage.FLEET, storage.ledger_name(7)):
        board.remove("/" + path)


def test_an_erased_board_has_no_second_budget_and_takes_no_package_of_its_first_life(
    board, store, box
):
    join(board, member(7, budget="10"), store)
    key, fleet = store.keys()[7], fleet_key(store)
    erase(board)
    with pytest.raises(
        RefusedError, match=r"lived before.*no ledger.* of a ledger of epsilon 10$"
    ) as caught:
        provision.plan(board, member(7, budget="10"), store)
    assert caught.value.hint.startswith("go on with --again: ")
    assert "for the people whose data both hold the two add up" in caught.value.hint
    for number in (1, 2):  # the report of the second was lost, and may have been paid for
        sample_store.begin_round(store, number, (7, 8))
    sample_store.report(store, 1, [7])
    known = "a ledger of epsilon 10, 2 rounds that asked it, for epsilon 4 at most"
    for budget, error, message in (
        ("20", UsageError, "was set to 10 for life and cannot be raised to 20"),
        ("4", RefusedError, f"{known}: nothing is left of 4"),
    ):
        with pytest.raises(error, match=message):
            provision.plan(board, member(7, budget=budget, again=True), store)
    alone = member(7, budget="10", again=True, whole_fleet=False)
    assert "and its key is new; 'tern broker config'" in provision.plan(board, alone, store).note
    again = member(7, budget="10", again=True)
    changes = provision.plan(board, again, store)
    assert "epsilon 4 of 10 counts as spent, and its key and the fleet's are new" in changes.note
    assert (store.keys()[7], fleet_key(store)) == (key, fleet), "a plan changes nothing"
    provision.apply(board, changes, again, store)
    assert board.read_file("/" + storage.CLIENTS)[4:36] == store.keys()[7] != key
    (box / storage.FLEET).write_bytes(board.read_file("/" + storage.FLEET))
    new = fleet_key(store)
    assert storage.read_fleet(str(box / storage.FLEET))[0::4] == (new.key, new.epoch)
    assert new.epoch > fleet.epoch
    (box / "ledger").write_bytes(board.read_file("/" + storage.ledger_name(7)))
    account = ledger.Ledger()
    account.load(str(box / "ledger"))
    assert (account.budget, account.spent, account.round) == (10_000_000, 4_000_000, 2)
    for wanted in (again, member(7, budget="10")):
        assert not provision.plan(board, wanted, store), "the board has its ledger"

    package = update_package.sealed(key, 1, update_package.content({"main.py": b"pass"}))
    recorded = memoryview(update.Transfer(7, key, 1, package).frame())
    taken = Update(Board(str(box)))
    assert taken.take(recorded, key, bytearray(wire.MAX_FRAME))
    with pytest.raises(frames.FrameError) as refused:
        taken.take(recorded, store.keys()[7], bytearray(wire.MAX_FRAME))
    assert refused.value.code == wire.ERR_TAG
    sent = encoded(host_frames.encode_model, fleet.key, wire.FLEET, 1, wire.LOGISTIC, [1, 2], -14)
    recorded = memoryview(sent)
    model = Model()  # none is left of the first life
    model.open(str(box))
    with pytest.raises(frames.FrameError):
        model.take_model(recorded, new.key)
    model.take_model(recorded, fleet.key)
    assert model.round == 1, "with the old key of the fleet it would be taken"


def test_a_device_that_was_sent_updates_has_lived_before(board, store):
    update_package.number_for(store, 7, b"content")
    with pytest.raises(RefusedError, match="the store knows of updates of its program"):
        provision.plan(board, member(7), store)
    join(board, member(7, again=True), store)
    erase(board)
    with pytest.raises(RefusedError, match="a ledger of epsilon 100, updates of its program"):
        provision.plan(board, member(7), store)


def test_a_budget_for_life_is_not_raised(board, store, box):
    join(board, member(7, budget="12.345678"), store)
    message = r"7 was set to 12\.345678 for life and cannot be raised to 20$"
    with pytest.raises(UsageError, match=message) as caught:
        provision.plan(board, member(7, budget="20"), store)
    assert "--budget 12.345678 or less" in caught.value.hint
    lowered = provision.plan(board, member(7, budget="5"), store)
    assert list(lowered.write) == ["/" + storage.CLIENTS]
    deploy.apply(board, lowered)
    assert provision.plan(board, member(7, budget="12.345678"), store), (
        "up to the budget of the ledger"
    )
    board.write_file(
        "/" + storage.ledger_name(7), spent_ledger(box, 12_345_678) + b"a longer one's tail"
    )
    assert not provision.plan(board, member(7, budget="5"), store)


def test_unit_and_measure_stay_for_life(board, store, box):
    def of_records(unit=60, **options):
        return dataclasses.replace(
            member(7, **options), policy=policy(None, "4", "1e-6"), unit=unit
        )

    join(board, of_records(), store)
    assert not provision.plan(board, of_records(), store)
    for other, message in (
        (of_records(unit=1), "device 7 protects one run of 60 consecutive records"),
        (of_records(unit=0), "device 7 protects one run of 60 consecutive records"),
        (dataclasses.replace(member(7), unit=60), "the ledger of device 7 counts rho for life"),
    ):
        with pytest.raises(UsageError, match=message):
            provision.plan(board, other, store)
    erase(board)
    sample_store.begin_round(store, 1, (7,))  # of epsilon 2
    sample_store.report(store, 1, [7])
    with pytest.raises(
        RefusedError, match=r"1 round .* for rho 1\.52319 at most: nothing is left of 0\.311"
    ):
        provision.plan(board, of_records(again=True), store)


def test_a_board_without_the_module_of_sums_is_not_provisioned_for_them(store):
    with catalogue.boot("rv32") as blank:
        words = f"{blank.url} --store {store.path} --device 7 --dataset flights --unit 60".split()
        told = rig.tern("provision", *words, code=errors.USAGE).err
    assert "lacks the module for this unit" in told
    assert "--with sums; or do both with tern up" in told


def test_a_damaged_ledger_counts_as_lost(board, store):
    join(board, member(7), store)
    for damage in (b"", b"what it has released" * 4):
        board.write_file("/" + storage.ledger_name(7), damage)
        with pytest.raises(RefusedError, match=r"bad ledger .* nobody knows"):
            provision.plan(board, member(7), store)


def test_a_ledger_is_bound_to_a_counter_that_pays_for_its_budget(store):
    bound = member(7, reserve=10, counter=True)
    path = "/" + storage.ledger_name(7)
    with catalogue.boot("m33") as chip:
        with Repl(chip.url) as board:
            with pytest.raises(UsageError, match="lacks the module for its counter"):
                provision.plan(board, bound, store)
            deploy.apply(board, deploy.plan(board, more=["counter"])[1])
            with pytest.raises(UsageError, match="has no counter"):
                provision.plan(board, bound, store)
            board.write_file(
                "/..count", bytes(12)
            )  # beside the directory ".": this chip has no fuses
            with pytest.raises(
                UsageError, match="5 steps left, which pay for 45 reports"
            ) as caught:
                provision.plan(board, member(7, reserve=9, counter=True), store)
            assert caught.value.hint == "--reserve 10"
            assert not store.keys()
            join(board, bound, store)
            assert counter.look(board) == (0, 0, 6), "provisioning burns nothing by itself"
            new = board.read_file(path)
            board.start_main()
        assert deploy.wait_for_hello(chip.url).budget == 100_000_000
        words = f"{chip.url} --store {store.path} --device 7 --dataset flights --reserve 20 --counter".split()
        asked = rig.tern("provision", *words, code=errors.USAGE)  # there is nobody to say yes
        assert "burns 2 fuses; 4 steps are left then, for at most 80 reports" in asked.err
        with Repl(chip.url) as board:
            assert counter.look(board) == (1, 1, 6)
            assert board.read_file(path) == new
            assert not provision.plan(board, bound, store)
            board.write_file("/..count", bytes((1, 1, 1, 1)) + bytes(8))
            with pytest.raises(RefusedError, match="old copy of its ledger"):
                provision.plan(board, member(7), store)
            board.write_file(path, spent_ledger(Path(store.path).parent, 100_000_000))
            with pytest.raises(RefusedError, match="is not bound to a counter"):
                provision.plan(board, bound, store)


def test_files_of_options_that_a_member_no_longer_has_are_removed(board, store):
    link = {"unix.json": b'{"path": "socket"}'}
    join(board, member(7, link=link), store)
    assert board.read_file("/unix.json") == link["unix.json"]
    on_broker = provision.plan(
        board, member(7, broker=provision.Broker.parse("broker.example:1883")), store
    )
    assert on_broker.remove == ("/unix.json",)
    deploy.apply(board, on_broker)
    join(board, member(7, broker=provision.Broker.parse("broker.example:1883", ssid="lab")), store)
    config = json.loads(board.read_file("/mqtt.json"))
    assert config == {"host": "broker.example", "port": 1883, "ssid": "lab"}
    alone = provision.plan(board, member(7, whole_fleet=False), store)
    assert alone.remove == ("/mqtt.json",)
    assert list(alone.write) == ["/" + storage.FLEET], "with a random key"
    assert fleet_key(store).key not in alone.write["/" + storage.FLEET]
    assert alone.write["/" + storage.FLEET][44:48] == b"\xff" * 4, "the last epoch"
    deploy.apply(board, alone)
    assert not provision.plan(board, member(7, whole_fleet=False), store)


def test_a_pico_loses_old_files_refuses_wrong_firmware_and_can_be_erased(box, store):
    (box / "other.uf2").write_bytes(uf2_file(bytes(512), uf2.RP2350_ARM))
    with boot(box) as board:
        with Repl(board.url) as repl:
            machine, changes = deploy.plan(repl)
            assert machine.processor == "armv6m"
            names = set(changes.write)
            assert "/lib/tern/boards/rp2.mpy" in names
            assert not any("esp32" in name or "mqtt" in name for name in names)  # it has no Wi-Fi
            assert list(changes.write)[-1] == "/main.py"
            repl.write_file("/lib/tern/card.py", b"an old one")
            assert deploy.plan(repl)[1].remove == ("/lib/tern/card.py",)
            join(repl, member(7), store)
        with pytest.raises(
            UsageError, match=r"is for RP2350, and the board .* nothing was changed"
        ):
            flash.flash(board.url, flash.read_firmware(box / "other.uf2"), volume=box / "volume")
        flash.flash(
            board.url, flash.read_firmware(box / "firmware.uf2"), volume=box / "volume", erase=True
        )
        with Repl(board.url) as repl:
            assert repl.directory("/") == {}
            assert provision.plan(repl, member(8), store)


def test_code_that_does_not_end_in_time_is_an_error(board):
    with pytest.raises(DeviceError):
        board.run("while True: pass", timeout=1.0)


def make_plan(tmp_path, port):
    return up.make_plan(port, member(7), tmp_path / "store.sqlite", volume=tmp_path / "volume")


def test_only_a_board_without_a_prompt_is_flashed(tmp_path, monkeypatch):
    """Neither a port that cannot be opened nor a board that is unplugged is a reason to flash."""
    for port, message in (
        ("/dev/null", "not a serial port"),
        (str(tmp_path / "none"), "there is no port"),
        ("socket://127.0.0.1:1", "nothing listens"),
    ):
        with pytest.raises(DeviceError, match=message):
            make_plan(tmp_path, port)
    unplugged = Mock(side_effect=serial.SerialException("unplugged"))
    monkeypatch.setattr("terntools.boards.repl._ENTER_TRIES", 1)
    monkeypatch.setattr("terntools.boards.repl._HELLO_WAIT", 0.1)
    with silent() as port:
        with serial.Serial(port, exclusive=True), pytest.raises(DeviceError, match="busy"):
            make_plan(tmp_path, port)
        assert make_plan(tmp_path, port).flash == f"no MicroPython prompt on {port}"
        monkeypatch.setattr(serial.Serial, "write", unplugged)
        with pytest.raises(DeviceError, match="is gone"):
            make_plan(tmp_path, port)
