"""The device library of tern, the same on MicroPython and on CPython."""

__version__ = "0.1.0"
