"""What tests need of packages that may be taken away from the core."""

from importlib.util import find_spec

import pytest

needs_papers = pytest.mark.skipif(
    find_spec("ternpapers") is None, reason="the package ternpapers is not there"
)
