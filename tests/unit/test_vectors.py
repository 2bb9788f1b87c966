"""The vectors in shared_specs equal the output of their generators."""

import runpy
from pathlib import Path

import pytest

from terntools.boards import modules

ROOT = Path(__file__).parents[2]
GENERATORS = sorted((ROOT / "tests" / "vectors").glob("make_*.py"))


@pytest.mark.parametrize("generator", GENERATORS, ids=lambda path: path.stem)
def test_vectors_are_up_to_date(generator, tmp_path, monkeypatch):
    """shared_specs/vectors has inputs and results by which any implementation of a device can be
    checked. Each generator, run again, writes the very files that are kept there.
    """
    monkeypatch.syspath_prepend(generator.parent)
    module = runpy.run_path(str(generator))
    module["main"].__globals__["VECTORS"] = tmp_path  # where it writes
    module["main"]()

    written = sorted(tmp_path.iterdir())
    assert written
    for path in written:
        kept = ROOT / "shared_specs" / "vectors" / path.name
        assert path.read_text() == kept.read_text(), f"{kept.name}: run {generator.name}"


def test_the_encoder_in_tests_imports_nothing_of_the_library():
    files = sorted((ROOT / "tests" / "spec").glob("*.py"))
    assert files
    for path in files:
        roots = {name.partition(".")[0] for name in modules.imports(path.read_text())}
        assert roots <= {"dataclasses", "hashlib", "math", "spec", "struct", "zlib"}, path.name
