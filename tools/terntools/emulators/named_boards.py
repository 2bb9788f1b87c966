"""Runs an emulated board that has a name: it keeps its port and its flash (`ternhost.reach.named`)."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ternhost.errors import UsageError
from ternhost.files import storage_errors
from ternhost.reach import named
from ternhost.reach.named import NamedBoard

_CLOSED_FOLDER = 0o700  # for the owner alone: the flash has keys


def prepare(name: str, kind: str) -> NamedBoard:
    """Return the board with this name, whose folder is made if it is new.

    kind: of the board, such as "pico". Raises UsageError if the name is that of a board of another
    kind, or if the board runs already. Raises StorageError if the folder cannot be made.
    """
    named.check_name(name)
    board = NamedBoard(name, kind)
    for other in named.all_boards():
        if other.name == name and other.kind != kind:
            text = f"{name} is an emulated {other.kind}, not a {kind}"
            hint = f"tern emulator run {other.kind} --name {name}, or choose another name"
            raise UsageError(text, hint)
    if board.is_running:
        text = f"an emulated board with the name {name} runs already, at {board.url}"
        raise UsageError(text, hint="end that one, or choose another name")
    with storage_errors("set XDG_DATA_HOME to another folder", board.folder):
        board.folder.mkdir(mode=_CLOSED_FOLDER, parents=True, exist_ok=True)
    return board


@contextlib.contextmanager
def linked(board: NamedBoard, url: str) -> Iterator[None]:
    """Let the port of a named board lead to the socket at which it runs, until the context ends.

    url: of that socket, "socket://PATH". A link that was left by a board that was killed is replaced.
    """
    socket_path = Path(url.removeprefix("socket://"))
    with storage_errors("end the board and remove this file", board.link):
        board.link.unlink(missing_ok=True)
        board.link.symlink_to(socket_path)
    try:
        yield
    finally:
        board.link.unlink(missing_ok=True)
