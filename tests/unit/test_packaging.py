"""The package has every module of the repository, and its extras match the code.

See also test_wheel.py.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ternhost import extras

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]


def names(requirements):
    """The names of packages, without versions."""
    return {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}


# Folders of data in the wheel: not everything in them belongs to it.
FOLDERS_OF_DATA = {"ternfirmware", "ternguides", "ternspecs", "terntests"}


def test_the_wheel_has_every_package_of_the_sources():
    """A missing one shows nowhere else but in an installed wheel: a checkout has all folders."""
    setuptools = PROJECT["tool"]["setuptools"]
    packages = set()
    for name, folder in setuptools["package-dir"].items():
        if name not in FOLDERS_OF_DATA:
            for module in (ROOT / folder).rglob("__init__.py"):
                inner = module.parent.relative_to(ROOT / folder).parts
                packages.add(".".join([name, *inner]))
    assert packages <= set(setuptools["packages"])


def test_an_extra_has_the_packages_of_its_modules():
    import terngateway  # noqa: F401, it adds an extra

    for extra, modules in extras.EXTRAS.items():
        assert set(modules.values()) == names(EXTRAS[extra]) - {"tern-ldp"}, extra
    assert not set(EXTRAS) - set(extras.EXTRAS) - {"all", "dev"}


# An entry of a lock: a package and its version, the hashes of its files, and who asks for it.
LOCK_ENTRY = r"^(\S.*?) \\\n(?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+((?: {4}#.*\n)+)"
LOCKS = pytest.mark.parametrize("name", ["dev", *GROUPS])


def lock(name):
    return (ROOT / f"tools/locks/{name}.txt").read_text()


@LOCKS
def test_a_lock_lists_versions_and_their_hashes_alone(name):
    """No address of a server, and no option of pip."""
    rest = re.sub(LOCK_ENTRY, "", lock(name), flags=re.MULTILINE)
    assert [line for line in rest.splitlines() if not line.startswith("#")] == []


@LOCKS
def test_a_lock_fits_the_project(name):
    """A lock pins the exact version of each package. It pins what pyproject.toml asks for, no more
    and no less, and each version lies in the stated range.
    """
    # What the lock pins because the project itself asks for it.
    versions = {}
    for pin, askers in re.findall(LOCK_ENTRY, lock(name), re.MULTILINE):
        if "tern-ldp (pyproject" in askers:
            requirement = Requirement(pin)
            versions[requirement.name] = str(requirement.specifier).removeprefix("==")

    # What pyproject.toml asks for: a group of developers' packages, or the package with all extras.
    ranges = {}
    asked = GROUPS.get(name, [])
    if name == "demo":  # a group beside what tern always needs
        asked = [*asked, *PROJECT["project"]["dependencies"]]
    elif not asked:
        asked = sum(EXTRAS.values(), PROJECT["project"]["dependencies"])
    for text in asked:
        requirement = Requirement(text)
        if requirement.name != "tern-ldp":  # an extra that includes another one
            ranges[canonicalize_name(requirement.name)] = requirement.specifier
    assert versions.keys() == ranges.keys(), "run: make lock"
    for package, version in versions.items():
        assert version in ranges[package], f"{package}; run: make lock"


def test_setup_installs_no_package_without_the_hash_of_its_file():
    script = (ROOT / "tools/setup.sh").read_text().replace("\\\n", "")
    installs = [line for line in script.splitlines() if "pip install" in line]
    of_tern_itself = [line for line in installs if "--no-deps --editable ." in line]
    assert len(of_tern_itself) == 1
    for line in installs:
        assert line in of_tern_itself or "--require-hashes --requirement" in line, line


@pytest.mark.parametrize("extra", sorted({*EXTRAS} - {"all", "dev"}))
def test_the_error_for_a_missing_package_installs_a_version_that_tern_can_use(extra):
    import terngateway  # noqa: F401, it adds an extra

    for module, package in extras.EXTRAS[extra].items():
        missing = extras.explained(ModuleNotFoundError("No module named", name=module))
        command, *packages = shlex.split(missing.hint.partition(": ")[2])
        assert command == sys.executable
        assert packages[:3] == ["-m", "pip", "install"]
        (wanted,) = [Requirement(text) for text in EXTRAS[extra] if text.startswith(package)]
        assert str(wanted) in {str(Requirement(text)) for text in packages[3:]}


def test_an_import_that_fails_names_the_extra():
    missing = extras.explained(ModuleNotFoundError("No module named", name="sklearn.datasets"))
    assert missing is not None
    assert missing.message == "scikit-learn is not installed"
    assert missing.hint is not None
    assert "'data'" in missing.hint
    assert extras.explained(ModuleNotFoundError("No module named", name="ternhost.nothing")) is None
    assert extras.explained(ImportError("cannot import name")) is None


def test_parsers_are_made_without_extras_and_slow_imports():
    """`tern --help` works at once on a small installation: the parsers of all commands are made
    without optional packages, and without matplotlib and scipy, which take seconds to import.
    """
    hidden = ["matplotlib", "scipy"]
    for modules in extras.EXTRAS.values():
        hidden += modules
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({hidden})); "  # None: it cannot be imported
        "from ternhost.cli import tree; tree.build_parser()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
