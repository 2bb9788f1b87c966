"""`tern board up` makes a new emulated Pico a member of a fleet, and goes on where it was interrupted."""

import time

import pytest
import rig
import serial
from harness.port import silent
from harness.waiting import wait_for
from spec.files import uf2_file

from ternhost import cache
from ternhost.errors import NO_DEVICE, OK, DeviceError
from ternhost.reach.ports import names
from terntools.boards import api, repl, up
from terntools.boards.member import Member, dataset_records
from terntools.boards.policy import policy
from terntools.emulators.pico import FIRMWARE, boot_pico


@pytest.fixture
def box(tmp_path):
    """A folder with a firmware file, in which the boot loader's volume will appear."""
    image = cache.find_entry(FIRMWARE) / "firmware.bin"
    (tmp_path / "firmware.uf2").write_bytes(uf2_file(image.read_bytes()))
    return tmp_path


def words(box, url):
    """The options of `tern board up` for the board at this port."""
    options = f"--firmware firmware.uf2 --volume {box}/volume --store store.sqlite --device 7"
    return [url, *options.split(), "--data", "flights", "--yes", "--json"]


def begin(box, url):
    """`tern board up` as a process."""
    return rig.Train(*words(box, url), cwd=box, command="board up").process


def wait_until_flashed(box, process):
    """Wait until the boot loader has taken the firmware, and its volume is gone."""

    def flashed():
        assert process.poll() is None
        return not (box / "volume" / "INFO_UF2.TXT").exists()

    wait_for(flashed, 120)


def boot(box):
    """A Pico without MicroPython at first."""
    return boot_pico(box / "flash.bin", volume=box / "volume", blank=True)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("until_killed", "until_unplugged"),
    [(2.0, 1.0), (0.7, 3.0), (1.5, 1.0), (5.0, 1.0), (8.0, 3.0)],
)
def test_up_goes_on_after_a_kill_and_a_power_cut_until_nothing_is_left_to_do(
    box, until_killed, until_unplugged
):
    """`tern board up` makes a new board a member of a fleet: firmware, library, key. It is killed after
    some seconds; a second run is interrupted by pulling the board's plug; a third run finishes, and
    a fourth has nothing to do.
    """
    with boot(box) as board:
        process = begin(box, board.url)
        time.sleep(until_killed)
        process.kill()
        process.communicate()

        process = begin(box, board.url)
        wait_until_flashed(box, process)  # a Pico with half a firmware does not start
        time.sleep(until_unplugged)
        board.cut_power()
        message = process.communicate(timeout=300)[1]
        # It says that the board is gone, unless it had just finished.
        assert process.returncode in (NO_DEVICE, OK), message

    with boot(box) as board:
        third = rig.tern("board", "up", *words(box, board.url), cwd=box).json
        fourth = rig.tern("board", "up", *words(box, board.url), cwd=box).json
    assert (third["clients"], third["epsilon_left"]) == (1, 100.0), "nothing is spent"
    assert fourth["changed"] is False
    assert fourth["deployed"] == fourth["provisioned"] == []


@pytest.mark.slow
def test_the_only_board_is_brought_up_from_its_boot_loader_by_a_program(box, monkeypatch):
    """A Pico in its boot loader has no port, so `auto` stands for the port that it gets."""
    with boot(box) as board:

        def ports():
            """The ports with a board: none before it is flashed."""
            if (box / "volume" / "INFO_UF2.TXT").exists():
                return []
            return [names.Device(board.url, names.RP2, "Pico", "2e8a:0005", None)]

        monkeypatch.setattr(names, "find", ports)
        options = api.MemberOptions(7, "flights", store=str(box / "store.sqlite"))
        up = api.up("auto", options, firmware=box / "firmware.uf2", volume=box / "volume")

    assert (up.port, up.device, up.flashed, up.changed) == (board.url, 7, True, True)
    assert up.hello.clients == 1


def make_plan(folder, port):
    """The plan for a board on this port, where none waits in its boot loader."""
    member = Member(7, dataset_records("iris", 7, 1), policy("2", "100"))
    return up.make_plan(port, member, folder / "store.sqlite", volume=folder / "volume")


@pytest.mark.parametrize(
    ("port", "message"),
    [
        ("/dev/null", "not a serial port"),
        ("/dev/no-such-port", "there is no port"),
        ("socket://127.0.0.1:1", "nothing listens"),
    ],
)
def test_a_port_that_cannot_be_opened_is_no_reason_to_flash(tmp_path, port, message):
    """It may be a typing error, or a cable: `tern board up` says so and does not look for a board to
    flash.
    """
    with pytest.raises(DeviceError, match=message):
        make_plan(tmp_path, port)


@pytest.fixture
def quiet_port(monkeypatch):
    """A port that never answers, and is not waited for."""
    monkeypatch.setattr(repl, "ENTER_TRIES", 1)
    monkeypatch.setattr(repl, "LOCKED_PATIENCE", 0.1)
    with silent() as port:
        yield port


def test_a_board_without_a_prompt_is_flashed(tmp_path, quiet_port):
    """A board that never answers at its port has no MicroPython yet: `tern board up` plans to flash it."""
    assert make_plan(tmp_path, quiet_port).flash == f"no MicroPython prompt on {quiet_port}"


def test_a_busy_port_is_no_reason_to_flash(tmp_path, quiet_port):
    """Another program uses the port, so the board's silence says nothing."""
    with serial.Serial(quiet_port, exclusive=True), pytest.raises(DeviceError, match="busy"):
        make_plan(tmp_path, quiet_port)
