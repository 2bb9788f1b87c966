"""The time from a round to its report depends on the data without a slot, and does not with one.

On the emulated Pico, in simulated time, with opposite data of two clients, and with as much work as
a slot admits.
"""

import shutil
from pathlib import Path

import pytest
from harness import program_boards, slots
from harness.program_boards import BOARDS, ProgramBoard

from tern import wire
from terntools.boards import mpy
from terntools.boards.repl import Repl
from terntools.emulators import flash_image
from terntools.emulators.pico import boot_pico
from terntools.testing import prepared_flash

# A batch of one record (client 1) and of 32 (client 2).
BATCH = slots.Case("", wire.LINEAR, slots.table, d=28, batch=32, anew=False)
SLOT, ROUNDS = 500, 20
APART_US = 100  # of the same event of two boards, at most
MARGIN = 1.5  # of the bound on the work over the work, at least


def at_end_of(slot_ms, us):
    """Whether this is the end of the first slot, by a clock of milliseconds."""
    return 1000 * slot_ms - 1000 < us < 1000 * slot_ms + 500


@pytest.fixture(scope="module")
def pico():
    with slots.emulated() as board:
        yield board


def assert_all_reports(answers):
    assert {kind for kind, _, _ in answers} == {wire.REPORT}


def test_without_a_slot_the_time_of_a_report_depends_on_the_data(pico):
    """Of two clients with opposite records, one also has far more of them. Without a slot, each
    report leaves once it is computed, and the times of the two differ: they tell something about
    the data.
    """
    answers = pico.answers(BATCH, slot=0, beat=0, rounds=ROUNDS)
    assert_all_reports(answers)
    assert slots.depends_on_data(answers)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("task", [True, False], ids=["task", "serve"])
def test_with_a_slot_every_report_leaves_at_its_end(pico, task):
    """A slot is a fixed time, here 500 ms, at whose end a board sends its answer, however early it
    was computed. So the times of reports tell nothing about the data of two clients with opposite
    records. The board serves its link by itself, or a task of a program does.
    """
    answers = pico.answers(BATCH, slot=SLOT, beat=SLOT, rounds=ROUNDS, task=task)

    assert_all_reports(answers)
    assert not slots.depends_on_data(answers)
    poll_ms = 5 if task else 0  # a task sleeps so long between two looks for a frame
    # The first is timed from its question, the others from the report before.
    _, *later_answers = answers
    for _, _, us in later_answers:
        assert at_end_of(SLOT + poll_ms, us)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", slots.CASES, ids=lambda case: case.name)
def test_every_report_leaves_within_the_shortest_slot_that_admits_it(pico, case):
    """A board refuses a question if an upper bound on its work exceeds the slot, the fixed time at
    whose end the answer is sent. If a bound were too low, answers would be late, by times that
    depend on the data. So the questions with the most work are asked in the shortest slot that
    admits them, and the answers are even sent a little before its end.
    """
    sent_after_ms = case.slot * 15 // 16  # the slowest of 400 reports took 7 / 8 of the slot

    answers = pico.answers(case, slot=case.slot, beat=sent_after_ms)

    assert_all_reports(answers)
    for _, _, us in answers:
        assert at_end_of(sent_after_ms, us)


def wake_frames(number):
    """Questions to the program of a board: one to answer, the same again, one of the same number
    that differs.
    """
    common = {"card": slots.table, "d": slots.D, "anew": False}
    local = slots.Case("", wire.LOCAL + wire.LOGISTIC, local=(1, 2, 1 << 18), **common)
    other = slots.Case("", wire.LINEAR, **common)
    return [
        (12, local.frame(1, number)),
        (20, local.frame(1, number)),
        (120, other.frame(1, number)),
        (290, other.frame(1, number + 1)),
        (500, other.frame(1, number)),
    ]


def kinds_of_frames(events):
    return [what[0] for what, _ in events if isinstance(what, tuple)]


def assert_alike(events, expected):
    """Assert that the same happens on two boards, each event at the same time."""
    assert [what for what, _ in events] == [what for what, _ in expected]
    for (what, us), (_, expected_us) in zip(events, expected, strict=True):
        assert abs(us - expected_us) <= APART_US, (what, us, expected_us)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["rv32", "pico", "xtensa"])
