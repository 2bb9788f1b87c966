"""The files of a board are checked before they are written, and secrets are never shown."""

import argparse
import dataclasses
import json

import numpy as np
import pytest

from tern import ledger, storage
from ternhost import datasets
from ternhost.cli import main
from ternhost.datasets import own
from ternhost.errors import UsageError
from ternhost.store.fleet_key import FleetKey
from terntools.boards import deploy, provision, provision_command, up
from terntools.boards.policy import policy
from terntools.boards.provision import Broker, Member

ROWS = np.zeros((1, 4), np.int16)


def test_a_policy_is_parsed_and_checked():
    assert policy("2", "100").budget == 100_000_000
    for largest, budget, message in (
        ("3", "2", "--largest must be at most --budget"),
        ("2", "x", "budget x is not a number from"),
        ("2", "3.00000001", "whole number"),
        ("2", "1e9", "budget 1e9 is not a number from 0.000001 to 1000"),
        ("2", "inf", "budget inf is not a number"),
        ("-1", "2", "largest -1 is not a number"),
    ):
        with pytest.raises(UsageError, match=message):
            policy(largest, budget)


def test_a_budget_may_count_rho():
    for words, budget in (
        ((None, "10", "1e-6"), 1_539_278),
        ((None, None, None, "1.5"), 1_500_000),
    ):
        limits = policy(*words)
        assert (limits.measure, limits.budget, limits.largest) == (ledger.RHO, budget, budget)
    assert policy("0.1", "10", "1e-6").largest == 100_000
    for words, message in (
        ((None, "10", "1"), "delta must be between 0 and 1, not 1"),
        ((None, "10", "x"), "--delta must be a number"),
        ((None, "10", None, "1"), "--budget-rho is a budget by itself"),
        (("2", "10", "1e-6"), r"--largest must be at most --budget, .* \(rho 1.53928\), not 2"),
    ):
        with pytest.raises(UsageError, match=message):
            policy(*words)


def member(*options):
    parser = argparse.ArgumentParser()
    provision_command.add_options(parser, required=False)
    return provision_command.member_of(parser.parse_args(["--device", "7", *options]))


def test_a_board_with_its_own_records_gets_none():
    board = member("--own-records")
    assert not board.rows.any()
    assert board.most_records == 256
    assert member("--own-records", "--most-records", "64").most_records == 64
    assert member("--own-records", "--again").again
    for options in (
        (),
        ("--own-records", "--dataset", "wine"),
        ("--records", "a.csv", "--dataset", "wine"),
    ):
        with pytest.raises(UsageError, match="records from one place"):
            member(*options)
    for options in (("--count", "1"), ("--count", "9"), ("--classes",)):
        with pytest.raises(UsageError, match=f"--own-records and {options[0]} are at odds"):
            member("--own-records", *options)


