"""A board in the loop: it is deployed to, says hello, survives a reset, and its sampler keeps its epsilon."""

from pathlib import Path

import pytest

from tern import card as cards
from tern import host_frames
from ternhost.privacy import mechanisms
from terntests.hil import audit as auditing
from terntests.hil.audit import audit
from terntools.bench.subjects import BoardSubject
from terntools.boards import deploy

AUDIT_PROGRAM = Path(auditing.__file__).with_name("audit_program.py")
CONFIDENCE = 0.9999  # a right sampler is accused once in ten million runs
SAMPLES = 300_000
SHIFTED_SAMPLES = 900_000  # a shift by 2 % is missed once in ten million runs
_AT_ONCE = 100_000  # for a board must answer in time


def who(hello):
    """Board, interpreter and tern's version, without the temperature."""
    return hello.text.split("; ")[:3]


@pytest.fixture(scope="module")
def hello(dut) -> host_frames.Hello:
    dut.deploy()
    return dut.start()


def test_it_says_who_it_is(dut, hello, record_testsuite_property):
    board, interpreter, version = who(hello)
    record_testsuite_property("board", board)
    record_testsuite_property("firmware", interpreter)
    record_testsuite_property("tern", version)
    assert version.startswith("tern ")
    assert hello.entropy != 0
    assert hello.heap > 100_000


def test_deploying_again_changes_nothing(dut, hello):
    with dut.repl() as repl:
        assert not deploy.plan(repl)[1]
    assert who(dut.start()) == who(hello)


def test_files_survive_a_reset(dut, hello):
    content = bytes(range(256)) * 8
    with dut.repl() as repl:
        repl.write_file("/hil/kept.bin", content)
        repl.soft_reset()
        assert repl.read_file("/hil/kept.bin") == content
        repl.remove("/hil/kept.bin")
    dut.start()


def test_it_comes_back_after_a_power_cut(dut, hello):
    if not dut.board.has_power_control:
        pytest.skip("the hardware map names no power: or power_script: for this board")
    dut.board.power_cycle()
    assert who(deploy.wait_for_hello(dut.port, 60)) == who(hello)


@pytest.fixture(scope="module")
def draw(dut, request):
    """How the board draws symbols: for a card, an input and a number; perhaps with a shifted threshold."""
    if dut.board.platform == "pico-emulated" and not request.config.getoption("exhaustive"):
        pytest.skip(
            "tests/device/test_sampler.py draws the same symbols as faster boards there: --exhaustive"
        )
    with dut.repl() as repl:
        program = BoardSubject(repl, AUDIT_PROGRAM)
        repl.run("from audit_program import *")

        def make(card, *shift):
            def count(x, n):
                some = [min(_AT_ONCE, n - at) for at in range(0, n, _AT_ONCE)]
                counts = [program.call(f"count({card!r}, {x}, {m}, *{shift!r})") for m in some]
                return [sum(of_symbol) for of_symbol in zip(*counts, strict=True)]

            return count

        yield make


def test_the_sampler_keeps_its_epsilon(draw):
    card = mechanisms.design("duchi", "1").card
    found = audit(card, draw(card), SAMPLES, CONFIDENCE)
    assert 0.9 < found.epsilon_lower <= found.epsilon_card, found


def test_a_sampler_with_one_threshold_shifted_by_2_percent_is_caught(draw):
    card = mechanisms.design("duchi", "1").card
    assert len(cards.decode(card).thresholds) == 2
    found = audit(card, draw(card, 1, -20_000), SHIFTED_SAMPLES, CONFIDENCE)
    assert found.epsilon_lower > found.epsilon_card, found
