"""Flashing an emulated Pico: the board that is meant and no other one; its files survive, or nothing
is changed.
"""

import itertools
import struct
from unittest.mock import Mock

import pytest
import rig
from spec.files import uf2_file

from ternhost import cache, errors
from ternhost.errors import UsageError
from terntools.boards import binary_info, flash_pico, uf2, up, volumes
from terntools.boards.firmware import read_firmware
from terntools.boards.flash import flash
from terntools.boards.flash_options import FlashOptions
from terntools.boards.member import Member, dataset_records
from terntools.boards.policy import policy
from terntools.boards.repl import Repl
from terntools.boards.uf2 import Image
from terntools.emulators.pico import FIRMWARE, boot_pico

INFO = (
    "UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n"  # of a boot loader's volume
)
START = uf2.FLASH_START


def image():
    """The MicroPython of the emulated Pico, as it is in flash."""
    return (cache.find_entry(FIRMWARE) / "firmware.bin").read_bytes()


def files_of(data):
    """Where the MicroPython in these bytes keeps its files."""
    return binary_info.file_system(
        lambda at, n: data[at - START : at - START + n] if at >= START else b""
    )


def with_files(data):
    """The firmware with a file system behind it, as dir2uf2 writes it."""
    behind = uf2_file(b"littlefs" * 512, start=files_of(data).start)
    return numbered(uf2_file(data) + behind)


def with_a_block_over_the_files(data):
    """The firmware, and 256 bytes of something else in the last sector of its files."""
    return numbered(uf2_file(data) + uf2_file(bytes(256), start=files_of(data).stop - 4096))


def with_another_place_for_files(data):
    """The firmware, whose files begin 64 KiB earlier."""
    files = files_of(data)
    entry = struct.pack("<II", files.start, len(files))
    assert data.count(entry) == 1
    return uf2_file(
        data.replace(entry, struct.pack("<II", files.start - 0x10000, len(files) + 0x10000))
    )


def numbered(blocks):
    """A UF2 file of these blocks, in their order."""
    count = len(blocks) // uf2.BLOCK_BYTES
    whole = bytearray(blocks)
    for number in range(count):
        struct.pack_into("<II", whole, number * uf2.BLOCK_BYTES + 20, number, count)
    return bytes(whole)


def volume_of_another_board(folder):
    """A folder as the boot loader of a Pico shows it."""
    folder.mkdir()
    (folder / "INFO_UF2.TXT").write_text(INFO)
    return folder


def content(volume):
    """The names of the files in a volume."""
    return [path.name for path in volume.iterdir()]


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """A folder with a firmware file."""
    folder = tmp_path_factory.mktemp("box")
    (folder / "firmware.uf2").write_bytes(uf2_file(image()))
    return folder


@pytest.fixture(scope="module")
def board(box):
    """A Pico that runs MicroPython. Its boot loader would be mounted in the folder `volume`."""
    with boot_pico(box / "flash.bin", volume=box / "volume") as pico:
        yield pico


def flash_file(board, box, data, code=0):
    """`tern board flash` with a UF2 file of these bytes."""
    (box / "mine.uf2").write_bytes(data)
    words = ("--firmware", box / "mine.uf2", "--volume", box / "volume")
    return rig.tern("board", "flash", board.url, *words, code=code)


@pytest.fixture
def board_with_ledger(board):
    with Repl(board.url) as repl:
        repl.files.write("/ledger.bin", b"kept")
    return board


def ledger(board):
    with Repl(board.url) as repl:
        return repl.files.read("/ledger.bin")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (with_a_block_over_the_files, "brings files of its own"),
        (with_another_place_for_files, "keeps its files from 0x90000"),
    ],
    ids=["over the files", "another place"],
)
def test_a_firmware_that_costs_a_board_its_files_is_refused(board_with_ledger, box, make, reason):
    """Among the files of a board is its ledger, which says how much privacy it has spent: flashing
    new firmware must not lose it. These two would overwrite the files, or look for them elsewhere.
    """
    refused = flash_file(board_with_ledger, box, make(image()), code=errors.USAGE)

    assert reason in refused.err
    assert "nothing was changed" in refused.err
    assert ledger(board_with_ledger) == b"kept"


def test_files_survive_a_flash(board_with_ledger, box):
    flashed = flash_file(board_with_ledger, box, uf2_file(image()))

    assert "verified" in flashed.out
    assert ledger(board_with_ledger) == b"kept"


