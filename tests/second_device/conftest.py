"""Builds the program of the second device once."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "device.c"
FLAGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"]


@pytest.fixture(scope="session")
def device(tmp_path_factory):
    """The path (Path) of the program."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler (cc)")
    program = tmp_path_factory.mktemp("second_device") / "device"
    subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(program)], check=True)
    return program
