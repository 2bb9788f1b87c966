"""Does the time from round to report depend on the data? A two-sample test on the emulated device.

Two extreme inputs: each client, drawn at random, holds a record whose gradient is -1 in every coordinate, or
one with +1. With a card of 16 levels the symbol is found by counting thresholds, few for the one and many for the
other. Test: Welch's t, on all times and on shares of those that are shortest, as Reparaz, Balasch and
Verbauwhede do (Dude, is my code constant time?, 2017); above LIMIT in absolute value the times are taken to differ.
"""

import math
import struct
import subprocess
from pathlib import Path

import numpy as np

from harness import DEVICE_PROGRAM
from tern import card as cards
from tern.card import T
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import new_keys, provision_board
from ternhost.reach.broker.attach import fleet_file
from terntools.emulators.micropython import device_command, find_micropython
from terntools.testing.device_tests import FIRMWARE

D = 128
LIMIT = 5.5  # above it by chance in one of 26 million, for each share; above the 4.5 of others, in 150,000
CROPS = (1.0, 0.9, 0.75, 0.5, 0.25)
_EPSILON = 4.0


def _card():
    # Two knots, -1 and +1, and 16 levels: the first is likely at -1, the last at +1.
    small = math.ceil(T / (math.exp(_EPSILON) + 15))
    rows = [[T - 15 * small + j * small for j in range(15)], [(j + 1) * small for j in range(15)]]
    data = struct.pack("<BIBB16b", 0x11, round(_EPSILON * 1e6), 0, 16, *range(-8, 8))
    return data + b"".join(struct.pack("<15I", *row) for row in rows)


CARD = cards.decode(_card())
assert cards.certify(CARD)


def measure(directory, reports, slot, task=False):
    """Time so many reports with a slot of `slot` ms, 0 for none; return the statistics and what they are of.

    task: as an application's task does it, by receive(0) and sleeps.
    """
    directory = Path(directory)
    cost = D * CARD.epsilon
    # Linear regression with w = 0: the gradient is -y x. Each client reports once.
    rows = np.full((reports, D + 1), 16384, np.int16)
    positive = np.random.default_rng().random(reports) < 0.5
    rows[positive, D] = -16384
    keys = list(new_keys(range(1, reports + 1)).values())
    provision_board(directory, 1, keys, rows, Policy(cost, cost))
    (directory / "fleet.bin").write_bytes(fleet_file(bytes(32), slot=slot))
    (directory / "card").write_bytes(CARD.data)
    command = device_command(
        find_micropython(), DEVICE_PROGRAM, directory, "task" if task else "serve", heap="1M"
    )
    done = subprocess.run(
        command, env={"MICROPYPATH": str(FIRMWARE)}, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    found = np.array(done.stdout.split(), np.int64)
    low, high = found[~positive], found[positive]
    return {
        "n": len(found),
        "slot_ms": slot,
        "t": {str(share): round(cropped(high, low, share), 2) for share in CROPS},
        "us_median": [float(np.median(low)), float(np.median(high))],
        "us_90_percent": float(np.quantile(found, 0.9)),
    }


def cropped(a, b, share):
    """Welch's t of what is below the quantile `share` of both samples together."""
    limit = np.quantile(np.concatenate((a, b)), share)
    a, b = a[a <= limit], b[b <= limit]
    spread = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    return float((a.mean() - b.mean()) / spread) if spread else 0.0


def dependent(result):
    """Whether a result shows that the time depends on the data."""
    return max(abs(t) for t in result["t"].values()) > LIMIT
