"""A broker's directory may be moved or copied, and a copy is never used beside its original."""

import asyncio
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import replace

import pytest
import rig
from harness.waiting import wait_for

from tern.links import mqtt
from ternhost import programs
from ternhost.errors import DeviceError, UsageError
from ternhost.learn.schedule import Schedule, Terms
from ternhost.options import values_of
from ternhost.provision import keys
from ternhost.reach import fleet
from ternhost.reach.broker import configuration, copies, mosquitto, mosquitto_files
from ternhost.reach.broker.access import CONFIG, HOST, Access
from ternhost.reach.broker.link import MqttLink
from ternhost.run.directory import resume_command
from ternhost.store import store_file
from ternhost.store.runs import STOPPED, StoredRun
from ternhost.store.store import Store

DEVICE = 7


@pytest.fixture
def original(tmp_path):
    """The directory of a broker, which does not run, with the key of one device."""
    directory = tmp_path / "original"
    configuration.configure(directory, port=mosquitto.free_port())
    with Store(directory / store_file.NAME) as store:
        keys.add(store, [DEVICE])
    configuration.configure(directory)
    return directory


@pytest.fixture
def copy(original):
    """A copy of the original, on another port."""
    directory = original.with_name("copy")
    shutil.copytree(original, directory)
    configuration.configure(directory, port=mosquitto.free_port())
    return directory


@pytest.fixture
def earlier(original):
    """The original with absolute paths in its mosquitto.conf, as an earlier release wrote them."""
    path = original / CONFIG
    lines = path.read_text().splitlines()
    first_line = f"# Written by tern. Start with: mosquitto -c {original}/{CONFIG}"
    text = "\n".join([first_line, *lines[2:]]) + "\n"
    text = text.replace(" ./\n", f" {original}/\n").replace(" ./", f" {original}/")
    path.write_text(text)
    assert text.count(str(original)) == 7
    return original


@contextmanager
def plain_mosquitto(directory, cwd=None):
    """A Mosquitto that is started without tern."""
    path = programs.find("mosquitto")
    process = subprocess.Popen([path, "-c", str(directory / CONFIG)], cwd=cwd or directory)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


def password_of(directory):
    """The password of the device, as the keys in a broker's directory give it."""
    with Store(directory / store_file.NAME, create=False, beside=True) as store:
        return mqtt.password(store.keys()[DEVICE])


def lets_in(directory, password):
    return mosquitto_files.has_password(directory, mqtt.name(DEVICE), password)


async def connect(directory, **changes):
    """Connect to a directory's broker as its host, and leave again. changes: in how it is reached."""
    link = MqttLink(replace(Access.load(directory / HOST), **changes))
    await link.connect()
    await link.close()


def test_a_moved_broker_runs(original):
    moved = original.rename(original.with_name("moved to a folder with spaces"))
    with mosquitto.Mosquitto(moved) as broker:
        assert broker.answers(5.0)


def test_a_moved_broker_is_reached_by_its_host(original):
    moved = original.rename(original.with_name("moved"))
    with mosquitto.Mosquitto(moved):
        asyncio.run(connect(moved))


def test_a_moved_broker_has_its_store(original):
    moved = original.rename(original.with_name("moved"))
    assert configuration.configure(moved).store == str(moved / store_file.NAME)


def test_a_broker_that_is_moved_while_it_runs_is_still_known(original):
    with mosquitto.Mosquitto(original):
        moved = original.rename(original.with_name("moved"))
        assert mosquitto.reload(moved)


def test_a_symbolic_link_leads_to_a_store_outside_the_directory(tmp_path):
    real = tmp_path / "far" / "away"
    configuration.configure(real, tmp_path / "far" / "keys.sqlite")
    link = tmp_path / "link"
    link.symlink_to(real)
    store = Access.load(link / HOST).store
    assert (tmp_path / "far" / "keys.sqlite").samefile(store)


def test_a_store_that_is_missing_after_a_move_locks_no_board_out(tmp_path, original):
    """With a new, empty store, the passwords of all boards would be removed."""
    outside = tmp_path / "keys.sqlite"
    (original / store_file.NAME).rename(outside)
    configuration.configure(original, outside)
    before = (original / mosquitto_files.PASSWORDS).read_bytes()

    (tmp_path / "deep").mkdir()
    moved = original.rename(tmp_path / "deep" / "moved")
    with pytest.raises(UsageError, match="which is not there"):
        configuration.configure(moved)
    assert (moved / mosquitto_files.PASSWORDS).read_bytes() == before


# A configuration of an earlier release


def test_a_copy_of_an_earlier_configuration_runs_on_its_own_files(earlier):
    """The device is revoked in the copy alone, which must then refuse it."""
    copy = earlier.with_name("copy")
    shutil.copytree(earlier, copy)
    as_board = {"user": mqtt.name(DEVICE), "password": password_of(copy)}
    with Store(copy / store_file.NAME) as store:
        keys.revoke(store, [DEVICE])
    configuration.configure(copy)
    with mosquitto.Mosquitto(copy), pytest.raises(DeviceError, match="refuses"):
        asyncio.run(connect(copy, **as_board))


