"""Frame types, field layouts, limits and error codes (shared_specs/wire.md), for device and host.

A frame is `type u8 | fields | variable part | tag`; frames.py encodes and decodes them.
"""

import hashlib

from tern.compat import const

VERSION = const(2)

HELLO_REQUEST = const(0x01)
ROUND = const(0x02)
MODEL = const(0x04)
FLEET_KEY = const(0x05)
UPDATE = const(0x06)
HELLO = const(0x81)
REPORT = const(0x82)
ERROR = const(0x84)
REPORTS = const(0x85)
UPDATED = const(0x86)

# Fixed fields of each frame (struct layout, after the type byte).
HELLO_REQUEST_FIELDS = "<I"
HELLO_FIELDS = "<IB8sIIHHIIIIHHHBBBH3sB"
ROUND_FIELDS = "<IIBBbBHHBBBIH"
REPORT_FIELDS = "<II"
REPORTS_FIELDS = "<IH"
MODEL_FIELDS = "<IIBbBH"
FLEET_KEY_FIELDS = "<II32s"
UPDATE_FIELDS = "<IIII"
UPDATED_FIELDS = "<IIIB"
ERROR_FIELDS = "<IIBI"

TAG_BYTES = const(8)
KEY_BYTES = const(32)
MAX_FRAME = const(2560)  # bytes before COBS
BOARD = const(0)  # the device id of the board itself; clients have 1 or more
FLEET = 0xFFFFFFFF  # the device id of a ROUND for the whole fleet, with the fleet's key
# how far such a ROUND may be ahead of the last one that the device took part in,
FLEET_AHEAD = const(1024)
CLIENT_AHEAD = const(1 << 20)  # and how far one under the client's own key
CREDIT = const(128)  # bytes that one credit of serial flow control stands for
IN_FLIGHT = const(240)  # bytes that a host may have on the line beyond its credits
# the most bytes that a device waits for at once; as many zeros end any half of a frame
AT_ONCE = const(64)

MAX_ROUND = const(0x3FFFFFFF)  # 2**30 - 1, a small int of MicroPython
MAX_DIMENSION = const(128)  # features, and classes
MAX_VALUES = const(1024)  # classes x features: the most values that a client computes, to report k
MAX_RANGE = const(12)  # values are scaled up by 2**range
MAX_BATCH = const(32)  # records: tern.gradient adds so many without overflow
MIN_EXPONENT = const(-30)  # a mantissa m of a model's parameters stands for m 2**exponent
MAX_EXPONENT = const(-12)
MAX_BIN_EXPONENT = const(12)  # numbers that are collected as categories have 2**exponent bins
MAX_CARD = const(2048)  # bytes
MAX_BASE = const(65536)  # symbols of a card
MAX_PACKED = const(256)  # bytes of packed symbols

LINEAR = const(1)
LOGISTIC = const(2)
SVM = const(3)
SOFTMAX = const(4)  # inference: the probabilities of the classes
LOCAL = const(4)  # local training of the model m is LOCAL + m
VALUES = const(8)  # collection of features: as they are,
CATEGORIES = const(9)  # or as categories
SOFTMAX_GRADIENT = const(10)  # of softmax regression
LOCAL_SOFTMAX = const(11)  # local training of that
LAST_MODEL = const(11)
# A MODEL frame of this kind brings limits, above which features are unusual. It is the largest
# number that the field holds, so that questions never have it: theirs are counted from 1 on.
LIMITS = const(255)
LIMITS_EXPONENT = const(-14)  # limits are in Q1.14, as features are
NO_LIMIT = const(32767)  # in place of the limit of a feature that has none

# Kinds of models; as bytes, which are folded into a board's modules like every constant.
GRADIENTS = bytes((LINEAR, LOGISTIC, SVM, SOFTMAX_GRADIENT))
TRAININGS = bytes((LOCAL + LINEAR, LOCAL + LOGISTIC, LOCAL + SVM, LOCAL_SOFTMAX))  # local
COLLECTIONS = bytes((VALUES, CATEGORIES))
OF_CLASSES = bytes((SOFTMAX, SOFTMAX_GRADIENT, LOCAL_SOFTMAX))  # weights for each class
OF_ONE_RECORD = bytes((SOFTMAX, VALUES, CATEGORIES))  # others: of a batch
SCALED = bytes((LINEAR, LOGISTIC, SVM, SOFTMAX_GRADIENT, VALUES))  # by 2**range

# Of local training (tern.local): the exponent; the learning rate is 2**-rate; the safe range of a
# weight's change, in fine units.
MIN_LOCAL_EXPONENT = const(-16)
MAX_RATE = const(16)
MAX_TAU = const(1 << 23)

