import pytest
import rig

from terntools.emulators.micropython import find_micropython


@pytest.fixture(scope="session")
def micropython():
    return find_micropython()


@pytest.fixture
def site(tmp_path, micropython):
    """Make a fleet: `site(clients=..., boards=...)`."""
    made = []

    def make(**options):
        made.append(rig.make_site(tmp_path, micropython, **options))
        return made[-1]

    yield make
    for one in made:
        one.store.close()
