"""The averaged model, as a MODEL frame brings it to a device for its own use."""

import struct
from array import array

from tern import wire
from tern.frames import check_address, check_length, copy_int16, end_of, fields_of, require, seal, verify
from tern.host_frames import put_parameters


def check_model(model, exponent, classes, n):
    """Raise FrameError unless n parameters of 2**exponent are a model, of `classes` where it is softmax."""
    require(wire.LINEAR <= model <= wire.SOFTMAX, "unknown model")
    require(
        2 <= classes <= wire.MAX_DIMENSION if model == wire.SOFTMAX else classes == 1, "classes out of bounds"
    )
    require(1 <= n <= wire.MAX_VALUES and n % classes == 0, "parameters out of bounds")
    require(n // classes <= wire.MAX_DIMENSION, "parameters out of bounds")
    require(wire.MIN_EXPONENT <= exponent <= wire.MAX_EXPONENT, "exponent out of bounds")


def encode_model(out, key, device, round_number, model, parameters, exponent, classes=1):
    """Write a MODEL: classes x d int16 mantissas; device: a client's, or FLEET with the fleet's key.

    Raises FrameError where a field is out of bounds.
    """
    check_address(device, round_number)
    check_model(model, exponent, classes, len(parameters))
    out[0] = wire.MODEL
    d = len(parameters) // classes
    struct.pack_into(wire.MODEL_FIELDS, out, 1, device, round_number, model, exponent, classes, d)
    return seal(key, out, put_parameters(out, end_of(wire.MODEL_FIELDS), parameters))


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
