"""The options and files of a member of a fleet are checked before they are written to its board."""

import argparse
import dataclasses
import json

import numpy as np
import pytest

from tern import ledger, storage
from ternhost import datasets
from ternhost.cli import main
from ternhost.datasets import own
from ternhost.errors import USAGE, UsageError
from ternhost.store.fleet_key import FleetKey
from terntools.boards import deploy, member_options, up
from terntools.boards.member import FleetSettings, Member, dataset_records
from terntools.boards.network import Broker
from terntools.boards.policy import policy

ROWS = np.zeros((1, 4), np.int16)
ONE = 16384  # 1.0 as Q1.14


def member(*options):
    """The member that these options of `tern provision --device 7` describe."""
    parser = argparse.ArgumentParser()
    member_options.add_options(parser, required=False)
    return member_options.member_of(parser.parse_args(["--device", "7", *options]))


@pytest.mark.parametrize(
    ("options", "largest", "budget"),
    [
        (("2", "100"), 2_000_000, 100_000_000),
        ((None, "10", "1e-6"), 1_539_278, 1_539_278),  # rho of epsilon 10 at this delta
        (("0.1", "10", "1e-6"), 100_000, 1_539_278),
        ((None, None, None, "1.5"), 1_500_000, 1_500_000),
    ],
)
def test_a_policy_is_parsed_to_millionths(options, largest, budget):
    limits = policy(*options)
    assert (limits.largest, limits.budget) == (largest, budget)
    assert (limits.measure == ledger.RHO) == (len(options) > 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("3", "2"), "--largest must be at most --budget"),
        (("2", "x"), "budget x is not a number"),
        (("2", "3.00000001"), "whole number of millionths"),
        (("2", "1e9"), "budget 1e9"),
        (("2", "inf"), "budget inf"),
        (("-1", "2"), "largest -1"),
        ((None, "10", "1"), "delta must be between 0 and 1"),
        ((None, "10", "x"), "--delta must be a number"),
        ((None, "10", None, "1"), "--budget-rho is a budget by itself"),
        (("2", "10", "1e-6"), r"--largest must be at most .* \(rho 1.53928\), not 2"),
    ],
)
def test_an_impossible_policy_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        policy(*options)


def test_a_board_with_its_own_records_gets_a_placeholder():
    board = member("--own-records")
    assert not board.rows.any()
    assert board.settings.most_records == 256, "the capacity of a recorder"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "records from one place"),
        (("--own-records", "--dataset", "wine"), "records from one place"),
        (("--records", "a.csv", "--dataset", "wine"), "records from one place"),
        (("--own-records", "--count", "1"), "--own-records and --count are at odds"),
        (("--own-records", "--classes"), "--own-records and --classes are at odds"),
        (("--dataset", "flights", "--count", "0"), "--count must be 1 or more"),
        (("--dataset", "flights", "--ssid", "lab"), "--ssid needs a broker"),
        (("--dataset", "flights", "--most-records", "0"), "--most-records must be 1 to 65535"),
        (("--dataset", "flights", "--most-records", "65536"), "--most-records must be 1 to 65535"),
    ],
)
def test_options_that_do_not_make_a_member_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        member(*options)


def test_a_refused_provisioning_leaves_no_store(tmp_path):
    store = tmp_path / "store.sqlite"
    assert main(["provision", "/dev/null", "--store", str(store), "--device", "7"]) == USAGE
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
    ("content", "message"),
    [
        (b"", "holds no records"),
        (b"a,b\n", "holds no records"),
        (b"1\n2\n", "line 1 must have 2 or more values, not 1"),
        (b"1,2\n", r"line 1: values must be in \[-1, 1\], not 2"),
        (b"a,b\n1,1\n1,-inf\n", "line 3: .* not -inf"),
        (b"1,0\n1,nan\n", "line 2: 'nan' is not a number"),
        (b"1,x\n1,0\n", "line 1: 'x' is not a number"),  # a typing error, not a row of names
        (b"a,b\n1,0\n\n1\n", "line 4 must have 2 values, not 1"),
        (b"1,0\n1,0,\n", "line 2 must have 2 values, not 3"),
        (b'"first\nname",b\n1,0\n1,\n', "line 4: '' is not a number"),
        ("1,0\n".encode("utf-16"), "no CSV file in UTF-8"),
        ("größe,x\n1,0\n".encode("latin-1"), "no CSV file in UTF-8"),
        (b"1" * 200_000, "no CSV file in UTF-8"),
        (None, "cannot read"),
    ],
)
def test_a_bad_csv_file_is_refused_with_its_line(tmp_path, content, message):
    path = tmp_path / "records.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        own.read_csv(path)


