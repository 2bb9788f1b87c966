"""A board in the loop: the trial of the compiler, deployment, hello, reset, power cut, the epsilon
of its sampler.
"""

from pathlib import Path

import pytest

from tern import card as cards
from tern import host_frames
from ternhost.privacy import mechanisms
from terntests.hil import audit as auditing
from terntests.hil.audit import audit
from terntools.boards import installing, machines, self_check, starting
from terntools.testing import board_program

AUDIT_PROGRAM = Path(auditing.__file__).with_name("audit_program.py")
CONFIDENCE = 0.9999  # a correct sampler fails once in ten million runs
FAST = "rv32-emulated"  # the emulated board that draws in every run of the tests
SAMPLES = 300_000
SHIFTED_SAMPLES = 900_000  # a shift by 2 % passes once in ten million runs
_PATIENCE = 120.0  # seconds for a call
_AT_ONCE = 100_000  # draws a call, so that the board answers in time


@pytest.fixture(autouse=True, scope="module")
def sampled_board(dut, request):
    """Of the emulated boards two, unless the tests are exhaustive."""
    is_left_out = dut.board.platform in ("pico-emulated", "xtensa-emulated")
    if is_left_out and not request.config.getoption("exhaustive"):
        pytest.skip("test_up.py and test_self_check.py deploy to this board: --exhaustive")


def identity(hello):
    """Board, interpreter and tern's version, without the temperature."""
    return hello.text.split("; ")[:3]


@pytest.mark.trial
def test_the_compiler_s_code_computes_right_on_the_board(dut):
    with dut.repl() as repl:
        self_check.require_compiler(repl, machines.Machine.of(repl).processor)


@pytest.fixture(scope="module")
def hello(dut) -> host_frames.Hello:
    dut.deploy()
    return dut.start()


def test_the_hello_names_board_firmware_and_version(dut, hello, record_testsuite_property):
    """Of the board under test (dut). The results of these tests keep its three names, so that a
    report says what was tested.
    """
    board, interpreter, version = identity(hello)
    record_testsuite_property("board", board)
    record_testsuite_property("firmware", interpreter)
    record_testsuite_property("tern", version)
    assert version.startswith("tern ")
    assert hello.entropy != 0, "no health test of its random numbers has failed"
    assert hello.heap > 100_000, "bytes of free memory"


def test_deploying_again_changes_nothing(dut, hello):
    """The board under test (dut) has the library already, and says the same hello after a restart."""
    with dut.repl() as repl:
        assert not installing.plan(repl)[1]
    assert identity(dut.start()) == identity(hello)


def test_files_survive_a_reset(dut, hello):
    content = bytes(range(256)) * 8
    with dut.repl() as repl:
        repl.files.write("/hil/kept.bin", content)
        repl.soft_reset()
        assert repl.files.read("/hil/kept.bin") == content
        repl.files.remove("/hil/kept.bin")
    dut.start()


def test_the_board_comes_back_after_a_power_cut(dut, hello):
    if not dut.board.has_power_control:
        pytest.skip("the hardware map names no power: or power_script: for this board")
    dut.board.power_cycle()
    assert identity(starting.wait_for_hello(dut.port, 60)) == identity(hello)


@pytest.fixture(scope="module")
def draw(dut, request):
    """`draw(card, *shift)(x, n)`: the counts of the symbols that the board draws; shift: see
    audit_program.count.
    """
    is_slow = dut.board.platform.endswith("-emulated") and dut.board.platform != FAST
    if is_slow and not request.config.getoption("exhaustive"):
        pytest.skip(f"test_sampler.py compares its draws with those of {FAST}: needs --exhaustive")
    with dut.repl() as repl:
        board_program.install(repl, AUDIT_PROGRAM)
        repl.run("from audit_program import *")

        def make(card, *shift):
            def count(x, n):
                sizes = [min(_AT_ONCE, n - at) for at in range(0, n, _AT_ONCE)]
                counts = [
                    repl.evaluate(f"count({card!r}, {x}, {size}, *{shift!r})", _PATIENCE)
                    for size in sizes
                ]
                return [sum(of_symbol) for of_symbol in zip(*counts, strict=True)]

            return count

        yield make


def test_the_sampler_keeps_its_epsilon(draw):
    """The board draws 300,000 reports of two opposite values. By their counts, epsilon is (with
    high confidence) at least a bound, which must lie near the promised epsilon, and not above it.
    """
    card = mechanisms.design("duchi", "1").card
    result = audit(card, draw(card), SAMPLES, CONFIDENCE)
    assert 0.9 < result.epsilon_lower <= result.epsilon_card, result


def test_a_sampler_with_one_threshold_shifted_by_2_percent_is_caught(draw):
    """So the test above would show a board that draws wrongly: by this error, the least epsilon
    that the counts allow exceeds what is promised.
    """
    card = mechanisms.design("duchi", "1").card
    assert len(cards.decode(card).thresholds) == 2
    result = audit(card, draw(card, 1, -20_000), SHIFTED_SAMPLES, CONFIDENCE)
    assert result.epsilon_lower > result.epsilon_card, result
