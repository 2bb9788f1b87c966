"""Fixtures that tests of views share."""

import pytest

from terntools.emulators.micropython import find_micropython


@pytest.fixture(scope="session")
def micropython():
    return find_micropython()
