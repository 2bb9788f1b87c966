"""The image of container/Containerfile and the containers of compose.yaml, without an engine.

The lines of both files run in a Debian of systemd-nspawn, in which the packages of Debian and of Python
are there already. Whether an engine builds the image is not tested.
"""

import json
import re
import shlex
import subprocess
from pathlib import Path

import debian_machine
import pytest
import yaml
from harness.waiting import wait_for

from ternhost import errors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("wheel"),  # which is built once
]

FOLDER = Path(__file__).parents[2] / "container"
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
_PATIENCE = 90.0  # seconds


def instructions():
    """(instruction, its text) of each instruction of the Containerfile."""
    lines = [line for line in (FOLDER / "Containerfile").read_text().splitlines() if line]
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines()]


FILE = instructions()


def last(name):
    return [text for instruction, text in FILE if instruction == name][-1]


@pytest.fixture(scope="module")
def image(tmp_path_factory, wheel):
    """A running machine on which the RUN and COPY lines of the Containerfile were carried out.

    Only the first RUN line, which installs packages of Debian, needs the network: those packages
    are there, and it is left out.
    """
    root = debian_machine.root_or_skip()
    folder = tmp_path_factory.mktemp("machine")
    packages, *steps = [step for step in FILE if step[0] in ("RUN", "COPY")]
    needed = re.search(r"--no-install-recommends ([\w -]+)", packages[1])[1].split()
    assert set(needed) <= set(debian_machine.PACKAGES)
    with debian_machine.Machine(root, folder, [wheel.parent]) as machine:
        for instruction, text in steps:
            if instruction == "RUN":
                machine.run("sh", "-c", text)
            else:
                pattern, target = text.split()
                copy = f"mkdir -p {target}; cp {wheel.parent}/{pattern} {target}"
                machine.run("sh", "-ec", copy)
        (machine.files / "var/lib/tern/my.csv").write_text(debian_machine.TABLE)
        yield machine


def as_in_container(command):
    """A line of a shell that runs a command as the image does."""
    name, _, value = last("ENV").partition("=")
    user = last("USER")
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env"]
    return shlex.join([*words, "env", f"--chdir={last('WORKDIR')}", f"{name}={value}", *command])


@pytest.fixture(scope="module")
def containers(image):
    """The commands of all services of compose.yaml, running; they end with the module."""
    processes = {}
    for name, service in SERVICES.items():
        command = [*json.loads(last("ENTRYPOINT")), *shlex.split(service["command"])]
        processes[name] = image.begin(name, as_in_container(command))
        if name == "broker":
            wait_until_healthy(image, name)
    yield processes
    for process in processes.values():
        process.terminate()
        process.wait()


def wait_until_healthy(image, name):
    kind, *command = SERVICES[name]["healthcheck"]["test"]
    assert kind == "CMD"

    def is_healthy():
        return image.run("sh", "-c", as_in_container(command), check=False).returncode == 0

    wait_for(is_healthy, _PATIENCE, lambda: image.log(name).read_text())


@pytest.mark.parametrize("name", SERVICES)
def test_the_container_becomes_healthy(image, containers, name):
    wait_until_healthy(image, name)
    assert containers[name].poll() is None


def test_a_dead_command_is_not_healthy(image):
    """No command runs at the port of this check."""
    command = [
        word.replace("8642", "8643") for word in SERVICES["dashboard"]["healthcheck"]["test"]
    ]
    assert image.run("sh", "-c", as_in_container(command[1:]), check=False).returncode != 0


def test_all_files_belong_to_the_user_of_the_image(image, containers):
    listed = image.run("find", "/var/lib/tern", "-user", last("USER"), "-name", "store.sqlite")
    assert listed.stdout.strip() == "/var/lib/tern/my-broker/store.sqlite"


def test_the_image_prints_the_help_by_default(image):
    command = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    assert "exit codes" in image.run("sh", "-c", as_in_container(command)).stdout


def test_a_stopped_container_ends_its_programs(image, containers):
    """An engine sends STOPSIGNAL to the command, and waits for stop_grace_period."""
    assert last("STOPSIGNAL") == "SIGTERM"
    mosquitto = (image.files / "var/lib/tern/my-broker/mosquitto.pid").read_text().strip()
    assert image.run("test", "-d", f"/proc/{mosquitto}")
    image.run("sh", "-c", "kill -s TERM $(cat /run/broker.pid)")
    assert containers["broker"].wait(_PATIENCE) == errors.TERMINATED
    assert image.run("test", "-d", f"/proc/{mosquitto}", check=False).returncode != 0


def test_compose_reads_the_file():
    """If docker compose is installed, it finds no mistake; this needs no engine."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("docker compose is not installed")
    command = ["docker", "compose", "--file", FOLDER / "compose.yaml", "config", "--quiet"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
