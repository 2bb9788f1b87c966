"""The options and files of a member of a fleet are checked before they are written to its board."""

import argparse
import json
import shutil

import numpy as np
import pytest

from tern import ledger, storage
from ternhost import datasets
from ternhost.cli import main
from ternhost.datasets import Selection
from ternhost.errors import USAGE, UsageError
from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.reach.broker import configuration, for_boards
from ternhost.store import store_file
from ternhost.store.fleet_key import FleetKey
from terntools.boards import member_options
from terntools.boards.member import FleetSettings, Member
from terntools.boards.network import Broker
from terntools.boards.policy import policy

ROWS = np.zeros((1, 4), np.int16)
ONE = 16384  # 1.0 as Q1.14


def member(*options):
    """The member that these options of `tern board provision --device 7` describe."""
    return member_options.member_of(member_options_of(*options))


def member_options_of(*options):
    """The arguments of `tern board provision --device 7` with these options."""
    parser = argparse.ArgumentParser()
    member_options.add_options(parser)
    return parser.parse_args(["--device", "7", *options])


RHO_OF_1, RHO_OF_10 = 24_355, 1_539_278  # millionths: the rho of epsilon 1 and 10 at delta 1e-6


@pytest.mark.parametrize(
    ("words", "measure", "largest", "budget"),
    [
        (["2", "100"], ledger.EPSILON, 2_000_000, 100_000_000),
        ([None, None], ledger.EPSILON, 2_000_000, 100_000_000),
        ([None, "10", "1e-6"], ledger.RHO, RHO_OF_10, RHO_OF_10),
        (["1", "10", "1e-6"], ledger.RHO, RHO_OF_1, RHO_OF_10),
    ],
)
def test_a_policy_is_parsed_to_millionths(words, measure, largest, budget):
    limits = policy(*words)
    assert (limits.measure, limits.largest, limits.budget) == (measure, largest, budget)


@pytest.mark.parametrize(
    "words",
    [
        ["3", "2"],
        ["2", "3.00000001"],  # millionths are the smallest
        ["2", "1e9"],
        ["2", "inf"],
        ["-1", "2"],
        [None, "10", "1"],
        ["11", "10", "1e-6"],
    ],
    ids=str,
)
def test_an_impossible_policy_is_refused(words):
    with pytest.raises(UsageError):
        policy(*words)


def test_a_refused_provisioning_leaves_no_store(tmp_path):
    store = tmp_path / "store.sqlite"
    words = ["board", "provision", "/dev/null", "--store", str(store), "--device", "7"]
    assert main([*words, "--data", "no-such-data-set"]) == USAGE
    assert not store.exists()


def rows_of(*options):
    return member(*options).rows.tolist()


