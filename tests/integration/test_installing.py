"""The steps of docs/guides/install.md, and the command that an error prints, as a user runs them."""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from harness.installed import (
    PROJECT,
    ROOT,
    Installed,
    copy_sources,
    environment,
    link_packages,
)

pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.slow]

PAGE = ROOT / "docs/guides/install.md"
STEPS = re.compile(r"<!-- installs: (\w+) -->\n```sh\n(.*?)```", re.DOTALL)
WITHOUT_PYPI = re.compile(r"No matching distribution found|Could not find a version|Connection")


def shell(lines, folder):
    """Run commands, as somebody would in a new terminal; return what they print.

    Skip the test if pip cannot reach PyPI.
    """
    python = Path(sys.base_prefix) / "bin"  # the page calls it python3
    variables = {**environment(), "PATH": f"{python}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["sh", "-ec", "\n".join(lines)],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if WITHOUT_PYPI.search(ended.stderr):
        pytest.skip(f"pip finds no packages: {ended.stderr.strip().splitlines()[-1]}")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("source", ["wheel", "checkout"])
def test_the_steps_of_the_page_about_installing_work(source, wheel, tmp_path, pytestconfig):
    """With --exhaustive, pip fetches what tern needs from PyPI, as it does for a user, which takes
    a minute. Without, the new environment gets links to the packages that are installed here.
    """
    block = dict(STEPS.findall(PAGE.read_text()))[source]
    lines = block.splitlines()
    if source == "wheel":
        shutil.copy(wheel, tmp_path)
    else:
        copy_sources(tmp_path / "tern")
        lines = [line for line in lines if not line.startswith("git clone")]

    (number,) = [number for number, line in enumerate(lines) if "-m venv" in line]
    shell(lines[: number + 1], tmp_path)
    if not pytestconfig.getoption("exhaustive"):
        (packages,) = tmp_path.rglob("site-packages")
        link_packages(packages, "data", "mqtt")
    said = shell([line for line in lines if "-m venv" not in line], tmp_path)

    assert said.splitlines()[-1] == f"tern {PROJECT['project']['version']}"


def test_the_command_that_an_error_prints_installs_what_is_missing(wheel, tmp_path):
    package = Installed(tmp_path, wheel)
    venv.create(tmp_path / "venv", with_pip=True)
    package.tern("keys add 1-3 --store keys.sqlite")
    configuring = "broker config broker --store keys.sqlite"
    message = package.tern(configuring, 2).stderr

    shell([re.search(r"extra 'mqtt' of tern lacks: (.*)", message)[1]], tmp_path)

    package.tern(configuring)


def test_a_guide_that_an_error_names_is_in_the_wheel(wheel, tmp_path):
    package = Installed(tmp_path, wheel)
    program = "from ternhost.guides import guide; print(open(guide('absent.md')).read(), end='')"
    guide = ROOT / "docs/guides/absent.md"
    assert package.run("-c", program).stdout == guide.read_text()
