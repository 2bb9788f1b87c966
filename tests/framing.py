"""Frames, as bytes, from the encoders of the library."""

from tern import frames, host_frames, wire


def encoded(encode, *fields, **named):
    """The frame that a function of tern.frames or tern.host_frames encodes."""
    out = bytearray(wire.MAX_FRAME * (2 if encode is host_frames.encode_round else 1))
    return bytes(out[: encode(out, *fields, **named)])


def hello(first, clients=1, epoch=0, nonce=0, text="test", budget=0, spent=0):
    """The HELLO of a board whose devices begin with `first`.

    budget, spent: what its first device has left and has paid, in micro-epsilon.
    """
    about_ledger = (budget, spent, epoch)
    return encoded(
        frames.encode_hello, nonce, first, clients, *about_ledger, 0, 0, 0, 0, 1, 0, 0, 0, text
    )