def test_a_device_gets_the_records_of_its_file(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("1,0,2\n1,1,0\n")
    assert rows_of("--data", str(path)) == [[ONE, 0, 2], [ONE, ONE, 0]]


HOMES = ["B3", "A1", "C2"]  # in the order of the table


@pytest.fixture
def homes(tmp_path):
    """A table of three homes, with 20 records each that are numbered in their second column."""
    path = tmp_path / "homes.csv"
    lines = ["home,number,label"]
    for moment in range(20):
        for place, home in enumerate(HOMES):
            lines.append(f"{home},{20 * place + moment},{moment % 2}")
    path.write_text("\n".join(lines) + "\n")
    schema = """label = "label"
        [columns.number]
        low = 0
        high = 60
        [columns.label]
        categories = ["0", "1"]
        """
    path.with_suffix(".toml").write_text(schema)
    return str(path)


def numbers_of(device, path, *options):
    """The numbers of the records that a device gets of the table of homes."""
    rows = member("--device", str(device), "--data", path, *options).rows
    return np.rint((rows[:, 1] / ONE + 1) * 30).astype(int).tolist()


@pytest.mark.parametrize("device", [1, 2, 3])
def test_a_device_gets_the_records_of_its_owner(device, homes):
    numbers = numbers_of(device, homes, "--by", "home")
    assert {number // 20 for number in numbers} == {device - 1}


def test_no_device_gets_records_that_judge_models(homes):
    on_devices = [
        numbers_of(device, homes, "--by", "home", "--held-out", "0.3") for device in (1, 2, 3)
    ]
    data = datasets.load(homes, selection=Selection(by="home", held_out=0.3))
    assert sum(len(numbers) for numbers in on_devices) == len(data.training) == 60 - len(data.test)


def test_the_owner_is_said(homes, capsys):
    member("--device", "2", "--data", homes, "--by", "home")
    assert "device 2" in (said := capsys.readouterr().err)
    assert "home A1" in said


def test_a_program_names_the_column_of_owners(homes):
    named = member_options.MemberOptions(device=3, data=homes, by="home").member
    assert (
        named.rows.tolist()
        == member("--device", "3", "--data", homes, "--by", "home").rows.tolist()
    )


def test_a_device_beyond_the_owners_is_refused_with_their_list(homes):
    with pytest.raises(UsageError) as refused:
        member("--device", "4", "--data", homes, "--by", "home")
    assert "1: B3, 2: A1, 3: C2" in refused.value.hint


def test_without_owners_each_device_gets_another_part_of_a_table(homes):
    first, second = (numbers_of(device, homes, "--records", "9") for device in (1, 2))
    assert len({*first, *second}) == 18


def test_a_part_beyond_the_table_is_refused(homes):
    with pytest.raises(UsageError):
        member("--device", "4", "--data", homes, "--records", "20")


def test_a_data_set_has_no_column_of_owners():
    with pytest.raises(UsageError, match="--by"):
        member("--data", "iris", "--by", "home")


def test_a_device_gets_one_record_of_a_data_set():
    (row,) = rows_of("--data", "iris", "--records", "1")
    assert row == rows_of("--data", "iris")[0]
    assert row[-1] in range(3), "iris has three classes"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--data", "no-such"], "--data"),
        (["--data", "own", "--records", "3"], "--records"),
        (["--data", "iris", "--records", "0"], "--records"),
    ],
)
def test_impossible_records_are_refused_by_their_option(options, named):
    with pytest.raises(UsageError, match=named):
        member(*options)


@pytest.fixture
def secret(tmp_path):
    """The file of a Wi-Fi password."""
    path = tmp_path / "secret"
    path.write_text("a very secret word\n")
    return path


@pytest.fixture
def broker(tmp_path):
    """The directory of a broker."""
    directory = tmp_path / "broker"
    configuration.configure(directory, names=("broker.example",), port=8884, prefix="birds")
    return directory


def test_a_board_gets_its_broker_and_network_as_files(broker, secret):
    """A board with Wi-Fi reads its network, its broker and the broker's certificate authority from
    its flash.
    """
    files = Broker.at(broker, "lab", secret).files()
    assert json.loads(files["/mqtt.json"]) == {
        "host": "broker.example",
        "port": 8884,
        "authority": DEVICE_AUTHORITY,
        "ssid": "lab",
        "wifi_password": "a very secret word",
        "prefix": "birds",
    }
    assert files["/" + DEVICE_AUTHORITY] == (broker / DEVICE_AUTHORITY).read_bytes()


def test_a_copy_of_the_file_for_boards_gives_the_same_files(broker, tmp_path):
    copy = shutil.copy(broker / for_boards.FILE, tmp_path / "copy.json")
    assert Broker.at(copy).files() == Broker.at(broker).files()


def test_the_store_is_that_of_the_broker(broker):
    options = member_options_of("--data", "iris", "--broker", str(broker))
    store = member_options.store_of(options, member_options.member_of(options))
    assert store == broker / store_file.NAME


