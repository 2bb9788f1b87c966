"""`tern bench profile`: which functions spend the time, by the profiler of the emulated Pico."""

import json

import pytest

from ternbench import profile, profile_command, subjects
from ternbench.call_tree import CallTree, Names, duration_us
from ternbench.cases import Case
from ternbench.latency import Bench
from ternhost.cli import main
from ternhost.errors import OK
from ternhost.terminal import Progress
from terntools.boards.repl import Repl
from terntools.emulators import pico
from terntools.emulators.pico import symbols

# It reads the clock four times, as `serve` in latency_program.py does for a report.
PROGRAM = """
import micropython, time

def recurse(depth):
    if depth:
        recurse(depth - 1)

def raises():
    recurse(0)
    raise ValueError

def keep():
    return bytes(1000)

def numbers():
    yield 1
    yield 2

@micropython.viper
def square(x: int) -> int:
    return x * x

def after():
    pass

def work():
    start = time.ticks_us()
    recurse(3)
    time.ticks_us()
    for number in numbers():
        square(number)
    time.ticks_us()
    kept = keep()
    try:
        raises()
    except ValueError:
        after()
    end = time.ticks_us()
    return time.ticks_diff(end, start), id(square)

_tell(work())
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The call tree of PROGRAM on the emulated Pico, its report, and its microseconds by its clock."""
    file = tmp_path_factory.mktemp("traced") / "profile"
    with pico.boot_pico(seed=1, skip_idle=True, profile=file) as board, Repl(board.url) as repl:
        ((microseconds, square),) = repl.values(PROGRAM)
    names = Names({square: ["__main__.square"]}, modules={}, restored=str)
    tree = CallTree(symbols.read(pico.symbol_files()), names, program="__main__")
    tree.read(file)
    (report,) = tree.reports(1)
    return tree, report, microseconds


@pytest.fixture(scope="module")
def functions(traced):
    """The Python functions of PROGRAM by name, without that of the module."""
    tree, report, _ = traced
    rows = tree.python_functions(report)
    return {name.removeprefix("__main__."): row for name, row in rows.items()}


def test_the_time_of_a_profile_is_that_of_the_device(traced):
    """The clock shows whole microseconds."""
    _, report, microseconds = traced
    assert duration_us(report) == pytest.approx(microseconds, abs=1)


def test_a_function_that_calls_itself_is_counted_each_time(functions):
    calls_of_recurse_3 = 4
    calls_of_raises = 1
    assert functions["recurse"].calls == calls_of_recurse_3 + calls_of_raises


def test_the_total_time_of_a_function_that_calls_itself_has_each_moment_once(functions):
    assert functions["recurse"].total_us == pytest.approx(functions["recurse"].own_us)


def test_a_function_in_machine_code_is_counted(functions):
    assert functions["square"].calls == 2


def test_a_generator_is_called_for_each_value_and_for_its_end(functions):
    assert functions["numbers"].calls == 3


def test_after_an_exception_the_function_that_catches_it_goes_on(traced):
    tree, report, _ = traced
    callers = [path[-2] for path in tree.python_paths(report) if path[-1] == "__main__.after"]
    assert callers == ["__main__.work"]


def test_what_a_function_leaves_in_the_heap_is_counted(functions):
    """A bytes object has 16 bytes for itself, and its content ends with a 0."""
    block = 16
    content = -(-1001 // block) * block
    assert functions["keep"].bytes == block + content


def test_the_interpreter_spends_the_time_of_a_function_in_machine_code_there(traced):
    tree, report, _ = traced
    files = tree.interpreter(report)["__main__.square"]
    assert files["(machine code of Python)"] > 0


def test_a_function_of_the_interpreter_has_its_file(traced):
    tree, report, _ = traced
    assert ("mp_execute_bytecode", "py/vm.c") in tree.c_functions(report)


@pytest.fixture(scope="module")
def profiled():
    """The profile of a small report, and its folded stacks."""
    return profile.measure(Case(d=4), Progress(quiet=True), count=8)


@pytest.mark.slow  # the first one that runs waits for the profile, 30 s
@pytest.mark.parametrize("table", ["calls", "functions", "c_files", "c_functions"])
def test_the_own_times_of_a_table_are_the_time_of_the_report(profiled, table):
    result, _ = profiled
    assert sum(row["own_us"] for row in result[table]) == pytest.approx(result["us"])


@pytest.mark.slow
def test_the_folded_stacks_are_the_time_of_the_report(profiled):
    result, folded = profiled
    nanoseconds = sum(int(line.rpartition(" ")[2]) for line in folded.splitlines())
    assert nanoseconds == pytest.approx(1000 * result["us"], abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "tern.client.Client.respond",
        "tern.ledger.Ledger.pay",
        "tern.ledger.Ledger._write_over",  # its name is shortened on the board
        "tern.gradient.dot",  # machine code
        "tern.coordinates.choose",
    ],
)
def test_a_report_calls_a_function_once(profiled, name):
    result, _ = profiled
    (row,) = [row for row in result["functions"] if row["name"] == name]
    assert row["calls"] == 1


@pytest.mark.slow
def test_every_function_of_a_report_has_a_name(profiled):
    result, _ = profiled
    names = [row["name"] for row in result["functions"]]
    assert [name for name in names if "unknown" in name] == []


@pytest.mark.slow
def test_a_report_takes_as_long_as_without_a_profile(profiled):
    result, _ = profiled
    with subjects.subject("pico-emulated:1") as device:
        bench = Bench(device)
        bench.prepare(Case(d=4))
        times = sorted(sum(parts) for parts in device.serve(bench.messages(Case(d=4), 8)))
    median = times[(len(times) - 1) // 2]
    assert result["us_by_clock"] == median


@pytest.mark.slow
def test_the_text_shows_the_functions_that_take_most(profiled):
    result, _ = profiled
    text = profile_command.summary(result)
    for row in result["functions"][:5]:
        assert row["name"] in text


@pytest.mark.slow
def test_the_bars_of_the_picture_are_the_own_times_of_functions(profiled):
    result, _ = profiled
    panel = profile_command.panel(result)
    for row in result["functions"][:5]:
        bar = panel.bars[row["name"].removeprefix("tern.")]
        assert sum(bar.values()) == pytest.approx(row["own_us"])


@pytest.mark.slow
def test_the_command_writes_the_slowest_report_into_the_folder_of_a_session(tmp_path, capsys):
    command = ["bench", "profile", "--d", "4", "--reports", "3", "--slowest", "--json"]
    assert main([*command, "--sessions", str(tmp_path / "sessions")]) == OK
    result = json.loads(capsys.readouterr().out)
    assert result["us"] == result["us_slowest"]
    (session,) = (tmp_path / "sessions").iterdir()
    written = {path.name for path in session.iterdir()}
    assert written == {"log.txt", "page.png", "profile.json", "profile.txt", profile_command.FOLDED}
