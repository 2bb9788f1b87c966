"""The folders of tests for boards and of test vectors, in a checkout or an installed package."""

import shlex
from pathlib import Path

import ternspecs
import terntests.device
import terntests.hil

DEVICE = Path(next(iter(terntests.device.__path__))).resolve()
HIL = Path(next(iter(terntests.hil.__path__))).resolve()
FIGURES = HIL / "figures.py"  # measures what a hardware map expects of a board
SPEC = DEVICE.parent / "spec"  # encoders of cards and frames that tests share
VECTORS = Path(next(iter(ternspecs.__path__)), "vectors")

# Settings that DEVICE needs, for pytest in a folder without the pyproject.toml that has them.
_FOLDERS = f"pythonpath={shlex.quote(str(DEVICE))} {shlex.quote(str(SPEC.parent))}"
_DEVICE_TESTS = f"tern_device_tests={shlex.quote(str(DEVICE))}"
PYTEST_OPTIONS = ("--import-mode=importlib", "-o", _DEVICE_TESTS, "-o", _FOLDERS)
