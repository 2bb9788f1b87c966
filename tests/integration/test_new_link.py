"""A link from outside the package: one file on each side, registered with one line."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

import pytest
import rig
from harness.waiting import wait_for

import tern
from ternhost.cli import plugins
from ternhost.errors import DeviceError, RefusedError
from ternhost.reach import links
from terntools.boards.network import read_link
from terntools.emulators.micropython import device_command

sys.path.insert(0, str(Path(__file__).parents[1] / "outside"))
import unix_link

PATH = (
    f"{Path(tern.__file__).parents[1]}:{Path(unix_link.__file__).parent}"  # of the board's modules
)
GUIDE = Path(__file__).parents[2] / "docs/guides/extend.md"
MAIN = re.search(r"```python\n(import unix_link_device\n.*?)```", GUIDE.read_text(), re.S)[1]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(
        links.SCHEMES, "_places", dict(links.SCHEMES._places)
    )  # registered for one test only
    monkeypatch.setattr(links.SCHEMES, "_loaded", dict(links.SCHEMES._loaded))
    plugins.load(unix_link.__file__)  # as 'tern --with' does


@contextmanager
def running(micropython, directory, port):
    """Run a board on the files of `directory`, which listens at `port`."""
    config = directory.parent / f"{directory.name}.json"
    config.write_text(json.dumps({"path": "socket"}))
    for name, content in read_link(
        [f"unix.json={config}"]
    ).items():  # as 'tern board provision --link' does
        (directory / name).write_bytes(content)
    command = device_command(micropython, "-c", MAIN)
    env = {**os.environ, "MICROPYPATH": PATH}
    process = subprocess.Popen(
        command, cwd=directory, env=env
    )  # the path of a socket has to be short
    try:

        def listens():
            assert process.poll() is None
            with suppress(DeviceError):
                links.open_link(port, SimpleQueue()).close()
                return True

        wait_for(listens)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def fleet(site, micropython, here):
    """Two boards of ten clients each: the site, the ports, the processes."""
    made = site(clients=20, boards=2)
    ports = [f"unix:{directory.relative_to(here)}/socket" for directory in made.directories]
    with ExitStack() as stack:
        boards = [
            stack.enter_context(running(micropython, directory, port))
            for directory, port in zip(made.directories, ports, strict=True)
        ]
        yield made, ports, boards


def test_every_device_reports_once_over_the_link(fleet):
    """The link of these boards is one that a user's own package adds. Over it, too, 20 devices
    report once, and pay once; the budget is for one report, so that a second round is refused.
    """
    made, ports, _ = fleet
    devices = list(range(1, 21))

    result, _ = made.round(ports, devices)

    (cohort,) = result.cohorts
    assert result.reports == 20
    assert cohort.counts.sum() == 20
    rig.assert_counted_once(made.store, made.ledgers(), 1, devices)
    with pytest.raises(RefusedError, match="budget is spent"):
        made.round(ports, devices, number=2)