@pytest.mark.parametrize("is_copied", [False, True], ids=["no broker", "a copy of its file"])
def test_without_the_directory_of_a_broker_the_store_is_named(broker, tmp_path, is_copied):
    link = []
    if is_copied:
        link = ["--broker", str(shutil.copy(broker / for_boards.FILE, tmp_path / "copy.json"))]
    options = member_options_of("--data", "iris", *link)
    with pytest.raises(UsageError) as refused:
        member_options.store_of(options, member_options.member_of(options))
    assert "--store" in refused.value.hint


def test_a_board_on_wifi_needs_a_broker_that_it_can_reach(tmp_path):
    configuration.configure(tmp_path)  # at localhost
    with pytest.raises(UsageError) as refused:
        Broker.at(tmp_path, "lab")
    assert "--host" in refused.value.hint


def test_no_representation_shows_a_secret(broker, tmp_path, secret):
    assert "secret word" not in repr(Broker.at(broker, "lab", secret))
    config = tmp_path / "mine.json"
    config.write_text('{"secret": 1}')
    assert "secret" not in repr(member("--data", "own", "--link", f"unix.json={config}"))


def test_a_password_that_cannot_be_decoded_is_not_kept_in_the_error(broker, secret):
    secret.write_bytes(b"a secret \xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text") as caught:
        Broker.at(broker, "lab", secret)
    assert caught.value.__suppress_context__, "the bytes that failed to decode are the secret"


def test_a_password_without_the_name_of_its_network_is_refused(broker, secret):
    with pytest.raises(UsageError):
        Broker.at(broker, wifi_secret_file=secret)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "7 chars",
        "1234567ü",
        "network: lab\npassword: a very secret word",
        "a very\tsecret word",
        "a very secret\0word",
        "x" * 64,  # 64 are a key in hexadecimal digits
        "x" * 100_000,
    ],
    ids=repr,
)
def test_a_password_that_no_network_can_have_is_refused_and_not_told(broker, secret, content):
    secret.write_text(content)
    with pytest.raises(UsageError) as refused:
        Broker.at(broker, "lab", secret)
    said = f"{refused.value.message} {refused.value.hint}"
    assert "very" not in said
    assert len(said) < 400


@pytest.mark.parametrize(
    "content",
    ["8 chars.", " with spaces ", "x" * 63, "0aF9" * 16, "a secret\r\n", "\ufeffa secret"],
    ids=repr,
)
def test_a_password_that_a_network_can_have_is_taken_as_it_is(broker, secret, content):
    secret.write_text(content)
    taken = Broker.at(broker, "lab", secret).wifi_secret
    assert taken == content.rstrip("\r\n").removeprefix("\ufeff")


@pytest.mark.parametrize("ssid", ["", "x" * 33, "ü" * 17, "a\nb", "caf\udce9"], ids=ascii)
def test_a_name_that_no_network_can_have_is_refused(broker, ssid):
    with pytest.raises(UsageError, match="--ssid"):
        Broker.at(broker, ssid)


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
        "unix.json={config} --link authority.der={key}",
        "unix.json={config} --link client.der={key}",
        "unix.json={config} --link client.pem={key}",
    ],
)
def test_a_link_that_a_board_could_not_use_is_refused(link_files, option):
    config, key = (words.partition("=")[2] for words in link_files)
    with pytest.raises(UsageError):
        member("--data", "own", "--link", *option.format(config=config, key=key).split())


@pytest.mark.parametrize(
    ("options", "settings"),  # pause, slot, reserve, epoch, bound on records, unit
    [
        ([], (0, 500, 1, 5, 64, 0)),
        (["--slot-ms", "0", "--pause", "60", "--reserve", "24"], (60, 0, 24, 5, 64, 0)),
        (["--unit", "record"], (0, 500, 1, 5, 64, 1)),
        (["--records", "65"], (0, 500, 1, 5, 128, 0)),  # a power of two
        (["--most-records", "600"], (0, 800, 1, 5, 600, 0)),  # a slot for a gradient of all
        (["--most-records", "600", "--slot-ms", "700"], (0, 700, 1, 5, 600, 0)),
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
