"""Warns of certificates that expire soon, once a day."""

import time
from collections.abc import Callable
from pathlib import Path

_EVERY = 86_400.0  # seconds


class ExpiryWarnings:
    """Warns of the certificates of a broker's directory while a program runs."""

    def __init__(self, directory: Path, warn: Callable[[str], None]) -> None:
        """Prepare to warn. warn: is called with each warning."""
        self._directory = directory
        self._warn = warn
        self._next_check = time.monotonic()

    def check(self) -> None:
        """Warn of certificates that expire soon, if the last check was a day ago or more."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _EVERY
        try:
            from ternhost.reach import certificates  # they need an extra
        except ModuleNotFoundError:
            return  # without it, tern has not made them either
        for warning in certificates.expiry_warnings(self._directory):
            self._warn(warning)
