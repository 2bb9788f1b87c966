from array import array

from tern.frames import Round

Frame = bytes | bytearray | memoryview

def check_model(frame: Frame, key: bytes) -> tuple[int, int, int, int, int, int]:
    """Return (device, round, model, exponent, classes, d) of a MODEL under `key`."""

def decode_model(frame: Frame, key: bytes) -> tuple[int, int, int, int, int, array[int]]:
    """Return (device, round, model, exponent, classes, parameters as array('h')) of a MODEL under
    `key`.
    """

class Model:
    """The model that a device uses: that of the last MODEL, and until one has come the parameters of
    the last ROUND.
    """

    every: int
    ready: bool
    round: int
    kind: int
    exponent: int
    classes: int
    d: int

    def __init__(self, every: int = 8) -> None:
        """every: parameters of ROUNDs are written to flash once in so many rounds; those of a MODEL
        always.
        """

    def open(self, directory: str) -> None:
        """Take what `directory` keeps of an earlier start, and keep there what comes."""

    def forget_round(self) -> None:
        """Take a MODEL of any round next: the fleet has another key."""

    def take_model(self, frame: Frame, key: bytes) -> None:
        """Use and keep the model of a MODEL (bytes or memoryview) under `key`, unless it is older than
        the last one.
        """

    def take_round(self, request: Round) -> None:
        """Use the parameters of a verified ROUND (frames.Round) until a MODEL comes."""

    def score(self, row: array[int], label: int = 0) -> int:
        """Return w.x of a row (array('h')) of d features or more, in 2**-14 units; of softmax that of
        class `label`.
        """

    def probability(self, row: array[int], label: int = 1) -> int:
        """Return the probability of a label, Q1.14: of a logistic model that of 1 or -1, of softmax
        that of a class.
        """

    def predict(self, row: array[int]) -> int:
        """Return what the label of a record would be: a number, Q1.14; 16384 or -16384; of softmax the
        class, the first of the largest score.
        """
