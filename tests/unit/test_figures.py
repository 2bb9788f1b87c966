"""The device library compiles for every architecture, and its sizes and the figures of the pages
are in one file.
"""

import json

import figures
import pytest

from terntools.boards import mpy

KEPT = json.loads(figures.KEPT.read_text())
LIMITS = {"pico": 34 * 1024, "pico-w": 43 * 1024}
# What the modules of tern.app may add to a client, without features, which a program brings that
# imports them. On a network, tern.dns and tern.lease are among these modules.
ADDED = {"pico": 7200, "pico-w": 9100}


@pytest.mark.parametrize("architecture", mpy.ARCHITECTURES)
def test_library_compiles(architecture):
    for name, text in mpy.library(architecture).items():
        mpy.compiled(text, architecture, name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "pico")) for name in KEPT["mpy_bytes"]],
)
def test_the_modules_of_a_board_keep_their_sizes(name):
    modules = figures.sizes_of(mpy.BOARDS[name])
    assert sum(modules.values()) < LIMITS.get(name, 1 << 20)
    assert modules == KEPT["mpy_bytes"][name], "if this is intended: python tests/figures.py --keep"


PICO, RV32 = KEPT["pico_emulated"], KEPT["rv32_emulated"]
XTENSA = KEPT["xtensa_emulated"]
TIMES_FASTER = PICO["us_per_coordinate_plain_float"] / PICO["us_per_coordinate"]
MS_PER_REPORT = f"{PICO['us_per_report'] / 1000:.1f} ms"
CLAIMS = {
    "README.md": (
        f"sends a report of {PICO['report_bytes']} bytes",
        f"a report takes {MS_PER_REPORT}.",
    ),
    "docs/guides/measuring.md": (
        f"take at most {MS_PER_REPORT} from the question's first byte",
        f"leaves {PICO['garbage_bytes_per_report']} bytes of garbage",
        f"| this library | {PICO['us_per_coordinate']:.1f} |",
        f"takes {PICO['us_per_coordinate']:.1f} microseconds, "
        f"cryptographic randomness included: {TIMES_FASTER:.0f} times",
        f"takes {PICO['us_per_sum_of_500_flights'] / 1000:.0f} ms on the emulated Pico",
        f"takes about {round(RV32['instructions_per_report'], -4):,.0f} instructions on rv32",
        f"about {round(XTENSA['instructions_per_report'], -4):,.0f} on xtensa",
    ),
    "shared_specs/mqtt.md": (f"takes {MS_PER_REPORT} on the emulated Pico",),
}


@pytest.mark.parametrize("page", CLAIMS)
def test_the_pages_state_the_measured_figures(page):
    text = " ".join((mpy.FIRMWARE.parent / page).read_text().split())
    for sentence in CLAIMS[page]:
        assert sentence in text


@pytest.mark.skipif("app" not in mpy.beyond(), reason="no tern.app here")
@pytest.mark.parametrize("name", ADDED)
def test_the_application_is_small(name):
    without = sum(figures.sizes_of(mpy.BOARDS[name]).values())
    whole = figures.sizes_of(mpy.BOARDS[name], ["app"])
    assert sum(whole.values()) - without <= ADDED[name], whole
