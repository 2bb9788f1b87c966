"""Measurements of boards: latency, energy, and the life of a battery."""

from ternhost import device_library

device_library.provide(__name__)
