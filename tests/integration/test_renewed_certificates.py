"""A broker's certificate expires while boards are connected, and is renewed without touching them."""

import ssl
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import rig
from harness.guide import commands
from harness.raw_client import RawClient
from harness.terminals import run
from harness.waiting import wait_for

from ternhost.reach import certificates
from ternhost.reach.broker.access import CERTIFICATE
from ternhost.reach.broker.mosquitto import Mosquitto
from ternhost.store.store import Store
from terntools.emulators.unix_fleet import EmulatedFleet

LIFE = 8.0  # seconds of a short-lived certificate: long enough for a board to connect
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operate.md"


def short_lived_certificate(directory, seconds):
    """Replace the certificate of a broker by one that expires soon; its authority stays."""
    with pytest.MonkeyPatch.context() as patch:
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        patch.setattr(certificates, "_NOT_AFTER", end.replace(tzinfo=None))
        certificates.write_certificates(directory, ["localhost", "127.0.0.1"])


def client(access):
    return RawClient(access, access.user, access.password)


def why_refused(access):
    """The error with which a new client does not accept the broker; None if it does."""
    try:
        client(access).close()
    except ssl.SSLError as error:
        return error
    return None


class Expired:
    """What happened as a certificate expired, and after it was renewed."""

    def __init__(self, directory, micropython):
        store, boards, access = rig.attached(
            directory, 1, rig.random_rows(1, 1, rig.D + 1), rig.Policy(rig.COST, 4 * rig.COST)
        )
        broker = directory / "broker"
        short_lived_certificate(broker, LIFE)
        self.warnings = certificates.expiry_warnings(broker)
        with Mosquitto(broker), EmulatedFleet(micropython, boards) as fleet:
            early = client(access)
            early.subscribe("tern/hello/+")
            self.board_came = bool(early.messages(LIFE, 1))
            expires = certificates.expiries(broker)[CERTIFICATE]
            time.sleep(max(0.0, expires - time.time()) + 1)

            self.refusal = why_refused(access)
            self.early_client_is_served = bool(early.publish("tern/down/00000001", b""))
            fleet.boards[0].restart()  # its connection is lost
            rig.tern("broker", "config", broker, code=0)
            self.is_renewed = bool(wait_for(lambda: why_refused(access) is None, 20))
            early.close()
            self.lines = rig.serving_on_broker(
                directory, store, "--rounds", 1, "--every", 0, "--deadline", 60
            ).finish()[0]
            with Store(store, beside=True) as opened:
                self.reports = opened.report_count()


@pytest.fixture(scope="module")
def expired(tmp_path_factory, micropython):
    return Expired(tmp_path_factory.mktemp("expired"), micropython)


def test_a_certificate_that_expires_soon_is_warned_of(expired):
    (warning,) = expired.warnings
    assert "tern broker config" in warning


def test_nobody_connects_to_a_broker_whose_certificate_has_expired(expired):
    assert isinstance(expired.refusal, ssl.SSLCertVerificationError)


def test_who_was_connected_before_a_certificate_expired_stays_connected(expired):
    assert expired.board_came
    assert expired.early_client_is_served


def test_a_running_broker_takes_a_renewed_certificate(expired):
    assert expired.is_renewed


def test_a_board_reports_after_a_renewal_without_being_touched(expired):
    assert expired.reports == 1


# Without boards


@pytest.fixture
def broker(tmp_path):
    """The directory of a broker with a site."""
    directory = tmp_path / "broker"
    rig.tern("broker", "config", directory, "--host", "localhost", code=0)
    rig.tern("broker", "site", directory, "lab", "--host", "localhost", code=0)
    return directory


def content(directory):
    return (directory / CERTIFICATE).read_bytes()


def test_a_certificate_that_is_valid_for_long_stays(broker):
    before = content(broker)
    rig.tern("broker", "config", broker, code=0)
    assert content(broker) == before


def test_a_renewed_certificate_has_the_names_and_the_authority_of_the_old_one(broker):
    authority = (broker / "authority.der").read_bytes()
    certificates.write_certificates(broker, ["localhost", "fleet.example.org"])
    names = certificates.names_of(broker / CERTIFICATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "_NOT_AFTER", datetime(2026, 12, 1))
        certificates.write_certificates(broker, names)
    before = content(broker)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "SOON", 100 * 365 * 86400.0)
        rig.tern("broker", "config", broker, code=0)
    assert content(broker) != before
    assert certificates.names_of(broker / CERTIFICATE) == names
    assert (broker / "authority.der").read_bytes() == authority


def test_a_certificate_of_somebody_else_is_not_replaced(broker):
    """Without the key of its authority, tern cannot sign another one."""
    (broker / "authority.key").unlink()
    short = content(broker)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "SOON", 100 * 365 * 86400.0)
        rig.tern("broker", "config", broker, code=0)
    assert content(broker) == short


def test_a_new_authority_signs_the_broker_and_its_sites(broker):
    """The steps of the guide: the files of the old authority are moved away."""
    _renew, move_away, make_new = commands(GUIDE, "Certificates")
    broker.rename(broker.with_name("my-broker"))
    broker = broker.with_name("my-broker")
    old = broker.parent / "old"
    for step in (move_away, make_new):
        ended, said = run(["sh", "-ec", step], broker.parent, 60)
        assert ended == 0, said

    assert (broker / "authority.der").read_bytes() != (old / "authority.der").read_bytes()
    assert not certificates.must_be_renewed(broker, signer=broker)
    assert not certificates.must_be_renewed(broker / "sites" / "lab", signer=broker)


@pytest.mark.parametrize("days", [29, 31])
def test_a_certificate_is_warned_of_thirty_days_before_it_expires(broker, days):
    short_lived_certificate(broker, days * 86400)
    assert bool(certificates.expiry_warnings(broker)) == (days < 30)