def test_labels_may_be_numbers_of_classes(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("bias,x,label\n1,-0.5,0\n1,0.25,9\n")
    assert own.read_csv(path, classes=True)[:, -1].tolist() == [0, 9]
    labels = dataset_records("digits", 7, 50, classes=True)[:, -1]
    assert set(labels.tolist()) == set(range(10))


@pytest.mark.parametrize("label", ["-1", "128", "0.5", "x", ""])
def test_a_label_that_is_no_class_is_refused(tmp_path, label):
    path = tmp_path / "records.csv"
    path.write_text(f"1,0.5,3\n1,0.5,{label}\n")
    with pytest.raises(UsageError, match="line 2: the label must be the number of a class"):
        own.read_csv(path, classes=True)


@pytest.mark.parametrize(
    ("labels", "is_warned"),
    [((0, 1), True), ((0,), True), ((-1, 1), False), ((1,), False), ((0, 0.5, 1), False)],
)
def test_labels_of_0_and_1_are_taken_with_a_warning(labels, is_warned, tmp_path, capsys):
    path = tmp_path / "records.csv"
    path.write_text("".join(f"1,0.5,{label}\n" for label in labels))
    rows = member("--records", str(path)).rows
    assert rows[:, -1].tolist() == [round(ONE * label) for label in labels]
    assert (f"the labels in {path} are 0 or 1" in capsys.readouterr().err) == is_warned


def test_records_of_a_table_hold_categories_unscaled():
    table = datasets.TABLES["flights-table"]()
    rows = dataset_records("flights-table", 3, 2)  # devices 1 and 2 have the first four
    for row, position in zip(rows.tolist(), (4, 5), strict=True):
        assert row == [*table.numeric[position].tolist(), *table.codes[position].tolist(), 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device": 0}, "id must be 1 to"),
        ({"shapes": ("oval",)}, "--mechanisms must be of .*, not 'oval'"),
        ({"settings": FleetSettings(pause=86_401)}, "pause"),
        ({"settings": FleetSettings(slot=-1)}, "slot"),
        ({"settings": FleetSettings(slot=65_536)}, "slot"),
        ({"settings": FleetSettings(reserve=0)}, "--reserve must be 1 to 1000 reports, not 0"),
        ({"settings": FleetSettings(reserve=1001)}, "reports, not 1001"),
        ({"rows": np.zeros((1, 130), np.int16)}, "cannot hold"),
        ({"rows": np.zeros((0, 4), np.int16)}, "cannot hold"),
    ],
)
def test_an_impossible_member_is_refused(fields, message):
    fields = {"device": 7, "rows": ROWS, "policy": policy("2", "10"), **fields}
    with pytest.raises(UsageError, match=message):
        Member(**fields)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("10.0.0.1:1234", "10.0.0.1", 1234),
        ("10.0.0.1", "10.0.0.1", 1883),
        ("n1.local,[::1],10.0.0.1:1234", "n1.local,::1,10.0.0.1", 1234),
    ],
)
def test_the_address_of_a_broker_is_parsed(address, host, port):
    broker = Broker.parse(address)
    assert (broker.host, broker.port) == (host, port)


@pytest.mark.parametrize("address", ["", ":1883", "a b", "host:0", "host:70000", "host:x", "-host"])
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
    assert "secret" not in repr(member("--own-records", "--link", f"unix.json={config}"))


def test_a_password_that_cannot_be_decoded_is_not_kept_in_the_error(secret):
    secret.write_bytes(b"a secret \xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text") as caught:
        Broker.parse("host", ssid="lab", wifi_secret_file=secret)
    assert caught.value.__suppress_context__, "the bytes that failed to decode are the secret"


def test_a_password_may_begin_with_a_byte_order_mark(secret):
    secret.write_text("a long word\n", encoding="utf-8-sig")
    assert Broker.parse("host", ssid="lab", wifi_secret_file=secret).wifi_secret == "a long word"


@pytest.mark.parametrize(
    ("password", "options", "message"),
    [
        ("short", {"ssid": "lab", "wifi_secret_file": ...}, "8 to 63"),
        ("long enough", {"wifi_secret_file": ...}, "needs a network"),
        ("long enough", {"authority": ...}, "not a certificate"),
    ],
)
def test_bad_wifi_and_certificates_are_refused(secret, password, options, message):
    secret.write_text(password)
    options = {name: secret if value is ... else value for name, value in options.items()}
    with pytest.raises(UsageError, match=message):
        Broker.parse("host", **options)


@pytest.fixture
def link_files(tmp_path):
    """The options that put a link of one's own on a board: its configuration and its key."""
    config, key = tmp_path / "mine.json", tmp_path / "client.key"
    config.write_text('{"path": "socket"}')
    key.write_bytes(b"a key")
    return f"unix.json={config}", f"unix.key={key}"


