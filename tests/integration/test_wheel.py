"""The package as installed by pip: in an environment of its own, in an empty folder, without a
checkout.
"""

import json
import re
import shutil
import sys
import zipfile
from hashlib import sha256
from importlib import metadata

import pytest
import release
from harness.installed import PROJECT, ROOT, Installed, emulated_board, run, sources

from ternhost import extras
from terntools.boards import mpy
from terntools.emulators import catalogue

pytestmark = pytest.mark.xdist_group("wheel")  # it is built once

NOT_FOR_USE = {"ternfirmware/mypy.ini"}


def installed(*names):
    """A fixture: the package with these extras."""

    @pytest.fixture(scope="module")
    def package(wheel, tmp_path_factory):
        return Installed(tmp_path_factory.mktemp("installed"), wheel, *names)

    return package


bare, for_boards, with_data = installed(), installed("boards"), installed("data")

# A program whose lines from the fourth on are wrong, each in another way.
WRONG_PROGRAM = """
import ternhost

ternhost.train(ternhost.FedSGD(epsilon=[1]))
ternhost.train(ternhost.FedSGD(epsilom=1))
ternhost.train(fleet=3)
text: str = ternhost.train().accuracy
ternhost.train(reports=5)
"""
WRONG_LINES = {4, 5, 6, 7, 8}


def type_errors(package, program):
    """What `mypy --strict` finds in a program of somebody who has installed the package."""
    words = (sys.executable, "-m", "mypy", "--strict", "--python-executable", package.python)
    checked = run(*words, "--cache-dir", package.home / "mypy", program, cwd=package.home)
    return [line for line in checked.stdout.splitlines() if ": error:" in line]


def test_a_program_of_a_user_passes_strict_type_checks(with_data):
    assert type_errors(with_data, ROOT / "tests/outside/typed_program.py") == []


def test_strict_type_checks_find_wrong_arguments(with_data):
    program = with_data.home / "wrong.py"
    program.write_text(WRONG_PROGRAM)
    errors = type_errors(with_data, program)
    assert {int(error.split(":")[1]) for error in errors} == WRONG_LINES


def test_the_program_of_a_user_runs(with_data):
    ended = with_data.run(ROOT / "tests/outside/typed_program.py")
    assert ended.returncode == 0, ended.stderr


def test_the_wheel_holds_every_source_file(wheel):
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert there == set(sources()) - NOT_FOR_USE


def written(bom, path):
    """The JSON object of an SBOM, as it is written."""
    release.write(bom, path)
    return json.loads(path.read_text())


def test_the_sbom_of_the_wheel_names_its_hash_and_every_package_that_it_needs(wheel, tmp_path):
    """The SBOM is the list of components that goes with a release. It has the hash of the wheel,
    and each package that the wheel needs, directly or through others, in the version that is
    installed and locked here.
    """
    bom = written(release.wheel_bom(wheel), tmp_path / "wheel")

    (digest,) = bom["metadata"]["component"]["hashes"]
    assert digest["content"] == sha256(wheel.read_bytes()).hexdigest()
    packages = {part["name"]: part["version"] for part in bom["components"]}
    for name in release.needs_of("", PROJECT["project"]["dependencies"]).keys() - {""}:
        assert packages[name] == metadata.version(name)
    locked_packages = re.findall(r"^\w", release.LOCK.read_text(), re.M)
    assert len(packages) == len(locked_packages), "with those that others need"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", mpy.BOARDS)
def test_the_sbom_of_a_board_lists_its_files_by_their_hashes(tmp_path, name):
    """The SBOM, the list of components that goes with a release, has for each kind of board the
    files that `tern board deploy` would write to it, main.py included.
    """
    bom = written(release.boards_bom(), tmp_path / "boards")
    board = next(part for part in bom["components"] if part["name"] == name)
    listed = {file["name"]: file["hashes"][0]["content"] for file in board["components"]}
    library = mpy.files_of(mpy.compile_set(mpy.BOARDS[name]))
    files = {f"/lib/{path}": data for path, data in library.items()}
    files["/main.py"] = mpy.MAIN.read_bytes()
    assert listed == {path: sha256(data).hexdigest() for path, data in files.items()}


def test_no_module_of_an_extra_is_installed(bare):
    modules = [module for extra in extras.EXTRAS.values() for module in extra]
    answer = bare.run(
        "-c", f"import importlib.util as u; print([m for m in {modules} if u.find_spec(m)])"
    )
    assert answer.stdout.strip() == "[]", answer.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("train --fleet simulated:100 --data iris --reports 100 --group 100", "data"),
        ("hil --hardware-map boards.yaml", "boards"),
        ("broker config broker --store keys.sqlite", "mqtt"),
    ],
)
def test_a_command_that_lacks_its_extra_names_it(bare, words, extra, monkeypatch, tmp_path):
    """The package is installed without its optional dependencies. A command that needs some tells
    the user which ones to install.
    """
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))  # without data sets
    (bare.home / "keys.sqlite").unlink(missing_ok=True)
    bare.tern("keys add 1-3 --store keys.sqlite")
    answer = bare.tern(words, 2)
    assert f"extra '{extra}'" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_board_becomes_a_member_of_a_fleet(for_boards):
    with emulated_board(for_boards, "rv32") as port:
        options = "--store fleet.sqlite --device 7 --data synthetic-logistic --yes --json"
        up = json.loads(for_boards.tern(f"board up {port} {options}").stdout)
        assert (up["clients"], up["deployed"][-1]) == (1, "/main.py")
        again = for_boards.tern(f"board deploy {port} --json")
        assert json.loads(again.stdout)["written"] == [], again.stderr


def run_own_project(package, folder, *options):
    """Run the example of a pytest project in an empty folder, and return how it ended."""
    project = folder / "project"
    shutil.copytree(ROOT / "examples/board_tests", project)
    return run(package.python, "-m", "pytest", "-p", "no:cacheprovider", *options, cwd=project)


def test_a_pytest_project_of_a_user_runs_on_an_emulated_board(for_boards, tmp_path):
    ended = run_own_project(for_boards, tmp_path)
    assert "3 passed, 1 skipped" in ended.stdout, "only a hardware map expects figures"


def test_a_pytest_project_of_a_user_runs_on_a_board_at_a_port(for_boards, tmp_path):
    with catalogue.boot("rv32") as board:
        ended = run_own_project(for_boards, tmp_path, "--port", board.url)
    assert "3 passed, 1 skipped" in ended.stdout
