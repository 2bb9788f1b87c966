"""Whatever is the matter with the files of a board, its console stays open: on an emulated Pico that is not locked."""

import random
import shutil

import pytest

from terntools.boards import deploy
from terntools.boards.repl import Repl
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico
from terntools.emulators.qemu import BLOCK_BYTES, FLASH_BLOCKS

STATES = 200
FILES_BYTES = FLASH_BLOCKS * BLOCK_BYTES
HOG = b"kept = []\ntry:\n    while True:\n        kept.append(bytearray(%d))\nexcept MemoryError:\n    pass\n"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The flash of an emulated Pico with tern on it."""
    flash = tmp_path_factory.mktemp("deployed") / "flash.bin"
    flash_image.fill("pico", flash, deploy.library_files)
    return flash


def names_in_any_bytes(flash, draw):
    """Such names are written by the board itself: the library that makes file systems takes text."""
    with boot_pico(flash, skip_idle=True) as pico, Repl(pico.url) as repl:
        for _ in range(5):
            name = draw.randbytes(draw.randint(1, 40)).replace(b"\0", b"x").replace(b"/", b"x")
            repl.run(f"open({b'/' + name!r}, 'w').close()")
        repl.run(f"import os\nos.mkdir({b'/' + bytes([228])!r})")


def many_names(flash, draw):
    length = draw.randint(20, 200)
    names = {f"/{number:05d}".ljust(length, "x"): b"" for number in range(draw.choice((100, 1000, 2000)))}
    flash_image.add(flash, names)


def damaged_bytes(flash, draw):
    with flash.open("r+b") as file:
        for _ in range(draw.choice((1, 100, 10_000))):
            file.seek(-draw.randint(1, FILES_BYTES), 2)
            file.write(draw.randbytes(1))


def no_file_system(flash, draw):
    with flash.open("r+b") as file:
        file.seek(-FILES_BYTES, 2)
        file.write(draw.randbytes(1) * FILES_BYTES if draw.random() < 0.5 else draw.randbytes(FILES_BYTES))


def no_memory(flash, draw):
    flash_image.add(flash, {"/boot.py": HOG % draw.choice((16, 100, 1000, 10_000))})


def no_library(flash, draw):
    part = draw.choice(
        ("/lib/tern/client.mpy", "/lib/tern/boards/this.mpy", "/lib/tern/__init__.mpy", "/main.py")
    )
    flash_image.add(flash, {part: draw.choice((b"", draw.randbytes(100)))})


def damaged_files_of_tern(flash, draw):
    names = ("/clients.bin", "/fleet.bin", "/policy.bin", "/boot.bin", "/mqtt.json", "/link.json")
    flash_image.add(flash, {name: draw.randbytes(draw.randint(0, 300)) for name in draw.sample(names, 3)})


def other_programs(flash, draw):
    text = draw.choice((b"raise KeyboardInterrupt\n", b"1 / 0\n", b"def\n", b"while True:\n    pass\n"))
    flash_image.add(flash, {draw.choice(("/boot.py", "/main.py")): text})


KINDS = (
    names_in_any_bytes,
    many_names,
    damaged_bytes,
    no_file_system,
    no_memory,
    no_library,
    damaged_files_of_tern,
    other_programs,
)


@pytest.mark.slow
@pytest.mark.sampled(9)  # each kind
@pytest.mark.parametrize("state", range(STATES))
def test_the_console_of_a_board_without_a_lock_stays_open(deployed, tmp_path, state):
    flash = tmp_path / "flash.bin"
    shutil.copyfile(deployed, flash)
    KINDS[state % len(KINDS)](flash, random.Random(state))
    with boot_pico(flash) as pico, Repl(pico.url) as repl:
        assert repl.at_prompt
