"""The options and files of a member of a fleet are checked before they are written to its board."""

import argparse
import json

import numpy as np
import pytest

from tern import ledger, storage
from ternhost.cli import main
from ternhost.datasets import own
from ternhost.errors import USAGE, UsageError
from ternhost.store.fleet_key import FleetKey
from terntools.boards import member_options
from terntools.boards.member import FleetSettings, Member
from terntools.boards.network import Broker
from terntools.boards.policy import policy

WITHOUT_LIMITS = dict.fromkeys(("largest", "budget", "delta", "budget_rho"))
ROWS = np.zeros((1, 4), np.int16)
ONE = 16384  # 1.0 as Q1.14


def member(*options):
    """The member that these options of `tern board provision --device 7` describe."""
    parser = argparse.ArgumentParser()
    member_options.add_options(parser, required=False)
    return member_options.member_of(parser.parse_args(["--device", "7", *options]))


RHO_OF_10 = 1_539_278  # millionths: the rho of epsilon 10 at delta 1e-6


@pytest.mark.parametrize(
    ("words", "measure", "largest", "budget"),
    [
        ({"largest": "2", "budget": "100"}, ledger.EPSILON, 2_000_000, 100_000_000),
        ({"budget": "10", "delta": "1e-6"}, ledger.RHO, RHO_OF_10, RHO_OF_10),
        ({"largest": "0.1", "budget": "10", "delta": "1e-6"}, ledger.RHO, 100_000, RHO_OF_10),
        ({"budget_rho": "1.5"}, ledger.RHO, 1_500_000, 1_500_000),
    ],
)
def test_a_policy_is_parsed_to_millionths(words, measure, largest, budget):
    limits = policy(**WITHOUT_LIMITS | words)
    assert (limits.measure, limits.largest, limits.budget) == (measure, largest, budget)


@pytest.mark.parametrize(
    "words",
    [
        {"largest": "3", "budget": "2"},
        {"largest": "2", "budget": "3.00000001"},  # millionths are the smallest
        {"largest": "2", "budget": "1e9"},
        {"largest": "2", "budget": "inf"},
        {"largest": "-1", "budget": "2"},
        {"budget": "10", "delta": "1"},
        {"budget": "10", "budget_rho": "1"},  # two budgets
        {"largest": "2", "budget": "10", "delta": "1e-6"},  # a budget of rho 1.539
    ],
    ids=str,
)
def test_an_impossible_policy_is_refused(words):
    with pytest.raises(UsageError):
        policy(**WITHOUT_LIMITS | words)


def test_a_refused_provisioning_leaves_no_store(tmp_path):
    store = tmp_path / "store.sqlite"
    assert (
        main(["board", "provision", "/dev/null", "--store", str(store), "--device", "7"]) == USAGE
    )
    assert not store.exists()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("bias,x,label\n1,-0.5,1\n1,0.25,-1\n", [[ONE, -ONE // 2, ONE], [ONE, ONE // 4, -ONE]]),
        ("\ufeff\n1,0\n\n0,1\n\n", [[ONE, 0], [0, ONE]]),  # a byte order mark, empty lines
    ],
)
def test_records_are_read_from_a_csv_file(tmp_path, text, rows):
    path = tmp_path / "records.csv"
    path.write_text(text, encoding="utf-8")
    assert own.read_csv(path).tolist() == rows


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a,b\n", "holds no records"),
        (b"1,2\n", "line 1"),  # 2 is beyond 1
        (b"1,0\n1,nan\n", "line 2"),
        (b"1,x\n1,0\n", "line 1"),  # a typing error, not a row of names
        (b"a,b\n1,0\n\n1\n", "line 4"),  # a value is missing
        ("1,0\n".encode("utf-16"), "no CSV file in UTF-8"),
    ],
)
def test_a_bad_csv_file_is_refused_with_its_line(tmp_path, content, reason):
    path = tmp_path / "records.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=reason):
        own.read_csv(path)


@pytest.mark.parametrize("address", ["", "a b", "host:70000", "-host"])
def test_a_bad_address_of_a_broker_is_refused(address):
    with pytest.raises(UsageError, match=r"--broker must be HOST\[:PORT\]"):
        Broker.parse(address)


