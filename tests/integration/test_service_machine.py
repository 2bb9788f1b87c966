"""tern as a service of systemd, by the steps of docs/guides/operate.md, on a Debian that boots.

One machine goes through all steps, since it takes half a minute to come so far: a broker and a served
fleet are installed, killed, stopped, upgraded, changed and removed while emulated boards answer.
"""

from collections import Counter
from pathlib import Path

import debian_machine
import pytest
from harness import kept
from harness.guide import commands
from harness.waiting import wait_for

from ternhost.store.store import Store
from terntools.emulators.micropython import find_micropython

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("wheel"),  # which is built once
]

GUIDE = Path(__file__).parents[2] / "docs/guides/operate.md"
STATE = "var/lib/tern"
PROGRAMS = "/opt/micropython"  # where every user of the machine may read the interpreter of boards
CLIENTS = 20
COST = 500_000  # of a report, in millionths of epsilon
BOARDS = (
    "runuser --user tern -- env --chdir=/var/lib/tern TERN_MICROPYTHON={interpreter} "
    f"/opt/tern/bin/tern fleet emulate 2 --data my.csv --clients {CLIENTS} --broker my-broker "
    "--dir boards"
)
_PATIENCE = 90.0  # seconds until a round has ended, at most


INSTALL, BROKER, SHELL, NAME, SERVE = commands(GUIDE, "As a service")
(CHANGE,) = commands(GUIDE, "Change a service")
(SHOW,) = commands(GUIDE, "What a service may do")
SAVE, INSTALL_BESIDE, TRY_BESIDE, REPLACE, _UPDATE_BOARDS = commands(GUIDE, "Upgrade")
(RESTORE,) = commands(GUIDE, "Restore")


def quick(lines):
    """Lines of the guide, with rounds every two seconds instead of every hour."""
    assert "--every 1h" in lines
    return lines.replace("--every 1h", "--every 2 --epsilon 0.5")


class Fleet:
    """The services on the machine, and what their store and the boards' ledgers say."""

    def __init__(self, machine):
        self.machine = machine
        self.directory = machine.files / STATE / "my-broker"

    def store(self):
        return Store(self.directory / "store.sqlite", create=False, beside=True)

    def as_its_user(self, lines):
        """Run lines of the guide in the shell that it opens for the user of services."""
        return self.machine.shell(f"{SHELL.strip()} -e <<'END'\n{lines}\nEND").stdout

    def paid(self):
        """For how many reports each device has paid, by the boards' own ledgers."""
        boards = sorted((self.machine.files / STATE / "boards/fleet").glob("board-*"))
        return {device: spent / COST for device, spent in kept.spent(boards).items()}

    def counted(self, after=0):
        """How many reports of each device the store has, of the rounds after that number."""
        with self.store() as store:
            numbers = {number for number, _, _ in kept.ended_rounds(store)}
            numbers |= {open_round.number for open_round in store.open_rounds()}
            later = [number for number in numbers if number > after]
            return Counter(device for number in later for device, _ in store.reports(number))

    def ended_rounds(self):
        """(number, how it ended, reports) of each round that has ended."""
        with self.store() as store:
            return kept.ended_rounds(store)

    def wait_for_rounds(self, more=2):
        """Wait until so many further rounds have ended."""
        wanted = len(self.ended_rounds()) + more
        self.wait(lambda: len(self.ended_rounds()) >= wanted)

    def wait(self, condition):
        """Wait until `condition()` is true."""
        wait_for(condition, _PATIENCE, lambda: self.machine.run("journalctl", "--lines=40").stdout)

    def kill(self, unit):
        """Kill the main process of a service, and wait until systemd has started another one."""
        pid = self.machine.value(unit, "MainPID")
        self.machine.run("sh", "-c", f"kill -9 {pid}")

        def runs_again():
            new_pid = self.machine.value(unit, "MainPID")
            is_active = self.machine.value(unit, "ActiveState") == "active"
            return is_active and new_pid not in (pid, "0")

        self.wait(runs_again)


