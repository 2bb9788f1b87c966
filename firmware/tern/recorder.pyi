from array import array

SAMPLES: str
SEGMENT_MAGIC: bytes
SEGMENT_MOST: int

class Recorder:
    """The newest `capacity` records of `d` features (int16 Q1.14, the constant one included) and a
    label.
    """

    d: int
    capacity: int
    hold: int
    least: int
    flushes: int
    lost: int

    def __init__(self, d: int, capacity: int = 256, hold: int = 8, least: int | None = None) -> None:
        """No input or output yet. least: `hold` where it is None."""

    def open(self, directory: str) -> None:
        """Find what is there."""

    @property
    def count(self) -> int:
        """How many records in flash count, capacity at most."""

    def append(self, row: array[int], label: int) -> None:
        """Take a record: array('h') of d features, and a label: Q1.14, or the number of a class."""

    def flush(self) -> None:
        """Write what is held in RAM."""

    def read(self, index: int, row: array[int]) -> None:
        """Read record `index`, 0 .. count - 1, the oldest first, into the array('h') `row` of d + 1."""

    def clear(self) -> None:
        """Remove all records, those in RAM as well."""

    def close(self) -> None:
        """Write what is held in RAM, and close the file."""
