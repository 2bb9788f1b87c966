"""What MODEL frames bring: the averaged model, for predictions, and what keeps it over a restart.

See shared_specs/storage.md. Limits, the other kind of content of a MODEL, are in tern.limits.
"""

from array import array
from struct import pack_into

from tern import frames, wire
from tern.compat import TYPE_CHECKING, const
from tern.gradient import dot
from tern.ledger import replace
from tern.residual import SIGMOID, sigmoid_tail
from tern.storage import FLEET, read_fleet

if TYPE_CHECKING:
    from tern.compat import Buffer
    from tern.inference import Classifier

MODEL = "/model.bin"

_ONE = const(16384)  # 1 in Q1.14
# Where the parameters of a MODEL begin, in int16s and in bytes, and how many int16s, the tag,
# follow them. A model, and limits, are kept as an image of such a frame.
AT = const(7)
_AT_BYTES = const(14)
_AFTER = const(4)
# Where a MODEL has its device, the file has one of these: _OF_A_ROUND if the model is that of a
# ROUND; else the epoch of the fleet's key, or _NO_EPOCH if that is smaller.
_OF_A_ROUND = const(1)
_NO_EPOCH = const(2)


def check_model(frame: "Buffer", key: bytes) -> "tuple[int, int, int, int, int, int]":
    """Return (device, round, model, exponent, classes, d) of a MODEL under `key`.

    Raises FrameError.
    """
    fields = frames.fields_of(frame, wire.MODEL, wire.MODEL_FIELDS)
    device, number, model, exponent, classes, d = fields
    frames.check_address(device, number)
    if model == wire.LIMITS:
        fits = exponent == wire.LIMITS_EXPONENT and classes == 1 and 1 <= d <= wire.MAX_DIMENSION
        frames.require(fits, "limits out of bounds")
    else:
        frames.require(model <= wire.SOFTMAX, "no such model")
        frames.check_question(model, 0, (0, exponent), (classes, d, 1), 0, (0, 0, 0))
    frames.check_length(frame, wire.MODEL_FIELDS, 2 * classes * d)
    frames.verify(key, frame)
    return fields


def decode_model(frame: "Buffer", key: bytes) -> "tuple[int, int, int, int, int, array[int]]":
    """Return (device, round, model, exponent, classes, parameters) of a MODEL under `key`.

    Raises FrameError.
    """
    fields = check_model(frame, key)
    return fields[:5] + (array("h", bytes(frame[_AT_BYTES : -wire.TAG_BYTES])),)


class Received:
    """The content of the last MODEL frame of some kinds, in a file that survives a restart.

    kind: what the field `model` of the frame says. round: the number in the frame. final: whether
    the frame was a MODEL, and not a ROUND (see Model). ready: whether there is any content. d:
    features of a row, the constant included.

    A subclass sets FILE, the name of its file with a leading slash, and KINDS, those that it takes.
    """

    FILE = ""
    KINDS = b""

    def __init__(self) -> None:
        """Nothing is received yet; see open()."""
        # Whether the file may be written over, which is quicker; see tern.ledger.Ledger.
        self.in_place = False
        self.ready = self.final = False
        self.round = self.kind = self.exponent = self.classes = self.d = 0
        self._epoch = _NO_EPOCH
        self._image: "array[int]" = None
        self._derived: "Classifier" = None  # what a subclass has made of this image

    def open(self, directory: str) -> None:
        """Load what an earlier start has kept in `directory`, and store what is new there.

        Call it once, first.
        """
        self._directory = directory
        try:
            self.forget_round()
            with open(directory + self.FILE, "rb") as file:
                frame = file.read()
            fields = self._check(frame, b"")
            self._put(fields, frame[_AT_BYTES : -wire.TAG_BYTES], False)
            # Of another epoch than the fleet's key now: a MODEL of any round may follow.
            if self.final and fields[0] != self._epoch:
                self.round = 0
        except Exception:  # whatever is wrong with it: as if there were none
            pass

    def forget_round(self) -> None:
        """Accept a MODEL of any round next, since the fleet has a new key.

        After a restart, the epoch in fleet.bin tells the same.
        """
        self.round = 0
        self._epoch = max(_NO_EPOCH, read_fleet(self._directory + "/" + FLEET)[4])

    def take_model(self, frame: "Buffer", key: bytes) -> None:
        """Use and keep the content of a MODEL under `key`, unless it is older than the last.

        Raises FrameError, also for a MODEL of a kind that is not for this object. Raises
        LedgerError or OSError if it could not be written: it is then used until the next start.
        """
        fields = self._check(frame, key)
        if not self.final or fields[1] >= self.round:
            self._put((self._epoch,) + fields[1:], frame[_AT_BYTES : -wire.TAG_BYTES], True)

    def _check(self, frame, key):
        """Return the fields of a MODEL under `key` that is for this object. Raises FrameError."""
        fields = check_model(frame, key)
        frames.require(fields[2] in self.KINDS, "for another use")
        return fields

    def _put(self, values, parameters, write):
        """Use new content, unless it is what is in use; write it to its file if `write` is set.

        values: the fields of a MODEL, with _OF_A_ROUND or the epoch in place of the device.
        parameters: their bytes. Raises LedgerError and OSError.
        """
        # The image of a MODEL frame with the empty key, whose tag serves as a check.
        frame = bytearray(_AT_BYTES) + bytes(parameters) + bytes(wire.TAG_BYTES)
        frame[0] = wire.MODEL
        pack_into(wire.MODEL_FIELDS, frame, 1, *values)
        frames.seal(b"", frame, len(frame) - wire.TAG_BYTES)
        if array("h", frame) != self._image:
            self._image = array("h", frame)
            self._derived = None
            device, self.round, self.kind, self.exponent, self.classes, self.d = values
            self.final = device != _OF_A_ROUND
            self.ready = True
            if write:
                path = self._directory + self.FILE
                if not self.in_place:
                    replace(path, frame)
                else:
                    with open(path, "wb") as file:
                        file.write(frame)


