"""The device library compiles for every architecture, and what a board gets of it grows only on purpose."""

import json

import pytest

from terntools.boards import mpy, sizes

KEPT = json.loads(sizes.KEPT.read_text())
LIMITS = {"pico": 32 * 1024, "pico-w": 40 * 1024}
TOLERANCE = 0.02  # of a board's total
APPLICATION = 6144  # bytes that tern.app and what it brings may add on a Pico


@pytest.mark.parametrize("architecture", mpy.ARCHITECTURES)
def test_library_compiles(architecture, tmp_path):
    mpy.compile_library(architecture, tmp_path)


@pytest.mark.parametrize("name", mpy.BOARDS)
def test_what_a_board_gets_keeps_its_size(name, tmp_path):
    found = mpy.compile_set(mpy.BOARDS[name], tmp_path)
    assert sum(found.values()) < LIMITS.get(name, 1 << 20)
    kept = sum(KEPT[name].values())
    assert (1 - TOLERANCE) * kept < sum(found.values()) <= kept, (
        "meant? python -m terntools.boards.sizes --keep"
    )
    assert set(found) == set(KEPT[name]), "meant? python -m terntools.boards.sizes --keep"


@pytest.mark.skipif("app" not in mpy.BEYOND, reason="no tern.app here")
def test_the_application_is_small():
    grown = sizes.added(["app"])["pico"]
    assert sum(grown.values()) <= APPLICATION, grown


@pytest.mark.parametrize("architecture", mpy.ARCHITECTURES)
def test_entry_point_compiles(architecture, tmp_path):
    for source in sorted(mpy.FIRMWARE.glob("*.py")):
        mpy.compile_module(source, architecture, tmp_path / source.with_suffix(".mpy").name)


def test_a_module_that_does_not_compile_is_an_error(tmp_path):
    source = tmp_path / "broken.py"
    source.write_text("@micropython.viper\ndef f(x: ptr8):\n    return x + 'a'\n")
    with pytest.raises(Exception, match="does not compile for armv6m"):
        mpy.compile_module(source, "armv6m", tmp_path / "broken.mpy")
