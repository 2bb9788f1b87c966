"""The files of a board survive its flashing, or nothing is changed: on an emulated Pico."""

import pico_images
import pytest
import rig
from spec.files import uf2_file

from ternhost import errors
from ternhost.errors import UsageError
from terntools.boards import running
from terntools.boards.firmware import read_firmware
from terntools.boards.flash import flash
from terntools.boards.flash_options import FlashOptions
from terntools.boards.repl import Repl
from terntools.emulators.pico import boot_pico

GOOD = uf2_file(pico_images.image())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("pico")


@pytest.fixture(scope="module")
def pico(place):
    """An emulated Pico. Its boot loader shows the folder `volume`."""
    with boot_pico(place / "flash.bin", volume=place / "volume") as machine:
        yield machine


@pytest.fixture
def board(pico):
    """This Pico with a ledger."""
    with Repl(pico.url) as repl:
        repl.write_file("/ledger.bin", b"kept")
    return pico


@pytest.fixture
def tern_flash(board, place):
    """`tern_flash(data, *options, code=...)`: `tern flash` with this UF2 file."""

    def run(data, *options, code=0):
        path = place / "firmware.uf2"
        path.write_bytes(data)
        words = ["--firmware", path, "--volume", place / "volume", *options]
        return rig.tern("flash", board.url, *words, code=code)

    return run


def ledger(board):
    """The board's ledger; None if it has none."""
    with Repl(board.url) as repl:
        return repl.read_file("/ledger.bin") if "/ledger.bin" in repl.directory("/") else None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (pico_images.with_files, "brings files of its own"),
        (pico_images.with_a_block_over_the_files, "brings files of its own"),
        (pico_images.with_a_block_behind_the_flash, "reaches over the board's files"),
        (pico_images.with_another_place_for_files, "keeps its files from 0x90000"),
        (pico_images.another_program, "does not say where its program keeps files"),
        (pico_images.another_program_with_files, "brings files of its own"),
    ],
)
def test_a_firmware_that_costs_a_board_its_files_is_refused(board, tern_flash, make, reason):
    refused = tern_flash(make(pico_images.image()), code=errors.USAGE)
    assert reason in refused.err
    assert "nothing was changed" in refused.err
    assert ledger(board) == b"kept"


@pytest.fixture
def mute(monkeypatch):
    """A board does not say where its files are."""
    monkeypatch.setattr(running, "files_of_pico", lambda repl: None)


@pytest.mark.usefixtures("mute")
def test_a_board_that_does_not_say_where_its_files_are_is_not_flashed(board, tern_flash):
    refused = tern_flash(GOOD, code=errors.USAGE)
    assert "does not say where it keeps its files" in refused.err
    assert ledger(board) == b"kept"


@pytest.mark.parametrize("make", [pico_images.with_files, pico_images.another_program_with_files])
def test_a_uf2_file_with_a_file_system_is_refused_for_a_board_in_its_boot_loader(tmp_path, make):
    path = tmp_path / "bad.uf2"
    path.write_bytes(make(pico_images.image()))
    volume = pico_images.volume_of_another_board(tmp_path / "boot loader")
    with pytest.raises(UsageError, match="brings files of its own"):
        flash("/dev/none", read_firmware(path), FlashOptions(volume=volume))
    assert pico_images.content(volume) == ["INFO_UF2.TXT"]


def test_files_survive_a_flash(board, tern_flash):
    assert "verified" in tern_flash(GOOD).out
    assert ledger(board) == b"kept"


@pytest.mark.usefixtures("mute")
def test_erase_removes_the_files_also_where_the_board_does_not_say_where_they_are(
    board, tern_flash
):
    tern_flash(GOOD, "--erase")
    assert ledger(board) is None
