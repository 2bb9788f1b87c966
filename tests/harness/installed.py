"""The package as installed by pip: the wheel, in an environment of its own, without a checkout."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import release

from ternhost.cache import cache_root

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Folder -> package, without packages that were taken away.
FOLDERS = {
    folder: package
    for package, folder in PROJECT["tool"]["setuptools"]["package-dir"].items()
    if folder != "tests" and (ROOT / folder).is_dir()
}
FOLDERS |= {f"tests/{name}": f"terntests/{name}" for name in ("device", "hil", "spec")}


def sources():
    """The files that the package should hold: path in the package -> path in the checkout."""
    names = {}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                names.setdefault(path, f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    return {name: path for path, name in names.items()}


def copy_sources(copy):
    """Copy what a checkout has of the package into a new folder, without the remains of builds."""
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for path in sources().values():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def build(folder):
    """The wheel, built in a folder from a copy of the sources."""
    copy_sources(folder / "sources")
    return release.build(folder / "sources", folder)[1]


def environment():
    """The environment of this process without the checkout's path, and with the cache of emulators."""
    hidden = ("PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "TERN_CACHE": str(cache_root())}


def run(*command, cwd=None):
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def link_packages(packages, *names):
    """Make links in a folder of packages to those that tern needs, and to those of some extras."""
    wanted = [*PROJECT["project"]["dependencies"]]
    for name in names:
        wanted += PROJECT["project"]["optional-dependencies"][name]
    for name in release.needs_of("", wanted).keys() - {""}:
        package = metadata.distribution(name)
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(package.locate_file(top)))


class Installed:
    """The wheel in an environment with its requirements and those of some extras, and nothing else.

    The required packages are links into this environment.
    """

    def __init__(self, folder, wheel, *names):
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv/bin/python"
        self.home = folder / "home"
        self.home.mkdir()
        packages = Path(
            self.run("-c", "import site; print(site.getsitepackages()[0])").stdout.strip()
        )
        pip = (sys.executable, "-m", "pip", "--python", self.python)
        installed = run(*pip, "install", "--no-deps", "--no-index", wheel)
        assert installed.returncode == 0, installed.stderr
        link_packages(packages, *names)

    def run(self, *arguments):
        return run(self.python, *arguments, cwd=self.home)

    def tern(self, line, code=0):
        """Run the installed command with the arguments of this line; assert its exit code."""
        answer = run(self.python.with_name("tern"), *line.split(), cwd=self.home)
        assert answer.returncode == code, answer.stderr
        return answer


@contextlib.contextmanager
def emulated_board(installed, name):
    """Run an emulated board by the installed command; yield its port."""
    process = subprocess.Popen(
        [installed.python.with_name("tern"), "emulator", "run", name, "--json"],
        cwd=installed.home,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield json.loads(process.stdout.readline())["port"]
    finally:
        process.terminate()
        process.communicate(timeout=30)
