"""Whatever is the matter with the files of a board, its console stays open: on an emulated Pico
that is not locked.
"""

import os
import random
import shutil
import time

import pytest

from terntools.boards import deploy
from terntools.boards.repl import Repl
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico
from terntools.emulators.qemu import BLOCK_BYTES, FLASH_BLOCKS

STATES = 60  # of damaged files, each kind in turn
MOST_LETTERS = 300_000  # of all names: more do not fit
STARTED = 8  # seconds after which the program of most boards serves, or has failed
FILES_BYTES = FLASH_BLOCKS * BLOCK_BYTES  # of the file system, at the end of the flash


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The flash of an emulated Pico with tern on it."""
    flash = tmp_path_factory.mktemp("deployed") / "flash.bin"
    flash_image.fill("pico", flash, deploy.library_files)
    return flash


def names_in_any_bytes(flash, rng):
    """The board writes such names itself, since the host's library for file systems takes text
    only.
    """
    with boot_pico(flash, skip_idle=True) as pico, Repl(pico.url) as repl:
        for _ in range(5):
            name = rng.randbytes(rng.randint(1, 40)).replace(b"\0", b"x").replace(b"/", b"x")
            repl.run(f"open({b'/' + name!r}, 'w').close()")
        repl.run(f"import os\nos.mkdir({b'/' + bytes([228])!r})")


def many_names(flash, rng):
    length = rng.randint(20, 200)
    count = min(rng.choice((100, 1000, 2000)), MOST_LETTERS // length)
    empty_files = {f"/{number:05d}".ljust(length, "x"): b"" for number in range(count)}
    flash_image.add(flash, empty_files)


def no_file_system(flash, rng):
    with flash.open("r+b") as file:
        file.seek(-FILES_BYTES, os.SEEK_END)
        if rng.random() < 0.5:
            file.write(rng.randbytes(1) * FILES_BYTES)
        else:
            file.write(rng.randbytes(FILES_BYTES))


def files_that_hide_modules(flash, rng):
    """The client may not start: nobody reads the console then."""
    name = rng.choice(("hashlib", "os", "struct", "machine", "tern", "binascii", "time", "lock"))
    path = rng.choice(("/%s.py", "/%s/__init__.py")) % name
    flash_image.add(
        flash, {path: rng.choice((b"", b"raise SystemExit\n", b"while True:\n    pass\n"))}
    )


def damaged_files_of_tern(flash, rng):
    names = ("/clients.bin", "/fleet.bin", "/policy.bin", "/boot.bin", "/mqtt.json", "/link.json")
    flash_image.add(
        flash, {name: rng.randbytes(rng.randint(0, 300)) for name in rng.sample(names, 3)}
    )


def other_programs(flash, rng):
    path = rng.choice(("/boot.py", "/main.py"))
    programs = [b"raise KeyboardInterrupt\n", b"1 / 0\n", b"def\n"]
    if (
        path == "/main.py"
    ):  # the USB port of a Pico starts after its boot.py: one that never ends has no port
        programs.append(b"while True:\n    pass\n")
    flash_image.add(flash, {path: rng.choice(programs)})


# Each changes the flash of a board, by a random.Random.
KINDS = (
    names_in_any_bytes,
    many_names,
    no_file_system,
    files_that_hide_modules,
    damaged_files_of_tern,
    other_programs,
)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("state", range(STATES))
def test_the_console_of_a_board_without_a_lock_stays_open(deployed, tmp_path, state):
    flash = tmp_path / "flash.bin"
    shutil.copyfile(deployed, flash)
    change = KINDS[state % len(KINDS)]
    change(flash, random.Random(state))
    with boot_pico(flash) as pico:
        if state % 4 == 1:
            time.sleep(STARTED)
        with Repl(pico.url) as repl:
            assert repl.at_prompt
