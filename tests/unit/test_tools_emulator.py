"""The interpreter of the emulated device must compute like a board; builds are reproducible and
explain failures.
"""

import hashlib
import os
import subprocess
import sys
import tarfile

import pytest

from ternhost import cache
from ternhost.errors import DeviceError, UsageError
from terntools.emulators import debian, micropython
from terntools.emulators.debian import BuildError, Requirement, Shell


def test_the_installed_interpreter_is_suitable_and_has_the_heap_of_a_board():
    path = micropython.find_micropython()
    assert micropython.probe(path, "test").faults == ()
    program = "import gc; gc.collect(); print(gc.mem_free() + gc.mem_alloc())"
    command = micropython.device_command(path, "-c", program)
    heap = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert 90 * 1024 < heap <= 192 * 1024


def test_a_64_bit_interpreter_with_doubles_is_unsuitable():
    faults = micropython.probe(sys.executable, "test").faults
    assert "small ints are not those of a 32-bit build" in faults
    assert "floats are not single precision" in faults
    assert any(fault.startswith("viper does not work") for fault in faults)
    assert "module cryptolib is missing" in faults


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("#!/bin/sh\necho 'no heap' >&2\nexit 1\n", "is not a MicroPython that works: no heap"),
        ("#!/bin/sh\n", "is not a MicroPython that works: no output"),
        ("#!/no/such/interpreter\n", "does not run"),
    ],
)
def test_an_interpreter_that_does_not_work_has_a_fault_with_the_reason(tmp_path, script, fault):
    interpreter = tmp_path / "micropython"
    interpreter.write_text(script)
    interpreter.chmod(0o755)
    (reported,) = micropython.probe(interpreter, "test").faults
    assert reported.startswith(fault)


def test_only_the_interpreter_named_by_the_environment_is_used(monkeypatch):
    good = micropython.find_micropython()
    monkeypatch.setenv("TERN_MICROPYTHON", sys.executable)
    with pytest.raises(UsageError, match=r"TERN_MICROPYTHON=.* cannot be used: small ints"):
        micropython.find_micropython()
    monkeypatch.setenv("TERN_MICROPYTHON", str(good))
    assert micropython.find_micropython() == good


def test_an_interpreter_on_the_path_is_used_only_if_suitable(monkeypatch, tmp_path):
    good = micropython.find_micropython()
    monkeypatch.delenv("TERN_MICROPYTHON", raising=False)
    monkeypatch.setenv("TERN_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    with pytest.raises(DeviceError, match="no interpreter") as caught:
        micropython.find_micropython()
    assert "tern emulator build" in caught.value.hint
    (tmp_path / "bin/micropython").symlink_to(sys.executable)
    with pytest.raises(DeviceError, match="bin/micropython: small ints"):
        micropython.find_micropython()
    (tmp_path / "bin/micropython").unlink()
    (tmp_path / "bin/micropython").symlink_to(good)
    assert micropython.find_micropython() == tmp_path / "bin/micropython"
    assert micropython.build_device(pytest.fail) == tmp_path / "bin/micropython"


def test_info_and_build_can_print_json(tern):
    built = tern("emulator", "build", "--what", "device", "--json").json
    assert built == {"device": str(micropython.find_micropython())}
    info = tern("emulator", "info", "--json").json
    assert info["micropython"] == str(micropython.find_micropython())
    assert "MicroPython v" in info["version"]
    assert set(info["pico"]) == {"firmware", "machine", "node"}


def shell(tmp_path, progress=pytest.fail):
    return Shell(tmp_path / "log", progress)


def test_missing_packages_are_named_to_an_ordinary_user(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    missing = [
        Requirement("tern-no-such-package"),
        Requirement("tern-neither", "tern-no-such-command"),
    ]
    with pytest.raises(UsageError, match="missing: tern-no-such-package tern-neither") as caught:
        debian.require([Requirement("sh-by-command", "sh"), *missing], shell(tmp_path))
    command = "apt-get install --no-install-recommends tern-no-such-package tern-neither"
    assert caught.value.hint == f"as root: {command}"


def test_nothing_is_installed_if_all_commands_exist(tmp_path):
    debian.require([Requirement("whatever", "sh")], shell(tmp_path))
    assert not (tmp_path / "log").exists()


def test_a_failed_step_shows_the_end_of_its_output_and_keeps_the_log(monkeypatch, tmp_path):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    steps = shell(tmp_path)
    steps.run("sh", "-c", "echo an earlier step")
    with pytest.raises(BuildError, match="sh failed with exit code 3:\n    no such flag") as caught:
        steps.run("sh", "-c", "echo no such flag >&2; exit 3")
    assert "an earlier step" not in caught.value.message
    assert "an earlier step" in (tmp_path / "failed-build.log").read_text()
    with pytest.raises(BuildError, match="tern-no-such-command is not installed"):
        steps.run("tern-no-such-command")


def test_builds_of_one_version_share_its_source(monkeypatch, tmp_path):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    source = micropython.Source("trixie", "1.2.3")

    def fetch(work, out):
        (work / "micropython").mkdir()
        (work / "micropython/mpcross").write_text("compiled")
        with tarfile.open(out / "micropython.tar", "w") as tar:
            tar.add(work / "micropython", "micropython")
        return {"micropython_1.2.3.dsc": "its checksum"}

    cache.build_entry(source.recipe, fetch, str)
    for build in ("pico", "m33"):  # neither fetches the source again
        (tmp_path / build).mkdir()
        folder, checksums = source.unpack(tmp_path / build, shell(tmp_path))
        assert (folder / "mpcross").read_text() == "compiled"
        assert checksums == {"micropython_1.2.3.dsc": "its checksum"}
        (folder / "mpcross").write_text("changed by this build")


def test_variables_of_a_calling_make_do_not_reach_a_build(monkeypatch, tmp_path):
    monkeypatch.setenv("MAKEFLAGS", "-n --jobserver-auth=3,4")
    monkeypatch.setenv("CFLAGS", "-DWRONG")
    shell(tmp_path).run("sh", "-c", 'echo "flags: [$MAKEFLAGS$CFLAGS]"')
    assert "flags: []" in (tmp_path / "log").read_text()


def test_a_source_with_another_checksum_is_refused(tmp_path):
    path = tmp_path / "lwip.tar.xz"
    path.write_bytes(b"the known source")
    wanted = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    debian.require_checksums(tmp_path, wanted)
    for damage in (lambda: path.write_bytes(b"something else"), path.unlink):
        damage()
        with pytest.raises(BuildError, match=r"lwip.tar.xz is not the one"):
            debian.require_checksums(tmp_path, wanted)
