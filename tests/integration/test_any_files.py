"""Whatever is the matter with the files of a board, its console stays open: on an emulated Pico
that is not locked.
"""

import os
import random
import shutil
import time

import pytest

from terntools.boards import machines, software
from terntools.boards.repl import Repl
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico
from terntools.emulators.qemu import BLOCK_BYTES, FLASH_BLOCKS

STATES = 200
MOST_LETTERS = 300_000  # of all names: more do not fit
SECONDS_TO_START = 10  # then the program of most boards serves, or has failed
FILES_BYTES = FLASH_BLOCKS * BLOCK_BYTES  # of the file system, at the end of the flash
# A program that fills the heap, in pieces of so many bytes.
HOG = b"kept = []\ntry:\n    while True:\n        kept.append(bytearray(%d))\nexcept MemoryError:\n    pass\n"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """The flash of an emulated Pico with tern on it."""
    flash = tmp_path_factory.mktemp("deployed") / "flash.bin"
    flash_image.fill("pico", flash, software.library_files)
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


def damaged_bytes(flash, rng):
    """Anywhere but in the library's machine code: the processor may stop there, whatever
    MicroPython does.
    """
    image = bytearray(flash.read_bytes())
    spared = blocks_with_machine_code(image)
    for _ in range(rng.choice((1, 100, 10_000))):
        at = len(image) - rng.randint(1, FILES_BYTES)
        if at // BLOCK_BYTES not in spared:
            image[at] = rng.randrange(256)
    flash.write_bytes(image)


def blocks_with_machine_code(image):
    """The numbers of the blocks of a flash that hold a part of a compiled module, at least 32 bytes
    long.
    """
    machine = machines.Machine("armv6m", "rp2", "", "", network=False, aes=True)
    modules = [
        data for path, data in software.library_files(machine).items() if path.endswith(".mpy")
    ]
    parts = [data[at : at + 32] for data in modules for at in range(0, len(data), 256)]
    blocks = [image[at : at + BLOCK_BYTES] for at in range(0, len(image), BLOCK_BYTES)]
    return {number for number, block in enumerate(blocks) if any(part in block for part in parts)}


def no_file_system(flash, rng):
    with flash.open("r+b") as file:
        file.seek(-FILES_BYTES, os.SEEK_END)
        if rng.random() < 0.5:
            file.write(rng.randbytes(1) * FILES_BYTES)
        else:
            file.write(rng.randbytes(FILES_BYTES))


def no_memory(flash, rng):
    flash_image.add(flash, {"/boot.py": HOG % rng.choice((16, 100, 1000, 10_000))})


def no_library(flash, rng):
    paths = (
        "/lib/tern/client.mpy",
        "/lib/tern/boards/this.mpy",
        "/lib/tern/__init__.mpy",
        "/main.py",
    )
    path = rng.choice(paths)
    content = rng.choice((b"", rng.randbytes(100)))
    flash_image.add(flash, {path: content})


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


# Each spoils the files in the flash of a board, by a random.Random.
KINDS = (
    names_in_any_bytes,
    many_names,
    damaged_bytes,
    no_file_system,
    no_memory,
    no_library,
    files_that_hide_modules,
    damaged_files_of_tern,
    other_programs,
)


@pytest.mark.slow
@pytest.mark.sampled(10)  # each kind
@pytest.mark.parametrize("state", range(STATES))
def test_the_console_of_a_board_without_a_lock_stays_open(deployed, tmp_path, state):
    """KINDS has functions that spoil the files of an emulated Pico at random: damaged bytes, a full
    memory, other programs. Whatever they do, a user can still open the prompt of MicroPython, and
    so repair the board. (A board that its owner has locked never opens it.) `state` is the seed.
    """
    flash = tmp_path / "flash.bin"
    shutil.copyfile(deployed, flash)
    spoil_files = KINDS[state % len(KINDS)]
    spoil_files(flash, random.Random(state))

    with boot_pico(flash) as pico:
        # Odd states: the console is opened while the program runs, others: while the board starts.
        if state % 2:
            time.sleep(SECONDS_TO_START)
        with Repl(pico.url) as repl:
            assert repl.at_prompt
