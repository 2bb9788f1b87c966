import os

import brokers
import pytest
import rig
from harness import installed

from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from terntools.boards import starting
from terntools.emulators.debian import NEXT
from terntools.emulators.micropython import find_micropython


@pytest.fixture(scope="session")
def micropython():
    return find_micropython()


@pytest.fixture(autouse=True, scope="session")
def patience():
    """An emulated board starts in a second, but takes far longer on a busy machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(starting, "HELLO_WAIT", 300.0)
        yield


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The package's wheel. Modules that use it are in the group "wheel", so that it is built once."""
    return installed.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def site(tmp_path, micropython):
    """Provision a fleet: `site(clients=..., boards=...)`."""
    sites = []

    def make(**options):
        sites.append(rig.make_site(tmp_path, micropython, **options))
        return sites[-1]

    yield make
    for made in sites:
        made.store.close()


@pytest.fixture(params=["installed", NEXT])
def mosquitto(request, monkeypatch):
    """The test runs with the installed Mosquitto, and with that of Debian's testing release."""
    if request.param == NEXT:
        folder = brokers.fetched("mosquitto", NEXT)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def running(tmp_path, request):
    """A running broker that knows the KEYS of the test's module."""
    configuration.write_configuration(
        tmp_path, request.module.KEYS, configuration.BrokerOptions(port=free_port())
    )
    with Mosquitto(tmp_path) as broker:
        yield broker