def test_records_are_read_from_a_csv_file(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("bias,x,label\n1,-0.5,1\n1,0.25,-1\n")
    assert own.read_csv(path).tolist() == [[16384, -8192, 16384], [16384, 4096, -16384]]
    path.write_text(
        "\n1,0\n\n0,1\n\n", encoding="utf-8-sig"
    )  # a BOM and empty lines change nothing
    assert own.read_csv(path).tolist() == [[16384, 0], [0, 16384]]
    for text, message in (
        ("", "records.csv holds no records"),
        ("a,b\n", "holds no records"),
        ("1\n2\n", "line 1 must have 2 or more values, not 1"),
        ("1,2\n", r"line 1: values must be in \[-1, 1\], not 2"),
        ("a,b\n1,1\n1,-inf\n", r"line 3: values must be in \[-1, 1\], not -inf"),
        ("1,0\n1,nan\n", "line 2: 'nan' is not a number"),
        ("1,0\n1,x\n", "line 2: 'x' is not a number"),
        ("1,x\n1,0\n", "line 1: 'x' is not a number"),  # a typing error, not a row of names
        ("a,b\n1,0\n\n1\n", "line 4 must have 2 values, not 1"),
        ("1,0\n1,0,\n", "line 2 must have 2 values, not 3"),
        ('"first\nname",b\n1,0\n1,\n', "line 4: '' is not a number"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            own.read_csv(path)
    for data in ("1,0\n".encode("utf-16"), "größe,x\n1,0\n".encode("latin-1"), b"1" * 200_000):
        path.write_bytes(data)
        with pytest.raises(UsageError, match="no CSV file in UTF-8"):
            own.read_csv(path)
    with pytest.raises(UsageError, match="cannot read"):
        own.read_csv(tmp_path / "none.csv")


def test_labels_may_be_numbers_of_classes(tmp_path):
    path = tmp_path / "records.csv"
    path.write_text("bias,x,label\n1,-0.5,0\n1,0.25,9\n")
    assert own.read_csv(path, classes=True).tolist() == [[16384, -8192, 0], [16384, 4096, 9]]
    for label in ("-1", "128", "0.5", "x", ""):
        path.write_text(f"1,0.5,3\n1,0.5,{label}\n")
        with pytest.raises(
            UsageError, match="line 2: the label must be the number of a class, 0 to 127"
        ):
            own.read_csv(path, classes=True)
    labels = provision.dataset_records("digits", 7, 50, classes=True)[:, -1]
    assert set(labels.tolist()) == set(range(10))


@pytest.mark.parametrize(
    ("labels", "warned"),
    [
        ((0, 1), True),
        ((0,), True),
        ((-1, 1), False),
        ((1,), False),
        ((-1, 0, 1), False),
        ((0, 0.5, 1), False),
    ],
)
def test_labels_of_0_and_1_are_taken_with_a_warning(labels, warned, tmp_path, capsys):
    path = tmp_path / "records.csv"
    path.write_text("".join(f"1,0.5,{label}\n" for label in labels))
    assert member("--records", str(path)).rows[:, -1].tolist() == [
        round(16384 * label) for label in labels
    ]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert (f"the labels in {path} are 0 or 1" in printed.err) == warned


def test_records_of_a_table_hold_categories_unscaled():
    table = datasets.TABLES["flights-table"]()
    rows = provision.dataset_records("flights-table", 3, 2)
    assert rows.tolist() == [
        [*table.numeric[at].tolist(), *table.codes[at].tolist(), 0] for at in (4, 5)
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": 0}, "id must be 1 to"),
        ({"shapes": ("oval",)}, "--mechanisms must be of .*, not 'oval'"),
        ({"pause": 86_401}, "pause"),
        ({"slot": -1}, "slot"),
        ({"slot": 65_536}, "slot"),
        ({"reserve": 0}, "--reserve must be 1 to 1000 reports, not 0"),
        ({"reserve": 1001}, "reports, not 1001"),
        ({"rows": np.zeros((1, 130), np.int16)}, "cannot hold"),
        ({"rows": np.zeros((0, 4), np.int16)}, "cannot hold"),
    ],
)
def test_invalid_members_are_refused(options, message):
    fields = {"device": 7, "rows": ROWS, "policy": policy("2", "10"), **options}
    with pytest.raises(UsageError, match=message):
        Member(**fields)


def test_the_address_of_a_broker_is_parsed_and_written_to_files(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a very secret word\n")
    authority = tmp_path / "authority.der"
    authority.write_bytes(b"\x30\x82 and so on")
    broker = Broker.parse("broker.example", authority, "lab", secret, "birds")
    assert (broker.host, broker.port) == ("broker.example", 8883)
    assert "secret" not in repr(broker)
    files = broker.files()
    assert json.loads(files["/mqtt.json"]) == {
        "host": "broker.example",
        "port": 8883,
        "authority": "authority.der",
        "ssid": "lab",
        "wifi_password": "a very secret word",
        "prefix": "birds",
    }
    assert files["/authority.der"] == authority.read_bytes()
    assert Broker.parse("10.0.0.1:1234").port == 1234
    assert Broker.parse("10.0.0.1").port == 1883
    nodes = Broker.parse("n1.local,[::1],10.0.0.1:1234")
    assert (nodes.host, nodes.port) == ("n1.local,::1,10.0.0.1", 1234)
    for address in ("", ":1883", "a b", "host:0", "host:70000", "host:x", "-host"):
        with pytest.raises(UsageError, match=r"--broker must be HOST\[:PORT\]"):
            Broker.parse(address)


def test_invalid_wifi_and_certificates_are_refused(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("short\n")
    with pytest.raises(UsageError, match="8 to 63"):
        Broker.parse("host", ssid="lab", wifi_secret_file=secret)
    with pytest.raises(UsageError, match="needs a network"):
        Broker.parse("host", wifi_secret_file=secret)
    with pytest.raises(UsageError, match="not a certificate"):
        Broker.parse("host", authority=secret)
    secret.write_bytes(b"a secret \xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text") as caught:
        Broker.parse("host", ssid="lab", wifi_secret_file=secret)
    assert caught.value.hint
    assert caught.value.__suppress_context__, "the bytes that failed to decode are the secret"
    secret.write_text("a long word\n", encoding="utf-8-sig")
    assert Broker.parse("host", ssid="lab", wifi_secret_file=secret).wifi_secret == "a long word"


def test_files_of_another_link_are_put_on_the_board(tmp_path):
    config, key = tmp_path / "mine.json", tmp_path / "client.key"
    config.write_text('{"path": "socket"}')
    key.write_bytes(b"a key")
    board = member("--own-records", "--link", f"unix.json={config}", "--link", f"unix.key={key}")
    assert board.link == {"unix.json": config.read_bytes(), "unix.key": b"a key"}
    assert board.link_name == "unix"
    assert "a key" not in repr(board)
    assert member("--own-records").link_name == "serial"
    assert member("--own-records", "--broker", "b").link_name == "mqtt"
    for options, message in (
        (("unix.json",), "NAME=FILE"),
        ((f"/unix.json={config}",), "NAME=FILE"),
        ((f"clients.bin={config}",), "NAME=FILE"),
        ((f"main.py={config}",), "NAME=FILE"),
        ((f"unix.json={key}",), "is not a JSON object"),
        ((f"mqtt.json={config}",), "--link cannot be mqtt.json"),
        ((f"unix.key={key}",), "names no .json file"),
        ((f"unix.json={tmp_path / 'none'}",), "cannot read"),
    ):
        with pytest.raises(UsageError, match=message):
            member("--own-records", "--link", *options)
    with pytest.raises(UsageError, match="--link and --broker are at odds"):
        member("--own-records", "--link", f"unix.json={config}", "--broker", "b")
    with pytest.raises(UsageError, match="--link and --lock are at odds"):
        dataclasses.replace(board, lock=True)


def test_the_command_names_what_is_missing(tmp_path, capsys):
    common = ["provision", "/dev/null", "--store", str(tmp_path / "s.sqlite"), "--device", "7"]
    assert main(common) == 2
    assert "records" in capsys.readouterr().err
    assert main([*common, "--dataset", "flights", "--ssid", "lab"]) == 2
    assert "--ssid needs a broker\n  name the broker with --broker" in capsys.readouterr().err
    assert main([*common, "--dataset", "flights", "--count", "0"]) == 2
    assert "--count must be 1 or more, not 0" in capsys.readouterr().err
    assert not (tmp_path / "s.sqlite").exists()


def test_options_set_the_slot_pause_and_reserve_of_a_board(tmp_path):
    path = tmp_path / storage.FLEET
    for words, allowed in (
        ([], (0, 500, 1, 5, 64, 0)),
        (
            ["--slot-ms", "0", "--pause", "60", "--reserve", "24", "--own-key-only"],
            (60, 0, 24, 5, 64, 0),
        ),
        (["--unit", "60"], (0, 500, 1, 5, 64, 60)),
        (["--count", "64", "--unit", "record"], (0, 500, 1, 5, 64, 1)),
        (["--count", "65"], (0, 500, 1, 5, 128, 0)),
        (["--count", "65", "--most-records", "40"], (0, 500, 1, 5, 40, 0)),
    ):
        path.write_bytes(
            member("--dataset", "flights", *words).fleet_file(FleetKey(bytes(range(32)), 5))
        )
        assert storage.read_fleet(str(path)) == (bytes(range(32)), *allowed)
    for number in ("0", "65536", "-1"):
        with pytest.raises(UsageError, match=f"--most-records must be 1 to 65535, not {number}"):
            member("--dataset", "flights", "--most-records", number)


def sleeper(**options):
    options = {"broker": Broker("broker.local", 1883), "wake": 3600, **options}
    return Member(7, ROWS, policy("2", "100"), **options)


def test_a_board_that_sleeps_has_its_wake_interval():
    files = sleeper().broker.files(3600)
    assert json.loads(files["/mqtt.json"]) == {"host": "broker.local", "port": 1883, "wake_s": 3600}
    assert "wake_s" not in json.loads(Broker("broker.local", 1883).files()["/mqtt.json"])
    for options, message in (
        ({"broker": None}, "--wake-s needs a broker"),
        ({"reserve": 24}, "--reserve 24 and --wake-s are at odds: .* up to 23 reports"),
        ({"pause": 60}, "--pause 60 and --wake-s are at odds"),
        ({"lock": True}, "--lock and --wake-s are at odds"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            sleeper(**options)
        assert caught.value.hint
    for seconds in (0, -1, 86_401):
        with pytest.raises(UsageError, match="--wake-s must be 1 to 86400"):
            sleeper(broker=None, wake=seconds)


def test_the_plan_of_up_is_a_line_for_each_step_and_lists_files_if_asked():
    plan = up.Plan(
        library=deploy.Changes({"/lib/a.mpy": bytes(1200), "/main.py": b"x"}, ("/lib/b.mpy",))
    )
    assert plan.lines(False) == ["deploy     write 2 files (1,201 bytes), remove 1 file"]
    assert plan.lines(True) == [
        "deploy     write  /lib/a.mpy  1,200 bytes",
        "deploy     write  /main.py  1 bytes",
        "deploy     remove /lib/b.mpy",
    ]
    again = up.Plan(
        membership=deploy.Changes({"/clients.bin": b""}, (), note="device 7 begins again")
    )
    assert again.lines(False) == ["provision  write 1 file (0 bytes); device 7 begins again"]
