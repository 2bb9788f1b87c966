"""Whether the files of a Pico survive a new firmware, and how they are erased."""

from ternhost.errors import UsageError
from terntools.boards import binary_info, uf2
from terntools.boards.repl import Repl

_HINT = (
    "flash a firmware without files, of the kind that the board has; or, if the board is to become "
    "another device, erase its files: tern board flash --erase (a board in its boot loader needs "
    "MicroPython first)"
)
_ERASE = """
import rp2
try:
    import vfs
except ImportError:  # MicroPython before 1.23
    import os as vfs
try:
    vfs.umount('/')
except OSError:  # nothing is mounted
    pass
vfs.VfsLfs2.mkfs(rp2.Flash(), progsize=256)
"""
_ERASE_SECONDS = 60.0


def require_survival(name: str, image: uf2.Image, files_on_board: range | None) -> None:
    """Raise UsageError for a firmware that would replace a board's files, or not find them.

    name, image: of the firmware's file. files_on_board: the addresses in flash where the board says
    that it keeps its files; None if it does not say.
    """
    require_no_files(name, image)
    if files_on_board is None:
        text = "the board does not say where it keeps its files, so nobody knows whether they would"
        raise _refusal(f"{text} survive")
    # Behind the end of a smaller flash, addresses start anew: a block there may hit the files, too.
    protected_region = range(files_on_board.start, uf2.FLASH_END)
    if image.writes_into(protected_region):
        raise _refusal(
            f"{name} reaches over the board's files, which are {_place(files_on_board)}: it would erase "
            "them, with the board's key and its ledger"
        )
    files_of_firmware = binary_info.file_system(image.read)
    if files_of_firmware is None:
        raise _refusal(
            f"{name} does not say where its program keeps files, so it may erase the board's, with "
            "its key and its ledger"
        )
    if files_of_firmware != files_on_board:
        raise _refusal(
            f"the MicroPython of {name} keeps its files {_place(files_of_firmware)}, and the board's are "
            f"{_place(files_on_board)}: it would erase them, with the board's key and its ledger"
        )


def require_no_files(name: str, image: uf2.Image) -> None:
    """Raise UsageError for a firmware that has files of its own.

    name, image: of the firmware's file.
    """
    file_region = binary_info.file_system(image.read)
    writes_there = file_region is not None and image.writes_into(file_region)
    if writes_there or image.has_file_system:
        raise _refusal(
            f"{name} brings files of its own, which would replace the board's files, with its key "
            "and its ledger"
        )


def _refusal(why: str) -> UsageError:
    """Return the error for a firmware that would cost a board its files. why: a sentence."""
    return UsageError(f"{why}; nothing was changed", _HINT)


def _place(region: range) -> str:
    """Return a region of a Pico's flash in words, counted from the start of the flash."""
    start = region.start - uf2.FLASH_START
    end = region.stop - uf2.FLASH_START
    return f"from {start:#x} to {end:#x}"


def erase(repl: Repl) -> None:
    """Replace the file system of a Pico by an empty one.

    Raises ExecutionError if its MicroPython cannot do so.
    """
    repl.run(_ERASE, timeout=_ERASE_SECONDS)
