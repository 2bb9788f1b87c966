"""tern works in folders where Python finds something else under the name `tern`."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each test starts Python

CHECKOUT = Path(__file__).parents[2]
DESIGN = "print(ternhost.design('duchi', epsilon=1).mechanism)"
NAME = "duchi\n"


@pytest.fixture(params=["clone", "package"])
def folder(request, tmp_path):
    """A folder with a clone of tern, or with a package of the user's that is called `tern`."""
    if request.param == "clone":
        (tmp_path / "tern").symlink_to(CHECKOUT)
    else:
        make_package(tmp_path)
    return tmp_path


@pytest.fixture
def beside_package(tmp_path):
    make_package(tmp_path)
    return tmp_path


def make_package(folder):
    (folder / "tern").mkdir()
    (folder / "tern/__init__.py").write_text("whose = 'the user'\n")
    (folder / "tern/wings.py").write_text("from tern import whose\n")


def python(folder, *words):
    """What Python prints that was started in this folder."""
    ended = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_command_works(folder):
    assert "duchi" in python(folder, "-m", "ternhost", "card", "design", "duchi", "--epsilon", "1")


def test_the_tools_fold_the_library_s_own_constants(folder):
    program = (
        "from terntools.boards import mpy; print(len(mpy.compile_set(mpy.BOARDS['pico'])) > 9)"
    )
    assert python(folder, "-c", program) == "True\n"


def test_devices_are_emulated(folder):
    words = ["train", "--fleet", "emulated:1", "--data", "iris", "--reports", "4"]
    words += ["--group", "4", "--no-report", "--json"]
    assert '"reports": 4' in python(folder, "-m", "ternhost", *words)


@pytest.mark.parametrize(
    "imports",
    ["import tern, ternhost", "import ternhost, tern", "import ternhost, tern.wings"],
)
def test_the_user_s_package_keeps_its_name(beside_package, imports):
    program = f"{imports}; {DESIGN}; print(tern.whose)"
    assert python(beside_package, "-c", program) == f"{NAME}the user\n"
