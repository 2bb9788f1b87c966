"""What is in the repository is in the package, and the checks of `make test` see all of it."""

import tomllib
from pathlib import Path

import ternspecs
from terntools.boards import mpy

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = {"tern": "firmware", "ternhost": "host", "terntools": "tools"}


def test_every_package_is_installed():
    there = {"ternspecs"}
    data = ROOT / "tools/terntools/qemu/port"  # Python for a device, among C
    for name, folder in SOURCES.items():
        for source in (ROOT / folder / name).rglob("*.py"):
            if data in source.parents:
                continue
            there.add(".".join(source.parent.relative_to(ROOT / folder).parts))
    assert there == set(PROJECT["tool"]["setuptools"]["packages"])


def test_a_package_is_a_folder_with_an_init():
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        name, *below = package.split(".")
        if name in SOURCES:
            assert ROOT.joinpath(SOURCES[name], name, *below, "__init__.py").exists(), package


def test_specifications_are_found_as_a_package():
    assert (Path(next(iter(ternspecs.__path__))) / "cards.md").exists()


def test_data_files_match_their_patterns():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for package in ("native", "pico"):
        for name in (ROOT / "tools/terntools" / package).iterdir():
            if name.suffix not in (".py", "") and name.is_file():
                assert f"*{name.suffix}" in data[f"terntools.{package}"], name
    folders = {path.name for path in (ROOT / "tools/terntools/qemu").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {
        pattern.partition("/")[0] for pattern in data["terntools.emulators.qemu"]
    }


def test_the_compiler_that_is_named_is_the_one_that_is_pinned():
    extras = PROJECT["project"]["optional-dependencies"]
    assert all(mpy.COMPILER in extras[extra] for extra in ("boards", "dev"))
