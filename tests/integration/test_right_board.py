"""A command flashes the board that is meant, and no other one; afterwards that board has to start."""

import itertools
from unittest.mock import Mock

import pico_images
import pytest
import rig
from spec.files import uf2_file

from ternhost import errors
from terntools.boards import flash_pico, volumes
from terntools.boards.repl import Repl
from terntools.boards.uf2 import Image
from terntools.emulators.pico import boot_pico


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    """A folder with a firmware file."""
    folder = tmp_path_factory.mktemp("box")
    (folder / "firmware.uf2").write_bytes(uf2_file(pico_images.image()))
    return folder


@pytest.fixture(scope="module")
def board(box):
    """A Pico that runs MicroPython. Its boot loader would be mounted in the folder `volume`."""
    with boot_pico(box / "flash.bin", volume=box / "volume") as pico:
        yield pico


@pytest.fixture
def other(tmp_path):
    """The volume of another board, which waits in its boot loader. It stays as it is."""
    volume = pico_images.volume_of_another_board(tmp_path / "other")
    yield volume
    assert pico_images.content(volume) == ["INFO_UF2.TXT"]


@pytest.fixture
def mount(monkeypatch):
    """`mount(function)`: the function returns the mounted volumes, each time they are looked for."""
    return lambda function: monkeypatch.setattr(volumes, "mount_points", function)


def flash_board(board, box, code):
    return rig.tern("flash", board.url, "--firmware", box / "firmware.uf2", code=code)


def test_no_board_is_flashed_where_two_may_be_meant(box, board, other, mount):
    mount(lambda: [other])
    refused = flash_board(board, box, errors.USAGE)
    both = f"one runs on {board.url}, and one waits in its boot loader in {other}"
    assert f"{both}; nothing was changed" in refused.err


def test_a_volume_that_comes_while_the_board_is_asked_is_another_board_s(box, board, other, mount):
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
    """Such as a board that its watchdog restarts."""
    enter_boot_loader = Mock()  # which the board does not do
    monkeypatch.setattr(flash_pico, "enter_boot_loader", enter_boot_loader)
    monkeypatch.setattr(flash_pico, "LEAVE_WAIT", 1.0)
    mount(lambda: [other] if enter_boot_loader.called else [])

    failed = flash_board(board, box, errors.NO_DEVICE)

    assert "did not start its boot loader; nothing was written" in failed.err


def test_a_silent_board_on_its_port_is_not_the_one_that_waits(box, board, other, mount):
    """Its program cannot be interrupted, and answers no question."""
    with Repl(board.url) as prompt:
        silent = "import micropython, time\nmicropython.kbd_intr(-1)\ntime.sleep(3600)\n"
        prompt.write_file("/main.py", silent.encode())
        prompt.start_main()
    mount(lambda: [other])
    assert "nothing was changed" in flash_board(board, box, errors.USAGE).err


@pytest.fixture
def flashable(tmp_path):
    """A Pico for one test."""
    with boot_pico(tmp_path / "flash.bin", volume=tmp_path / "volume") as pico:
        yield pico


def test_a_board_that_runs_another_micropython_after_flashing_is_an_error(
    box, flashable, tmp_path, mount, monkeypatch
):
    monkeypatch.setattr(Image, "contains", lambda self, text: False)
    mount(lambda: [tmp_path / "volume"])
    assert "which is not the file's" in flash_board(flashable, box, errors.NO_DEVICE).err


# What happens after an ESP32 was flashed: esptool's part is tested in tests/unit/test_flash.py.
