import pytest

from terntools.boards import starting


@pytest.fixture(autouse=True, scope="session")
def patience():
    """An emulated board starts in a second, but takes far longer on a busy machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(starting, "HELLO_WAIT", 300.0)
        yield
