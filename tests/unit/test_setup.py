"""tools/setup.sh, whole, in a small checkout: it installs no file but the locked
one.
"""

import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path):
    """A checkout that an earlier set-up has left, with locks that list nothing."""
    locks = tmp_path / "tools/locks"
    shutil.copytree(
        ROOT / "tools/locks", locks, copy_function=lambda source, target: Path(target).touch()
    )
    shutil.copy(ROOT / "tools/setup.sh", tmp_path / "tools")
    (tmp_path / "pyproject.toml").touch()
    for name in "host", "firmware", "tools/terntools":
        (tmp_path / name).symlink_to(ROOT / name)
    script(tmp_path / ".venv/bin/tern", "")
    (tmp_path / ".venv/.ready").write_text(f"{tmp_path}\n")
    return tmp_path


def wheel(folder):
    """The path of a small wheel."""
    path = folder / "probe-1.0-py3-none-any.whl"
    info = "probe-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("probe.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("tampered", [False, True])
def test_a_wheel_with_a_changed_byte_is_not_installed(checkout, tampered):
    path = wheel(checkout)
    data = bytearray(path.read_bytes())
    lock = f"probe==1.0 --hash=sha256:{hashlib.sha256(data).hexdigest()}\n"
    (checkout / "tools/locks/dev.txt").write_text(lock)
    data[10] ^= tampered  # the time of its first file: nothing but a hash shows that it is another
    path.write_bytes(data)
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout)}
    options = {"cwd": checkout, "env": environment, "capture_output": True, "text": True}
    ended = subprocess.run(["sh", "tools/setup.sh"], **options)
    assert ended.returncode  # at the latest since this checkout is no package
    assert not (checkout / ".venv/.ready").exists()
    assert len([*checkout.glob(".venv/lib/*/site-packages/probe.py")]) == (not tampered)
    assert (
        "stopped: the packages of tools/locks/dev.txt are not installed" in ended.stderr
    ) == tampered
    assert ("do not install it by hand" in ended.stderr) == tampered
    assert (hashlib.sha256(data).hexdigest() in ended.stderr) == tampered  # pip's own words