def test_only_the_work_of_a_program_differs_on_each_instruction_set_and_nothing_that_can_be_seen(
    name, sampled
):
    """Boards whose programs have collected from 0 to 2,048 records are asked the same questions.
    They work for different times, but send the same frames at the same times, whether they wake for
    a moment or run beside other tasks. Times are simulated, or counted in instructions (1,000 a
    microsecond).
    """
    # To wake_frames(): a question twice, another one of its number, a new one, an old number again.
    answers = [wire.REPORT, wire.REPORT, wire.ERROR, wire.REPORT, wire.ERROR]
    boards = sampled(slots.COLLECTED, 2)  # without records, and with the most
    no_records, most_records = boards[0], boards[-1]
    in_a_wake, beside_tasks = 0, 4000  # ms after which the link ends
    with slots.emulated(name) as board:
        for collected in boards:
            board.wake(collected, [])  # the first start makes the files of the recorder
        for number, end_ms in ((1, in_a_wake), (3, beside_tasks)):
            events, work = {}, {}
            for collected in boards:
                played = board.wake(collected, wake_frames(number), end_ms)
                events[collected], work[collected] = played

            assert kinds_of_frames(events[no_records]) == answers
            for collected in boards:
                assert_alike(events[collected], events[no_records])
            # The work, which nobody sees, does depend on the records: else this shows nothing.
            of_first_report = 0
            assert work[most_records][of_first_report] > 1.5 * work[no_records][of_first_report]


def require_within_bound_and_alike(board, *counts):
    """Require that the board's work keeps its bound, and that it looks alike with any of these
    numbers of records.
    """
    expected = None
    for count in counts:
        events, work = program_boards.answers(board, count)
        print(f"{board}, {count} records: work of {work} us, bounds of {board.bounds()} ms")
        assert kinds_of_frames(events) == [wire.REPORT] * len(board.cases)
        for bound_ms, work_us in zip(board.bounds(), work, strict=True):
            assert work_us * MARGIN <= 1000 * bound_ms
        if expected:
            assert_alike(events, expected)
        expected = events


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("d", "capacity", "counts"),
    [(28, 640, (500, 600)), (128, 640, (500, 600)), (28, 2048, (0, 2048))],
    ids=["d=28", "d=128", "most records"],
)
def test_a_sum_does_not_show_how_many_records_a_program_has_in_many_segments(d, capacity, counts):
    """A board answers with a noisy sum over its records, which lie in segments, the files of its
    flash. It once took the longer to find a record, the more segments there were. Now boards with
    few and with many records send the same at the same times.
    """
    card = slots.total(60, 32, 32)
    case = slots.Case("a sum", wire.LOGISTIC, card, d, k=d + 1, records=capacity, anew=False)
    board = ProgramBoard(d, capacity, hold=8, bound=capacity, unit=60, cases=(case,))
    require_within_bound_and_alike(board, *counts)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", range(BOARDS))
def test_a_program_with_any_recorder_keeps_the_bound_on_its_work_and_shows_no_number_of_records(
    number,
):
    """The sizes of the program's recorder, which keeps its records, are drawn at random, and so are
    the questions. With no record and with all that fit, the work stays within the bound by which
    the board admits a question, and what is seen of the board is the same.
    """
    board = program_boards.drawn(number)
    require_within_bound_and_alike(board, 0, board.capacity)


@pytest.mark.slow
def test_a_report_about_a_vector_takes_as_many_cycles_for_any(tmp_path, sampled):
    """A projection card, one kind of the tables that a board draws its reports from, hides a whole
    vector in a report. Each step of its computation, and the draw as a whole, takes the same number
    of processor cycles for random vectors, zeros, ties and extremes: time tells nothing about the
    vector.
    """
    made, program = prepared_flash.deployed("pico"), Path(__file__).with_name("cycles_program.py")
    flash = tmp_path / "flash.bin"
    shutil.copyfile(made.flash, flash)
    compiled = mpy.compiled(program.read_text(), made.processor, program.name)
    flash_image.add(flash, {f"/lib/{program.stem}.mpy": compiled})
    with boot_pico(flash, seed=1, skip_idle=True) as running, Repl(running.url) as repl:
        repl.run(f"from {program.stem} import *")
        for n in (1, 5, 7):  # vectors of 2**n values
            for count in sampled((60, 1200), 1):  # 12 kinds of vectors, 5 kinds of draws
                # (least, most) of each step of the computation, by cycles_program.leaves
                cycles = repl.evaluate(f"leaves({n}, {count})", 600)
                print(f"N = {1 << n}: norm, spread, rotate, find, draw: {cycles}")
                rounding = 1  # of the counter
                assert all(most - least <= rounding for least, most in cycles), (n, cycles)
