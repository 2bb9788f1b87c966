"""The files of a board survive its flashing, or nothing is changed: on an emulated Pico."""

import pico_images
import pytest
import rig
from spec.files import uf2_file

from ternhost import errors
from ternhost.errors import UsageError
from terntools.boards import flash, running
from terntools.boards.repl import Repl
from terntools.emulators.pico import boot_pico


@pytest.fixture
def board(tmp_path):
    """An emulated Pico with a ledger. Its boot loader shows the folder `volume`."""
    with boot_pico(tmp_path / "flash.bin", volume=tmp_path / "volume") as pico:
        with Repl(pico.url) as repl:
            repl.write_file("/ledger.bin", b"kept")
        yield pico


def flash_pico(board, tmp_path, data, *options, code=0):
    """`tern flash` with this UF2 file."""
    path = tmp_path / "firmware.uf2"
    path.write_bytes(data)
    return rig.tern(
        "flash", board.url, "--firmware", path, "--volume", tmp_path / "volume", *options, code=code
    )


def ledger(board):
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
def test_a_firmware_that_costs_a_board_its_files_is_refused(board, tmp_path, make, reason):
    refused = flash_pico(board, tmp_path, make(pico_images.image()), code=errors.USAGE)
    assert reason in refused.err
    assert "nothing was changed" in refused.err
    assert ledger(board) == b"kept"


def test_a_board_that_does_not_say_where_its_files_are_is_not_flashed(board, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_files_of_pico", lambda repl: None)
    refused = flash_pico(board, tmp_path, uf2_file(pico_images.image()), code=errors.USAGE)
    assert "does not say where it keeps its files" in refused.err
    assert ledger(board) == b"kept"


def test_files_survive_a_flash(board, tmp_path):
    flashed = flash_pico(board, tmp_path, uf2_file(pico_images.image()))
    assert "verified" in flashed.out
    assert ledger(board) == b"kept"


def test_erase_removes_the_files_also_where_the_board_does_not_say_where_they_are(
    board, tmp_path, monkeypatch
):
    monkeypatch.setattr(running, "_files_of_pico", lambda repl: None)
    flash_pico(board, tmp_path, uf2_file(pico_images.image()), "--erase")
    assert ledger(board) is None


def test_the_error_after_an_erase_says_that_the_files_are_gone(board, tmp_path, monkeypatch):
    monkeypatch.setattr(flash, "_volumes_at", lambda place, named: [])
    monkeypatch.setattr(flash, "_VOLUME_WAIT", 1.0)
    failed = flash_pico(
        board, tmp_path, uf2_file(pico_images.image()), "--erase", code=errors.NO_DEVICE
    )
    assert "did not show up; its files are erased; nothing was written" in failed.err


@pytest.mark.parametrize("make", [pico_images.with_files, pico_images.another_program_with_files])
def test_a_uf2_file_with_a_file_system_is_refused_for_a_board_in_its_boot_loader(tmp_path, make):
    path = tmp_path / "bad.uf2"
    path.write_bytes(make(pico_images.image()))
    volume = pico_images.volume_of_another_board(tmp_path / "boot loader")
    with pytest.raises(UsageError, match="brings files of its own"):
        flash.flash("/dev/none", flash.read_firmware(path), volume=volume)
    assert pico_images.content(volume) == ["INFO_UF2.TXT"]


@pytest.mark.parametrize("answer", ["('circuitpython', 'Raspberry Pi Pico with rp2040', b'')"])
def test_the_error_on_a_board_with_another_python_says_how_to_start_its_boot_loader(
    board, monkeypatch, answer
):
    monkeypatch.setattr(running, "_ASK", f"_tell({answer})")
    with pytest.raises(UsageError, match="runs circuitpython") as caught:
        running.inspect(board.url)
    assert "hold BOOTSEL" in caught.value.hint


def test_an_old_micropython_is_asked_by_its_older_names(board, monkeypatch):
    """Before 1.20, `sys.implementation` has no `_machine`."""
    description = running.inspect(board.url).description
    monkeypatch.setattr(
        running, "_ASK", running._ASK.replace("sys.implementation._machine", "sys.none")
    )
    assert running.inspect(board.url).description == description
