"""Ids of devices as people write them: one, or FIRST-LAST."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from tern import wire
from ternhost.errors import UsageError

LAST = wire.FLEET - 1  # the largest id of a device

_WRITTEN = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


def parse_range(text: str) -> range:
    """The ids that `7` or `10-19` names. Raises UsageError."""
    match = _WRITTEN.fullmatch(text)
    if not match:
        raise UsageError(f"{text!r} is not a device", hint="give an id, or a range such as 10-19")
    ids = range(int(match[1]), int(match[2] or match[1]) + 1)
    if not ids:
        raise UsageError(f"{text!r} is an empty range", hint="give the smaller id first")
    if ids[0] < 1 or ids[-1] > LAST:
        raise UsageError(f"a device's id must be 1 to {LAST}, and {text!r} is not")
    return ids


def check_apart(sites: Mapping[str, range]) -> None:
    """Raise UsageError where two sites would have the same device. sites: by name, the ids of the devices."""
    known = sorted((ids.start, ids.stop, site) for site, ids in sites.items())
    for (_, stop, site), (start, _, other) in itertools.pairwise(known):
        if start < stop:
            message = f"sites {site} and {other} would both have device {start}"
            raise UsageError(message, hint="give each site ids of its own")