def test_a_uf2_file_with_a_file_system_is_refused_for_a_board_in_its_boot_loader(tmp_path):
    """A board in its boot loader cannot be asked whether it has files. So a firmware that brings
    files of its own is not written to it.
    """
    path = tmp_path / "bad.uf2"
    path.write_bytes(with_files(image()))
    volume = volume_of_another_board(tmp_path / "boot loader")
    with pytest.raises(UsageError, match="brings files of its own"):
        flash("/dev/none", read_firmware(path), FlashOptions(volume=volume))
    assert content(volume) == ["INFO_UF2.TXT"]


@pytest.fixture
def other(tmp_path):
    """The volume of another board, which waits in its boot loader. It stays as it is."""
    volume = volume_of_another_board(tmp_path / "other")
    yield volume
    assert content(volume) == ["INFO_UF2.TXT"]


@pytest.fixture
def mount(monkeypatch):
    """`mount(function)`: the function returns the mounted volumes, each time they are looked for."""
    return lambda function: monkeypatch.setattr(volumes, "mount_points", function)


def flash_board(board, box, code):
    return rig.tern("board", "flash", board.url, "--firmware", box / "firmware.uf2", code=code)


def test_no_board_is_flashed_where_two_may_be_meant(box, board, other, mount):
    """One board runs at the named port, and another one waits in its boot loader. `tern board flash` does
    not guess which one the user means.
    """
    mount(lambda: [other])
    refused = flash_board(board, box, errors.USAGE)
    both = f"one runs on {board.url}, and one waits in its boot loader in {other}"
    assert f"{both}; nothing was changed" in refused.err


def test_up_flashes_no_board_that_runs_while_another_one_waits(tmp_path, board, other, mount):
    mount(lambda: [other])
    member = Member(7, dataset_records("iris", device=7, count=1), policy("2", "100"))

    plan = up.make_plan(board.url, member, tmp_path / "store.sqlite")

    assert plan.flash is None


def test_a_volume_that_comes_while_the_board_is_asked_is_another_board_s(box, board, other, mount):
    """To be flashed, a Pico starts its boot loader and then appears as a USB volume. A volume that
    appears just before the board was told to do so belongs to another board: nothing is written to
    it.
    """
    looks = itertools.count(1)

    def mount_points():
        """The other board comes at the third look: the last one before the boot loader starts."""
        return [other] if next(looks) >= 3 else []

    mount(mount_points)
    refused = flash_board(board, box, errors.USAGE)

    assert "nothing was changed" in refused.err


def test_a_volume_is_not_the_board_s_while_the_board_is_still_on_its_port(
    box, board, other, mount, monkeypatch
):
    """A board in its boot loader has left its serial port. This board was told to start its boot
    loader and does not, as when its watchdog restarts it, while the volume of another board
    appears. Nothing is written to that volume.
    """
    enter_boot_loader = Mock()  # which the board does not do
    monkeypatch.setattr(flash_pico, "enter_boot_loader", enter_boot_loader)
    monkeypatch.setattr(flash_pico, "LEAVE_WAIT", 1.0)
    mount(lambda: [other] if enter_boot_loader.called else [])

    failed = flash_board(board, box, errors.NO_DEVICE)

    assert "did not start its boot loader; nothing was written" in failed.err


def test_a_board_that_runs_another_micropython_after_flashing_is_an_error(
    box, board, mount, monkeypatch
):
    """After flashing, the board is asked for its version. Here the firmware file is made to lack
    it: so the board seems to run something else.
    """
    monkeypatch.setattr(Image, "contains", lambda self, text: False)
    mount(lambda: [box / "volume"])
    assert "which is not the file's" in flash_board(board, box, errors.NO_DEVICE).err


def test_a_silent_board_on_its_port_is_not_the_one_that_waits(box, board, other, mount):
    """A board at the named port cannot be interrupted, and answers no question; another board waits
    in its boot loader. The user may mean the first, so the second is not flashed. Last in this
    file: no test can use the silent board after it.
    """
    with Repl(board.url) as prompt:
        silent = "import micropython, time\nmicropython.kbd_intr(-1)\ntime.sleep(3600)\n"
        prompt.files.write("/main.py", silent.encode())
        prompt.start_main()
    mount(lambda: [other])

    refused = flash_board(board, box, errors.USAGE)

    assert "nothing was changed" in refused.err
