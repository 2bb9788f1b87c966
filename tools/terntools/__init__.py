"""Tools for boards: find, deploy and watch them, emulate them, and test them."""

from ternhost import device_library

device_library.provide(__name__)
