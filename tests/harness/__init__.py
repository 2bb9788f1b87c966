"""What goes wrong on a network that nobody trusts, made to go wrong on purpose: faults, attacks, and what must hold."""

from pathlib import Path

DEVICE_PROGRAM = Path(__file__).with_name("timing_device.py")
