"""The slot of a board: the fixed time at whose end it answers (shared_specs/storage.md)."""

from tern import storage
from terntools.boards.repl import Repl

_SLOT_AT = 40  # where fleet.bin has the slot, in milliseconds
_SLOT_BYTES = 2
# fleet.bin has the fleet's key as well, which does not leave the board.
_ASK = f"""
data = b''
try:
    with open('/{storage.FLEET}', 'rb') as file:
        if file.read(4) == {storage.FLEET_MAGIC!r}:
            file.seek({_SLOT_AT})
            data = file.read({_SLOT_BYTES})
except OSError:
    pass
_tell(data)
"""


def slot_of(repl: Repl) -> float:
    """Return the slot of a board in seconds; 0 if it has none. Raises TernError."""
    data = repl.value(_ASK)
    return int.from_bytes(data, "little") / 1000
