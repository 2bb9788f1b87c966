"""Gateways: sites that keep their keys, and add up the reports of their devices."""

from ternhost import device_library, extras

device_library.provide(__name__)
extras.EXTRAS["nats"] = {"bcrypt": "bcrypt", "nats": "nats-py"}
