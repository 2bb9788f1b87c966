"""Calls functions of a chip's boot ROM: only on Thumb processors (firmware/thumb/rom.py)."""


def call(function, a, b, c):
    """Return function(a, b, c) for the address of a function; a buffer stands for its address.

    Here: 0, for none.
    """
    return 0