# The codes of an ERROR; shared_specs/wire.md says what the detail of each is.
ERR_FRAME = const(1)
ERR_TAG = const(2)
ERR_DEVICE = const(3)
ERR_OLD_ROUND = const(4)
ERR_CHANGED_ROUND = const(5)
ERR_CARD = const(6)
ERR_NOT_CERTIFIED = const(7)
ERR_POLICY = const(8)
ERR_BUDGET = const(9)
ERR_LEDGER = const(10)
OLD_LEDGER = const(1)  # its detail: not the last one by the chip's counter
ERR_ENTROPY = const(11)
ERR_DATA = const(12)
ERR_TOO_SOON = const(13)
ERR_AHEAD = const(14)
ERR_MODEL = const(15)
ERR_SLOT = const(16)
ERR_UNIT = const(17)
ERR_MEASURE = const(18)

# How far a board is with a package (update.md). Those from RESTARTING to ROLLED_BACK are in its
# boot.bin as well.
RECEIVING = const(0)
RESTARTING = const(1)  # it is whole, and starts at the next reset,
TRIAL = const(2)  # has been started,
CONFIRMED = const(3)  # has reached its host,
ROLLED_BACK = const(4)  # or has not, and runs no more
OLD = const(5)  # refused: a package of this number, or a larger one, has been there;
BUSY = const(6)  # another one is on trial;
DAMAGED = const(7)  # it is not authentic, or not a package;
FULL = const(8)  # it cannot be written

UPDATES = (
    "receiving",
    "restarting",
    "on trial",
    "confirmed",
    "rolled back",
    "old",
    "busy",
    "damaged",
    "full",
)
MAX_PACKAGE = const(1 << 20)  # bytes

ERRORS = (
    "frame",
    "tag",
    "device",
    "old round",
    "changed round",
    "card",
    "not certified",
    "policy",
    "budget",
    "ledger",
    "entropy",
    "data",
    "too soon",
    "ahead",
    "model",
    "slot",
    "unit",
    "measure",
)

# The entropy state of a HELLO: none, since a test failed, or the generator in use.
FAILED = const(0)
CTR_DRBG = const(1)
HASH_DRBG = const(2)

# Results of the health tests, in a board's HELLO.
MIXED = const(0)  # what a generator makes of the noise: a dead source may go unnoticed
RAW = const(1)  # the noise source itself

COORDINATES_AT = const(24)  # byte of a question's digest at which the draws of coordinates begin
FLEET_KEY_LABEL = b"tern fleet key "


def error_name(code):
    """Return the name of an error code."""
    return ERRORS[code - 1] if 1 <= code <= len(ERRORS) else "unknown error %d" % code


def schema_text():
    """Return the text of every layout, limit and code above, which two programs must share.

    Its hash is the schema in a HELLO: host and board understand each other if it is the same.
    """
    # Of each frame: its type, its layout, and the names of its fields, the variable part included.
    frames = (
        (HELLO_REQUEST, HELLO_REQUEST_FIELDS, "nonce"),
        (
            HELLO,
            HELLO_FIELDS,
            "nonce version schema first clients largest credit budget spent epoch heap records "
            "exceptions restarts entropy assessed measure unit release n text*n",
        ),
        (
            ROUND,
            ROUND_FIELDS,
            "device round model range exponent classes d k batch|all epochs rate tau length parameters "
            "card*length",
        ),
        (REPORT, REPORT_FIELDS, "device round packed*"),
        (REPORTS, REPORTS_FIELDS, "round size (device:I packed*size tag)*"),
        (MODEL, MODEL_FIELDS, "device round model exponent classes d parameters"),
        (FLEET_KEY, FLEET_KEY_FIELDS, "device epoch key"),
        (UPDATE, UPDATE_FIELDS, "device number offset total data*"),
        (UPDATED, UPDATED_FIELDS, "device number wanted state"),
        (ERROR, ERROR_FIELDS, "device round code detail"),
    )
    lines = ["tern wire %d" % VERSION]
    for kind, layout, names in frames:
        lines.append("%02x %s %s" % (kind, layout, names))
    for limit in (
        TAG_BYTES,
        KEY_BYTES,
        MAX_FRAME,
        CREDIT,
        IN_FLIGHT,
        MAX_ROUND,
        MAX_DIMENSION,
        MAX_VALUES,
        MAX_RANGE,
        MAX_BATCH,
        MIN_EXPONENT,
        MAX_EXPONENT,
        MAX_BIN_EXPONENT,
        MAX_CARD,
        MAX_BASE,
        MAX_PACKED,
        FLEET_AHEAD,
        CLIENT_AHEAD,
        MIN_LOCAL_EXPONENT,
        MAX_RATE,
        MAX_TAU,
        MAX_PACKAGE,
    ):
        lines.append(str(limit))
    models = (
        LINEAR,
        LOGISTIC,
        SVM,
        SOFTMAX,
        LOCAL,
        VALUES,
        CATEGORIES,
        SOFTMAX_GRADIENT,
        LOCAL_SOFTMAX,
    )
    lines.append("models " + " ".join(str(model) for model in models))
    lines.append("errors " + ", ".join(ERRORS))
    lines.append("updates " + ", ".join(UPDATES))
    return "\n".join(lines) + "\n"


SCHEMA = hashlib.sha256(schema_text().encode()).digest()[:8]