def test_the_files_of_a_link_name_the_link_of_the_board(link_files):
    config, key = link_files
    board = member("--own-records", "--link", config, "--link", key)
    assert board.link == {"unix.json": b'{"path": "socket"}', "unix.key": b"a key"}
    assert board.link_name == "unix"
    assert member("--own-records").link_name == "serial"
    assert member("--own-records", "--broker", "b").link_name == "mqtt"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("unix.json", "NAME=FILE"),
        ("/unix.json={config}", "NAME=FILE"),
        ("clients.bin={config}", "NAME=FILE"),
        ("main.py={config}", "NAME=FILE"),
        ("unix.json={key}", "is not a JSON object"),
        ("mqtt.json={config}", "--link cannot be mqtt.json"),
        ("unix.key={key}", "names no .json file"),
        ("unix.json={config}none", "cannot read"),
    ],
)
def test_a_link_that_a_board_could_not_use_is_refused(link_files, option, message):
    config, key = (words.partition("=")[2] for words in link_files)
    with pytest.raises(UsageError, match=message):
        member("--own-records", "--link", option.format(config=config, key=key))


def test_a_link_excludes_a_broker_and_a_lock(link_files):
    with pytest.raises(UsageError, match="--link and --broker are at odds"):
        member("--own-records", "--link", link_files[0], "--broker", "b")
    board = member("--own-records", "--link", link_files[0])
    with pytest.raises(UsageError, match="--link and --lock are at odds"):
        dataclasses.replace(board, lock=True)


@pytest.mark.parametrize(
    ("options", "settings"),  # pause, slot, reserve, epoch, bound on records, unit
    [
        ([], (0, 500, 1, 5, 64, 0)),
        (["--slot-ms", "0", "--pause", "60", "--reserve", "24"], (60, 0, 24, 5, 64, 0)),
        (["--unit", "60"], (0, 500, 1, 5, 64, 60)),
        (["--count", "64", "--unit", "record"], (0, 500, 1, 5, 64, 1)),
        (["--count", "65"], (0, 500, 1, 5, 128, 0)),
        (["--count", "65", "--most-records", "40"], (0, 500, 1, 5, 40, 0)),
    ],
)
def test_options_are_settings_in_the_file_of_the_fleet(tmp_path, options, settings):
    path, fleet = tmp_path / storage.FLEET, FleetKey(bytes(range(32)), epoch=5)
    path.write_bytes(member("--dataset", "iris", *options).fleet_file(fleet))
    assert storage.read_fleet(str(path)) == (fleet.key, *settings)


def sleeper(**fields):
    """A member on a broker that sleeps."""
    fields = {"broker": Broker("broker.local", 1883), "wake": 3600, **fields}
    return Member(7, ROWS, policy("2", "100"), **fields)


def test_a_board_that_sleeps_has_its_wake_interval():
    files = sleeper().broker.files(3600)
    assert json.loads(files["/mqtt.json"])["wake_s"] == 3600
    assert "wake_s" not in json.loads(Broker("broker.local", 1883).files()["/mqtt.json"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"broker": None}, "--wake-s needs a broker"),
        ({"settings": FleetSettings(reserve=24)}, "--reserve 24 and --wake-s .* up to 23 reports"),
        ({"settings": FleetSettings(pause=60)}, "--pause 60 and --wake-s are at odds"),
        ({"lock": True}, "--lock and --wake-s are at odds"),
        ({"wake": 0}, "--wake-s must be 1 to 86400"),
        ({"wake": 86_401}, "--wake-s must be 1 to 86400"),
    ],
)
def test_what_a_sleeping_board_cannot_do_is_refused(fields, message):
    with pytest.raises(UsageError, match=message) as caught:
        sleeper(**fields)
    assert caught.value.hint


PLAN = up.Plan(
    library=deploy.Changes({"/lib/a.mpy": bytes(1200), "/main.py": b"x"}, ("/lib/b.mpy",)),
    membership=deploy.Changes({"/clients.bin": b""}, (), note="device 7 begins again"),
)


def test_the_plan_of_up_has_a_line_for_each_step():
    assert PLAN.lines(files=False) == [
        "deploy     write 2 files (1,201 bytes), remove 1 file",
        "provision  write 1 file (0 bytes); device 7 begins again",
    ]


def test_the_plan_of_up_lists_files_if_asked():
    assert PLAN.lines(files=True) == [
        "deploy     write  /lib/a.mpy  1,200 bytes",
        "deploy     write  /main.py  1 bytes",
        "deploy     remove /lib/b.mpy",
        "provision  write  /clients.bin  0 bytes",
        "provision  device 7 begins again",
    ]