def test_running_a_copy_makes_the_paths_of_an_earlier_configuration_its_own(earlier):
    copy = earlier.with_name("copy")
    shutil.copytree(earlier, copy)
    with mosquitto.Mosquitto(copy):
        assert str(earlier) not in (copy / CONFIG).read_text()


def test_configuring_a_copy_makes_the_paths_of_an_earlier_configuration_its_own(earlier):
    copy = earlier.with_name("copy")
    shutil.copytree(earlier, copy)
    configuration.configure(copy)
    assert str(earlier) not in (copy / CONFIG).read_text()


def test_lines_that_users_have_added_stay(earlier):
    added = (
        f"# {earlier}/access is tern's\nlog_dest file {earlier}/own.log\npid_file /run/own.pid\n"
    )
    path = earlier / CONFIG
    path.write_text(path.read_text() + added)
    configuration.configure(earlier)
    assert path.read_text().endswith(added)


# Copies


def test_a_board_that_is_revoked_in_a_copy_stays_out_of_it(original, copy):
    password = password_of(original)
    with Store(copy / store_file.NAME) as store:
        keys.revoke(store, [DEVICE])
    configuration.configure(copy)
    assert not lets_in(copy, password)
    assert lets_in(original, password)


def test_a_copy_does_not_run_beside_its_original(original, copy):
    with mosquitto.Mosquitto(original), pytest.raises(UsageError, match="is a copy"):
        mosquitto.Mosquitto(copy)


def test_a_copy_runs_once_its_original_has_ended(original, copy):
    with mosquitto.Mosquitto(original):
        pass
    with mosquitto.Mosquitto(copy) as broker:
        assert broker.answers(5.0)


def test_a_copy_of_a_directory_is_not_the_fleet_of_the_running_original(original, copy):
    access = Access.load(copy / HOST)
    with mosquitto.Mosquitto(original), pytest.raises(UsageError, match="is a copy"):
        copies.check_original(copy, access)


def test_a_broker_that_does_not_start_may_be_started_again(original, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(mosquitto.Mosquitto, "start", _fail)
        with pytest.raises(DeviceError):
            mosquitto.Mosquitto(original)
    with mosquitto.Mosquitto(original) as broker:
        assert broker.answers(5.0)


def _fail(self):
    raise DeviceError("it does not start")


def test_a_broker_has_one_host_at_a_time(original):
    async def connect_twice():
        first = MqttLink(Access.load(original / HOST))
        await first.connect()
        try:
            await connect(original)
        finally:
            await first.close()

    with mosquitto.Mosquitto(original):
        with pytest.raises(UsageError, match="another tern on this machine"):
            asyncio.run(connect_twice())
        asyncio.run(connect(original))


def test_new_passwords_of_a_copy_are_not_given_to_the_running_original(original):
    with plain_mosquitto(original):
        wait_for((original / mosquitto_files.PID).exists, 10)
        copy = original.with_name("copy")
        shutil.copytree(original, copy)
        assert mosquitto.reload(original)
        assert not mosquitto.reload(copy)


def test_mosquitto_started_in_another_directory_takes_no_files_of_it(original, copy):
    """Relative paths would be those of the directory in which it is started; it says what is missing."""
    process = subprocess.run(
        [programs.find("mosquitto"), "-c", str(copy / CONFIG)], cwd=original.parent, timeout=20
    )
    assert process.returncode != 0


# Runs


def test_a_run_in_a_moved_directory_finds_its_broker_there(original):
    moved = original.rename(original.with_name("moved"))
    before = fleet.parse(f"mqtt:{original}")
    assert before.moved_with(moved / store_file.NAME) == f"mqtt:{moved}"


def test_a_run_in_a_copy_does_not_go_on_with_the_broker_of_the_original(original, copy):
    before = fleet.parse(f"mqtt:{original}")
    assert before.moved_with(copy / store_file.NAME) == f"mqtt:{copy}"


def test_boards_of_the_original_are_not_reached_with_the_store_of_a_copy(
    original, copy, monkeypatch
):
    monkeypatch.chdir(original.parent)
    place = {"fleet": f"mqtt:{original}", "store": copy / store_file.NAME}
    with (
        pytest.raises(UsageError, match="another broker"),
        rig.begin(data=f"devices:{rig.D}", epsilon="1", **place) as run,
    ):
        run.run()


def test_a_served_run_in_a_copy_is_resumed_with_the_broker_of_the_copy(original, copy):
    schedule = values_of(Schedule(every="1h"))
    asked = {"fleet": f"mqtt:{original}", "schedule": schedule, "terms": values_of(Terms())}
    run = StoredRun(name="mine", began=0.0, status=STOPPED, asked=asked, state={})
    words = shlex.split(resume_command(run, copy / store_file.NAME))
    assert words[words.index("--fleet") + 1] == f"mqtt:{copy}"


def test_a_run_whose_directory_has_not_moved_keeps_its_fleet(original):
    assert fleet.parse(f"mqtt:{original}").moved_with(original / store_file.NAME) is None