@pytest.fixture(scope="module")
def machine(tmp_path_factory, wheel):
    """A machine with the wheel of tern and a table in root's home directory."""
    root = debian_machine.root_or_skip()
    interpreter = find_micropython()
    folder = tmp_path_factory.mktemp("machine")
    places = [wheel.parent, f"{interpreter.parent}:{PROGRAMS}"]
    with debian_machine.Machine(root, folder, places) as machine:
        machine.interpreter = f"{PROGRAMS}/{interpreter.name}"
        machine.wheel = wheel
        machine.run("cp", str(wheel), "/root/")
        (machine.files / "root/my.csv").write_text(debian_machine.TABLE)
        yield machine


@pytest.fixture(scope="module")
def services(machine):
    """Both services of the guide, installed, and boards that answer. They end with the module."""
    machine.shell(INSTALL)
    machine.shell(BROKER)
    fleet = Fleet(machine)
    fleet.as_its_user(NAME)
    copy_of_the_table, separator, install = SERVE.partition("tern service")
    machine.shell(copy_of_the_table)
    boards = machine.begin("boards", BOARDS.format(interpreter=machine.interpreter))
    machine.shell(quick(separator + install))
    yield fleet
    assert boards.poll() is None, "the boards have run until now"
    boards.terminate()
    boards.wait()


@pytest.fixture(scope="module")
def faults(services):
    """The services after both were killed, stopped and started, with rounds before and after."""
    services.wait_for_rounds()
    services.kill("tern-serve")
    services.wait_for_rounds()
    services.kill("tern-broker")
    services.wait_for_rounds()
    services.machine.shell("systemctl stop tern-serve\nsystemctl start tern-serve")
    services.wait_for_rounds()
    return services


@pytest.fixture(scope="module")
def upgraded(faults):
    """The services after an upgrade to another release, which was tried on a backup before.

    `runs_of_trial` is what the new release said of the runs in the backup.
    """
    machine = faults.machine
    new = debian_machine.next_release(machine.wheel, "0.1.1", machine.files / "root")
    faults.as_its_user(SAVE)
    # The machine has no network: the packages that tern needs are those of the old release.
    beside = INSTALL_BESIDE.replace(machine.wheel.name, new.name)
    machine.shell(f"export PIP_NO_DEPS=1\n{beside}")
    (packages,) = (machine.files / "opt/tern/lib").glob("python*/site-packages")
    path = packages.relative_to(machine.files)
    beside_packages = machine.files / str(path).replace("opt/tern/", "opt/tern-new/")
    (beside_packages / "packages.pth").write_text(f"/{path}\n")
    faults.runs_of_trial = faults.as_its_user(TRY_BESIDE)
    machine.shell(REPLACE.replace(machine.wheel.name, new.name))
    faults.wait_for_rounds()
    return faults


@pytest.fixture(scope="module")
def changed(upgraded):
    """The services after a backup was saved while they ran, and the options of one were changed.

    That one has been stopped.
    """
    upgraded.as_its_user(SAVE)
    upgraded.wait_for_rounds()
    upgraded.machine.shell(quick(CHANGE))
    upgraded.wait_for_rounds()
    upgraded.machine.shell("systemctl stop tern-serve")
    return upgraded


@pytest.fixture(scope="module")
def restored(changed):
    """The services on the restored backup, after rounds that it does not know, and stopped again.

    `before` has the last round of the lost store and the reports in it.
    """
    with changed.store() as store:
        changed.before = store.last_round(), changed.counted()
    changed.machine.shell("systemctl stop tern-broker")
    changed.as_its_user(RESTORE)
    changed.machine.shell("systemctl start tern-broker tern-serve")
    changed.wait_for_rounds()
    changed.machine.shell("systemctl stop tern-serve")
    return changed


def test_a_killed_service_goes_on_with_its_run(faults):
    with faults.store() as store:
        assert len(store.runs()) == 1


def test_the_broker_starts_before_what_uses_it(services):
    assert "tern-broker.service" in services.machine.value("tern-serve", "After").split()


def test_services_run_as_their_own_user(services):
    assert services.machine.value("tern-serve", "User") == "tern"
    number = int(services.machine.run("id", "--user", "tern").stdout)
    assert {path.stat().st_uid for path in services.directory.iterdir()} == {number}


def test_the_journal_has_the_levels_of_messages(faults):
    journal = faults.machine.journal("tern-serve")
    rounds = {priority for priority, message in journal if message.startswith("round ")}
    assert rounds == {6}
    warnings = [message for priority, message in journal if priority == 4]
    assert any("the broker" in message for message in warnings), "it was killed"


