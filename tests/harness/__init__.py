"""What goes wrong on a network that nobody trusts, made to go wrong on purpose: faults, attacks, and what must hold."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "device"))  # where streams is
