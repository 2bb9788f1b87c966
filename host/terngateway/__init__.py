"""Gateways: sites that keep their keys, and add up the reports of their devices."""

from ternhost import device_library

device_library.provide(__name__)
