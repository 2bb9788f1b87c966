"""The averaged model, as a MODEL frame brings it to a device for its own use."""

from array import array

from tern import wire
from tern.frames import check_address, check_length, copy_int16, end_of, fields_of, require, verify


def check_model(model, exponent, classes, n):
    """Raise FrameError unless n parameters of 2**exponent are a model, of `classes` where it is softmax."""
    require(wire.LINEAR <= model <= wire.SOFTMAX, "unknown model")
    require(
        2 <= classes <= wire.MAX_DIMENSION if model == wire.SOFTMAX else classes == 1, "classes out of bounds"
    )
    require(1 <= n <= wire.MAX_VALUES and n % classes == 0, "parameters out of bounds")
    require(n // classes <= wire.MAX_DIMENSION, "parameters out of bounds")
    require(wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT, "exponent out of bounds")


def decode_model(frame, key):
    """Return (device, round, model, exponent, classes, parameters as array('h')) of a MODEL under `key`.

    Raises FrameError.
    """
    device, number, model, exponent, classes, d = fields_of(frame, wire.MODEL, wire.MODEL_FIELDS)
    check_address(device, number)
    check_model(model, exponent, classes, classes * d)
    check_length(frame, wire.MODEL_FIELDS, 2 * classes * d)
    verify(key, frame)
    parameters = array("h", (0 for _ in range(classes * d)))
    copy_int16(frame, end_of(wire.MODEL_FIELDS), parameters, classes * d)
    return device, number, model, exponent, classes, parameters
