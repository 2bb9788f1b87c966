"""Measurements of boards: latency, energy, and the life of a battery."""

import ternhost  # noqa: F401 -- which sees to it that `tern` is the device library
