"""The device library of tern: unchanged on MicroPython and on CPython."""

__version__ = "0.1.0"