@pytest.fixture
def secret(tmp_path):
    """The file of a Wi-Fi password."""
    path = tmp_path / "secret"
    path.write_text("a very secret word\n")
    return path


def test_a_board_gets_its_broker_and_network_as_files(tmp_path, secret):
    """A board with Wi-Fi reads its network, its broker and the broker's certificate authority from
    its flash.
    """
    authority = tmp_path / "authority.der"
    authority.write_bytes(b"\x30\x82 and so on")
    files = Broker.parse("broker.example", authority, "lab", secret, "birds").files()
    assert json.loads(files["/mqtt.json"]) == {
        "host": "broker.example",
        "port": 8883,
        "authority": "authority.der",
        "ssid": "lab",
        "wifi_password": "a very secret word",
        "prefix": "birds",
    }
    assert files["/authority.der"] == authority.read_bytes()


def test_no_representation_shows_a_secret(tmp_path, secret):
    assert "secret word" not in repr(Broker.parse("host", ssid="lab", wifi_secret_file=secret))
    config = tmp_path / "mine.json"
    config.write_text('{"secret": 1}')
    link = ["--link", f"unix.json={config}"]
    assert "secret" not in repr(member("--own-records", *link))


def test_a_password_that_cannot_be_decoded_is_not_kept_in_the_error(secret):
    secret.write_bytes(b"a secret \xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text") as caught:
        Broker.parse("host", ssid="lab", wifi_secret_file=secret)
    assert caught.value.__suppress_context__, "the bytes that failed to decode are the secret"


def test_bad_wifi_and_certificates_are_refused(secret):
    """A mistake is found before files are written to a board that could then not be reached."""
    with pytest.raises(UsageError):  # a password without the name of a network
        Broker.parse("host", wifi_secret_file=secret)
    with pytest.raises(UsageError):
        Broker.parse("host", authority=secret)
    secret.write_text("7 chars")
    with pytest.raises(UsageError, match="8 to 63"):
        Broker.parse("host", ssid="lab", wifi_secret_file=secret)


@pytest.fixture
def link_files(tmp_path):
    """The options that put a link of one's own on a board: its configuration and its key."""
    config, key = tmp_path / "mine.json", tmp_path / "client.key"
    config.write_text('{"path": "socket"}')
    key.write_bytes(b"a key")
    return f"unix.json={config}", f"unix.key={key}"


@pytest.mark.parametrize(
    "option",
    [
        "/unix.json={config}",
        "clients.bin={config}",  # the board's own file
        "unix.json={key}",  # no JSON
        "unix.key={key}",  # which names no link
    ],
)
def test_a_link_that_a_board_could_not_use_is_refused(link_files, option):
    config, key = (words.partition("=")[2] for words in link_files)
    with pytest.raises(UsageError):
        member("--own-records", "--link", option.format(config=config, key=key))


@pytest.mark.parametrize(
    ("options", "settings"),  # pause, slot, reserve, epoch, bound on records, unit
    [
        ([], (0, 500, 1, 5, 64, 0)),
        (["--slot-ms", "0", "--pause", "60", "--reserve", "24"], (60, 0, 24, 5, 64, 0)),
        (["--unit", "record"], (0, 500, 1, 5, 64, 1)),
        (["--count", "65"], (0, 500, 1, 5, 128, 0)),  # a power of two
    ],
)
def test_options_are_settings_in_the_file_of_the_fleet(tmp_path, options, settings):
    path, fleet = tmp_path / storage.FLEET, FleetKey(bytes(range(32)), epoch=5)
    path.write_bytes(member("--data", "iris", *options).fleet_file(fleet))
    assert storage.read_fleet(str(path)) == (fleet.key, *settings)


def sleeper(**fields):
    """A member on a broker that sleeps."""
    fields = {"broker": Broker("broker.local", 1883), "wake": 3600, **fields}
    return Member(7, ROWS, policy("2", "100"), **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"broker": None},
        {"settings": FleetSettings(reserve=24)},  # it would lose up to 23 reports at each wake
        {"settings": FleetSettings(pause=60)},
        {"lock": True},
        {"wake": 0},
        {"wake": 86_401},  # more than a day
    ],
)
def test_what_a_sleeping_board_cannot_do_is_refused(fields):
    with pytest.raises(UsageError):
        sleeper(**fields)