class Model(Received):
    """The device's model, for predictions by the program: that of the last MODEL frame.

    Before the first MODEL, it is that of the last ROUND, whose parameters are not final. kind:
    LINEAR, LOGISTIC, SVM or SOFTMAX of wire.py. round: the number in its frame. final: whether its
    frame was a MODEL. ready: whether there is a model. d: features of a row, the constant included.
    A prediction allocates nothing after the first call.
    """

    FILE = MODEL
    KINDS = bytes((wire.LINEAR, wire.LOGISTIC, wire.SVM, wire.SOFTMAX))

    def __init__(self, every: int = 8) -> None:
        """every: parameters of ROUNDs are written to flash once in this many rounds.

        Those of a MODEL are always written.
        """
        super().__init__()
        self.every = every
        self._sums = array("i", bytes(8))

    def take_round(self, request: frames.Round) -> None:
        """Use the parameters of a verified ROUND (frames.Round) until a MODEL comes.

        Raises LedgerError as above.
        """
        model = request.model
        number = request.round
        if not self.final and number > self.round and model not in wire.COLLECTIONS:
            # The kind of the model itself, whether it is trained by gradients or locally. Other
            # numbers up to SOFTMAX are such kinds already.
            if model > wire.SOFTMAX:
                model = wire.SOFTMAX if request.classes > 1 else model - wire.LOCAL
            # Once in `every` rounds, and whenever it is another kind of model.
            must_write = number // self.every > self.round // self.every or (
                (model, request.classes, request.d) != (self.kind, self.classes, self.d)
            )
            fields = (_OF_A_ROUND, number, model, request.exponent, request.classes, request.d)
            self._put(fields, request.parameters, must_write)

    def score(self, row: "array[int]", label: int = 0) -> int:
        """Return w.x of a row (array('h')) in units of 2**-14; for softmax, that of class `label`.

        Raises RuntimeError if there is no model, or not for such a row.
        """
        d = self.d
        if len(row) < d or not 0 <= label < self.classes:
            raise RuntimeError("no model for this row")
        sums = self._sums
        # dot() takes features and parameters the other way round, which changes no sum.
        dot(self._image, AT + label * d, row, sums, d)
        # w.x = (256 sums[0] + sums[1]) 2**exponent, without the last 8 bits, shifted right by d,
        # rounded to nearest; see tern.residual.
        d = -8 - self.exponent
        return sums[0] + (sums[1] >> 8) + (1 << d - 1) >> d

    def probability(self, row: "array[int]", label: int = 1) -> int:
        """Return the probability, Q1.14, of a label.

        label: 1 or -1 for a logistic model, a class for softmax. Raises as score(); ValueError for
        a model that has none; ImportError if softmax lacks tern.inference.
        """
        kind = self.kind
        score = self.score(row, label if kind == wire.SOFTMAX else 0)
        if kind == wire.LOGISTIC:
            # The sigmoid of a positive score is 1 - tail, that of a negative one is the tail; for
            # the label -1 it is the other way round.
            tail = sigmoid_tail(abs(score), SIGMOID)
            return _ONE - tail if (score >= 0) == (label > 0) else tail
        if kind != wire.SOFTMAX:
            raise ValueError("only logistic and softmax models have probabilities")
        if not self._derived:
            from tern.inference import Classifier  # loaded only when asked for

            self._out = array("h", range(self.classes))
            self._derived = Classifier(self._image[AT:-_AFTER], self.exponent, self.classes)
        self._derived.probabilities(row, self._out)
        return self._out[label]

    def predict(self, row: "array[int]") -> int:
        """Return the label: Q1.14, 16384 or -16384, or the first class of the largest score.

        Raises as score().
        """
        best = self.score(row)
        if self.kind == wire.LINEAR:
            return max(-_ONE, min(_ONE, best))
        if self.kind != wire.SOFTMAX:
            return _ONE if best > 0 else -_ONE
        label = 0
        for i in range(1, self.classes):
            score = self.score(row, i)
            if score > best:
                best = score
                label = i
        return label
