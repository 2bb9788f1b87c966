"""The device library compiles for every architecture, and what a board gets of it grows only on purpose."""

import json

import pytest
import sizes

from terntools.boards import mpy

KEPT = json.loads(sizes.KEPT.read_text())
LIMITS = {"pico": 32 * 1024, "pico-w": 40 * 1024}
TOLERANCE = 0.02  # of a board's total
# A Pico with tern.app has at most APPLICATION bytes more than a client had before there was one. The application alone
# is larger: its modules add up to ADDED bytes to the client, which has become smaller; on a network tern.dns and
# tern.lease are among them.
BEFORE = 32644
APPLICATION = 6400  # 6,144 was aimed at
ADDED = {"pico": 7550, "pico-w": 9500}


@pytest.mark.parametrize("architecture", mpy.ARCHITECTURES)
def test_library_compiles(architecture, tmp_path):
    mpy.compile_library(architecture, tmp_path)


@pytest.mark.parametrize("name", mpy.BOARDS)
def test_what_a_board_gets_keeps_its_size(name, tmp_path):
    found = mpy.compile_set(mpy.BOARDS[name], tmp_path)
    assert sum(found.values()) < LIMITS.get(name, 1 << 20)
    kept = sum(KEPT[name].values())
    assert (1 - TOLERANCE) * kept < sum(found.values()) <= kept, "meant? python tests/sizes.py --keep"
    assert set(found) == set(KEPT[name]), "meant? python tests/sizes.py --keep"


@pytest.mark.skipif("app" not in mpy.BEYOND, reason="no tern.app here")
@pytest.mark.parametrize("name", ADDED)
def test_the_application_is_small(name, tmp_path):
    without = sum(mpy.compile_set(mpy.BOARDS[name], tmp_path / "without").values())
    whole = mpy.compile_set(mpy.BOARDS[name], tmp_path / "with", more=["app"])
    assert sum(whole.values()) - without <= ADDED[name], whole
    assert name != "pico" or sum(whole.values()) - BEFORE <= APPLICATION, whole


@pytest.mark.parametrize("architecture", mpy.ARCHITECTURES)
def test_entry_point_compiles(architecture, tmp_path):
    for source in sorted(mpy.FIRMWARE.glob("*.py")):
        mpy.compile_module(source, architecture, tmp_path / source.with_suffix(".mpy").name)


def test_a_module_that_does_not_compile_is_an_error(tmp_path):
    source = tmp_path / "broken.py"
    source.write_text("@micropython.viper\ndef f(x: ptr8):\n    return x + 'a'\n")
    with pytest.raises(Exception, match="does not compile for armv6m"):
        mpy.compile_module(source, "armv6m", tmp_path / "broken.mpy")
