from array import array

from tern.frames import Round

Frame = bytes | bytearray | memoryview

def check_model(frame: Frame, key: bytes) -> tuple[int, int, int, int, int, int]:
    """Raise FrameError unless n parameters of 2**exponent are a model, of `classes` where it is
    softmax.
    """

def decode_model(frame: Frame, key: bytes) -> tuple[int, int, int, int, int, array[int]]:
    """Return (device, round, model, exponent, classes, parameters as array('h')) of a MODEL under
    `key`.
    """

class Model:
    every: int
    ready: bool
    round: int
    kind: int
    exponent: int
    classes: int
    d: int

    def __init__(self, every: int = 8) -> None: ...
    def open(self, directory: str) -> None: ...
    def forget_round(self) -> None: ...
    def take_model(self, frame: Frame, key: bytes) -> None: ...
    def take_round(self, request: Round) -> None: ...
    def score(self, row: array[int], label: int = 0) -> int: ...
    def probability(self, row: array[int], label: int = 1) -> int: ...
    def predict(self, row: array[int]) -> int: ...
