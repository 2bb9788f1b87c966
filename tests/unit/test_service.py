"""`tern service`: the units of systemd, and what is refused before anything is changed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ternhost import errors
from ternhost.errors import UsageError
from ternhost.service import paths, plan
from ternhost.service.unit import quoted

pytestmark = pytest.mark.usefixtures("here")

BROKER = ("broker", "run", "my-broker")
SERVE = ("serve", "--fleet", "mqtt:my-broker", "--every", "1h")
COMMANDS = {
    "broker": BROKER,
    "serve": SERVE,
    "learner": ("serve", "fedavg", "--fleet", "mqtt:my-broker", "--every", "1h"),
    "relay": ("relay", "a0", "--broker", "my-broker"),
    "dashboard": ("dashboard", "my-broker"),
    "odd": ("serve", "--fleet", "mqtt:my broker", "--every", "1h", "--name", 'a%n$HOME"\\'),
}
MOST_EXPOSED = 2.0  # of 10, by `systemd-analyze security`: a service without limits has 9.6


@pytest.fixture
def unit(tern):
    """`unit(*words)`: the text of the unit for a command."""

    def show(*words, name="x"):
        return tern("service", "show", name, "--json", "--", *words).json["text"]

    return show


@pytest.fixture
def analyze(tmp_path):
    """`analyze(verb, text)`: what `systemd-analyze` says about a unit."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")

    def run(*words, text):
        path = tmp_path / "tern-x.service"
        path.write_text(text)
        return subprocess.run(["systemd-analyze", *words, path], capture_output=True, text=True)

    return run


def setting(text, name):
    """The value of a setting of a unit; None if it is not there."""
    found = re.search(f"^{name}=(.*)$", text, re.MULTILINE)
    return found and found[1]


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_systemd_accepts_the_unit(unit, analyze, words):
    ended = analyze("verify", text=unit(*words))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_service_may_do_little(unit, analyze, words):
    printed = analyze("security", "--offline=true", "--no-pager", text=unit(*words)).stdout
    exposure = re.search(r"Overall exposure level for \S+: ([\d.]+)", printed)
    assert float(exposure[1]) <= MOST_EXPOSED


def test_a_word_is_quoted_for_systemd():
    assert quoted('a b%n$HOME"\\') == '"a b%%n$$HOME\\"\\\\"'


def test_a_service_has_devices_only_if_it_uses_ports(unit):
    assert setting(unit(*COMMANDS["relay"]), "DevicePolicy") == "closed"
    assert setting(unit(*COMMANDS["serve"]), "DevicePolicy") is None


def test_a_service_starts_after_the_broker_that_it_uses(unit, here, monkeypatch):
    monkeypatch.setattr(plan, "UNITS", here)
    (here / "tern-b.service").write_text(unit(*BROKER, name="b"))
    (here / "tern-other.service").write_text(unit("broker", "run", "other", name="other"))
    (here / "tern-edited.service").write_text("ExecStart=/opt/tern/bin/tern broker run 'x\n")
    assert setting(unit(*SERVE), "After") == "network-online.target tern-b.service"


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--fleet", "simulated:20"),
        ("serve", "--fleet", "mqtt:my-broker", "--every", "1h", "--anew"),
        ("serve", "--fleet", "simulated:20", "--every", "1h"),
        ("serve", "--every", "1h"),
        ("serve", "--fleet", "mqtt:my-broker", "--evry", "1h"),
        ("broker", "run", "my-broker\nExecStartPre=/bin/sh"),
        (),
    ],
    ids=["ends", "anew", "no-store", "no-fleet", "no-such-option", "line-break", "no-command"],
)
def test_a_command_that_cannot_be_a_service_is_refused(tern, words):
    tern("service", "show", "x", "--", *words, code=errors.USAGE)


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "ä", "x" * 65])
def test_a_name_that_no_unit_can_have_is_refused(tern, name):
    tern("service", "show", "--", name, *BROKER, code=errors.USAGE)


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd runs here")
def test_a_machine_without_systemd_gets_no_service(tern):
    tern("service", "install", "x", "--", *BROKER, code=errors.USAGE)


def test_a_project_file_that_the_service_would_not_read_is_refused(tern, here):
    (here / "tern.toml").write_text('[serve]\nevery = "1h"\n')
    tern("service", "show", "x", "--", "serve", "--fleet", "mqtt:b", code=errors.USAGE)


# The files that the arguments name


def checked(*words):
    _, args = plan.planned("x", words)
    paths.check(args)


def test_a_file_that_the_service_would_not_find_is_refused(here):
    (here / "my.csv").write_text("a,label\n1,1\n")
    with pytest.raises(UsageError, match=r"my\.csv"):
        checked(*SERVE, "--data", "my.csv")


@pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to make a file in /var/tmp that is its own"
)
def test_a_file_that_the_user_of_services_cannot_read_is_refused():
    path = Path("/var/tmp/tern-test-secret.csv")
    path.write_text("a,label\n1,1\n")
    try:
        path.chmod(0o644)
        checked(*SERVE, "--data", str(path))
        path.chmod(0o600)
        with pytest.raises(UsageError, match="cannot read"):
            checked(*SERVE, "--data", str(path))
    finally:
        path.unlink()


@pytest.mark.parametrize("directory", ["~", "/root", "/home"])
def test_a_directory_that_services_do_not_see_is_refused(directory):
    with pytest.raises(UsageError):
        checked("broker", "run", directory)


def test_a_python_below_a_home_is_refused(monkeypatch):
    monkeypatch.setattr("sys.executable", "/root/venv/bin/python")
    with pytest.raises(UsageError, match="/root"):
        paths.check_interpreter()
