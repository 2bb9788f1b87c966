"""Faults and attacks on an untrusted network, made on purpose, and checks of the invariants that
must hold then.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "device"))  # where streams is