def test_mosquitto_speaks_in_the_journal_of_the_broker(faults):
    messages = [message for _, message in faults.machine.journal("tern-broker")]
    assert any("mosquitto: New client connected" in message for message in messages)


def test_an_upgrade_goes_on_with_the_run(upgraded):
    version = upgraded.machine.run("/opt/tern/bin/tern", "--version").stdout
    assert version.split()[-1] == "0.1.1"
    with upgraded.store() as store:
        assert len(store.runs()) == 1


def test_a_new_release_is_tried_on_a_backup_before_an_upgrade(upgraded):
    with upgraded.store() as store:
        (run,) = store.runs()
    assert run.name in upgraded.runs_of_trial
    assert not (upgraded.machine.files / STATE / "trial").exists()


def test_changed_options_go_on_with_the_run(changed):
    assert "--quorum" in changed.machine.value("tern-serve", "ExecStart")
    with changed.store() as store:
        assert len(store.runs()) == 1


def test_no_report_is_lost_and_none_is_paid_twice(changed):
    """After all of it, each device has paid once for each round in which its report was counted,
    and for no other one, but for a round that was open when the service stopped.
    """
    with changed.store() as store:
        open_rounds = len(store.open_rounds())
        last_round = store.last_round()
    counted = changed.counted()
    paid = changed.paid()
    assert len(paid) == CLIENTS
    for device, reports in paid.items():
        assert reports <= last_round, "no round was paid for twice"
        assert counted[device] <= reports <= counted[device] + open_rounds, device


def test_every_round_got_all_reports(faults):
    reports = [reports for _, _, reports in faults.ended_rounds()]
    assert reports == [CLIENTS] * len(reports)


def test_a_second_service_of_one_name_is_refused(services):
    line = "/opt/tern/bin/tern service install broker -- broker run other"
    unit = services.machine.files / "etc/systemd/system/tern-broker.service"
    before = unit.read_text()
    ended = services.machine.run("sh", "-c", line, check=False)
    assert ended.returncode == 2
    assert unit.read_text() == before
    assert not (services.machine.files / STATE / "other").exists()


def test_a_service_that_cannot_start_is_removed_again(services):
    line = "/opt/tern/bin/tern service install page -- dashboard no-such-store"
    ended = services.machine.run("sh", "-c", line, check=False)
    assert ended.returncode == 3
    assert "no-such-store" in ended.stderr, "the end of its log is shown"
    assert not (services.machine.files / "etc/systemd/system/tern-page.service").exists()


def test_another_user_cannot_install_a_service(services):
    line = "/opt/tern/bin/tern service install page -- dashboard my-broker"
    words = ("runuser", "--user", "nobody", "--", "sh", "-c", line)
    assert services.machine.run(*words, check=False).returncode == 2


def test_the_unit_that_the_guide_shows_is_printed(services):
    assert "DevicePolicy=closed" in services.machine.shell(SHOW).stdout


def test_a_restored_host_uses_no_round_number_again(restored):
    last_round_before, _ = restored.before
    numbers = [number for number, _, reports in restored.ended_rounds() if reports]
    assert max(numbers) > last_round_before
    with restored.store() as store:
        saved = {number for number, _, _ in restored.ended_rounds() if number <= last_round_before}
        assert len(saved) < last_round_before, "the backup is older than the lost store"
        assert len(store.runs()) == 1


def test_after_a_restore_boards_pay_only_for_what_is_counted(restored):
    """Reports that the lost store had are paid once, and those of the restored one once more."""
    last_round_before, counted_before = restored.before
    counted = restored.counted(after=last_round_before)
    with restored.store() as store:
        open_rounds = len(store.open_rounds())
    assert set(counted) == set(restored.paid())
    for device, reports in restored.paid().items():
        total = counted_before[device] + counted[device]
        assert total <= reports <= total + open_rounds + 1, device  # 1: open when it was lost


def test_a_removed_service_leaves_its_files(restored):
    """The lines with which the guide removes a service stand before those that install it anew."""
    before, _, _ = CHANGE.partition("tern service install")
    restored.machine.shell(before)
    assert restored.machine.value("tern-serve", "LoadState") == "not-found"
    assert (restored.directory / "store.sqlite").exists()
