import pytest
import rig

from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from terntools.boards import deploy
from terntools.emulators.micropython import find_micropython


@pytest.fixture(scope="session")
def micropython():
    return find_micropython()


@pytest.fixture(autouse=True, scope="session")
def patience():
    """An emulated board starts in a second; on a busy machine it may take far longer."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deploy, "HELLO_WAIT", 300.0)
        yield


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


@pytest.fixture
def running(tmp_path, request):
    """A broker for the boards that have the KEYS of the test's module."""
    configuration.write_configuration(tmp_path, request.module.KEYS, port=free_port())
    with Mosquitto(tmp_path) as broker:
        yield broker
