from tern.boards import Base

BOOT: str
STAGED: str
FOLDERS: tuple[str, str]
MAIN: str
BOOT_FIELDS: str
MAGIC: bytes
KEY_LABEL: bytes

class Update:
    """The packages of a board. state (as in UPDATED) and number: of the last one that was whole,
    CONFIRMED and 0 where there never was one; restart: whether the board is to be reset, once the
    answer that says so is sent.
    """

    state: int
    number: int
    restart: bool

    def __init__(self, board: Base) -> None: ...
    def take(self, frame: memoryview, key: bytes, reply: bytearray) -> int:
        """Take an UPDATE (memoryview) under `key`, that of the client which it names; write the
        UPDATED into `reply`.
        """

    def confirm(self) -> None:
        """What runs has reached its host: it has proven itself, if it was on trial."""
