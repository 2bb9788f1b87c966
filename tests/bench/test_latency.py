"""`tern bench latency` on emulated devices: figures, pages, and the figures that the project states."""

import contextlib
import io
import json
import re
from dataclasses import astuple

import figures
import pytest

from ternbench import latency, latency_command, subjects
from ternbench.cases import Case
from ternbench.time_left import TimedSteps
from ternhost.cli import main
from ternhost.errors import OK, UsageError
from ternhost.terminal import Progress
from terntools.boards import starting
from terntools.boards.prompt_errors import ExecutionError
from terntools.emulators import catalogue

SMALL = Case(d=4)


class KeptSteps(TimedSteps):
    """The steps of a bench, which are kept in `made`."""

    made = []  # noqa: RUF012

    def __init__(self, progress):
        super().__init__(progress)
        self.made.append(self)


@pytest.fixture(scope="module")
def compared_with_steps():
    """The result of a bench that compares mechanisms on the emulated device, and its steps."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(latency, "TimedSteps", KeptSteps)
        result = latency.measure("emulated:1", SMALL, Progress(quiet=True), mechanisms=("duchi",))
    return result, KeptSteps.made[0]


@pytest.fixture(scope="module")
def compared(compared_with_steps):
    result, _ = compared_with_steps
    return result


def test_a_bench_times_a_report_and_its_parts(compared):
    report = compared["us_per_report"]
    assert 0 < report["median"] <= report["slowest"]
    assert set(report["breakdown"]) == {*latency.PARTS, "steps"}


def test_a_comparison_has_the_times_of_mechanisms_and_of_other_reports(compared):
    library, plain = compared["us_per_coordinate"], compared["us_per_coordinate_plain_float"]
    assert library["duchi"] < plain["duchi"]
    names = [row["name"] for row in compared["reports"]]
    assert {"three-outputs, 1 of 4, logistic", "projection, all 4, logistic"} <= set(names)


def test_no_kind_of_report_is_in_a_comparison_twice(compared):
    names = [row["name"] for row in compared["reports"]]
    assert len(set(names)) == len(names)


def test_the_planned_work_of_a_bench_is_the_work_that_it_does(compared_with_steps):
    """So the time that is left comes to 0 at its end."""
    _, steps = compared_with_steps
    time_left = steps.time_left
    assert astuple(time_left.done) == pytest.approx(astuple(time_left.planned))
    assert time_left.seconds() == pytest.approx(0, abs=1e-6)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """The folder of the session of a bench without options, and what it prints as JSON."""
    folder = tmp_path_factory.mktemp("short") / "sessions"
    command = ["bench", "latency", "--fleet", "emulated:1", "--json", "--sessions", str(folder)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(command) == OK
    (session,) = folder.iterdir()
    return session, json.loads(printed.getvalue())


def test_a_bench_without_options_times_one_kind_of_report(short):
    _, result = short
    assert [row["name"] for row in result["reports"]] == [Case().label]


def test_the_rows_of_reports_have_the_median_of_the_report(short):
    _, result = short
    assert result["reports"][0]["median"] == result["us_per_report"]["median"]


def test_the_text_has_the_median_and_no_other(short):
    session, result = short
    medians = re.findall(r"median ([\d.,]+) ms", (session / "latency.txt").read_text())
    assert medians == [f"{result['us_per_report']['median'] / 1000:,.2f}"]


def test_the_bar_of_the_picture_is_as_long_as_the_median(short):
    """The total beside the bar has one digit. The parts are timed in other reports than the whole, so
    that on a busy computer they may be longer than it.
    """
    _, result = short
    report = result["us_per_report"]
    (panel,) = [latency_command.time_panel(result)]
    bar_length = sum(panel.bars[Case().label].values())
    assert bar_length >= report["median"] - 1
    if report["breakdown"]["steps"] > 0:
        assert bar_length == pytest.approx(report["median"], abs=1)


@pytest.mark.parametrize("name", ["rv32", pytest.param("pico", marks=pytest.mark.exhaustive)])
def test_a_board_at_a_port_runs_its_own_program_again_after_a_bench(name):
    with catalogue.boot(name) as board:
        spec = f"port:{board.url}"
        with subjects.subject(spec) as on:
            on.install({})
        assert starting.wait_for_hello(board.url).clients == 0
        with pytest.raises(ExecutionError, match="ZeroDivisionError"), subjects.subject(spec) as on:
            on.call("1 / 0")
        assert starting.wait_for_hello(board.url).clients == 0


@pytest.fixture(scope="module")
def of_pico():
    """The figures that the project states of a Pico, measured anew, and all figures of that bench."""
    return figures.on_the_emulated_pico()


def test_measured_figures_agree_with_the_file_of_the_pico(of_pico):
    """Bytes agree exactly. Times depend a little on where the heap has room; those of plain floats,
    which allocate with every operation, depend on it more.
    """
    measured, _ = of_pico
    kept = json.loads(figures.KEPT.read_text())["pico_emulated"]
    assert measured.keys() == kept.keys()
    for name, value in kept.items():
        tolerance = 0.002 if name.startswith("us_") else 0
        if name == "us_per_coordinate_plain_float":
            tolerance = 0.1
        if name in figures.OF_DEMO:  # the demo states them with one or two digits
            tolerance = 0.05
        agrees = measured[name] == pytest.approx(value, rel=tolerance)
        assert agrees, f"{name} {measured[name]}, not {value}: python tests/figures.py --keep"


@pytest.mark.slow  # the first one that runs waits for the bench of a Pico, 40 s
def test_the_library_samples_nearly_as_fast_as_c_on_a_pico(of_pico):
    measured, all_figures = of_pico
    in_c = all_figures["us_per_coordinate_native_c"]["three-outputs"]
    assert 0 < measured["us_per_coordinate"] < 1.5 * in_c


@pytest.mark.slow  # the first one that runs waits for the bench of a Pico, 40 s
def test_the_parts_of_a_report_of_a_pico_are_all_of_it(of_pico):
    _, all_figures = of_pico
    report = all_figures["us_per_report"]
    assert sum(report["breakdown"].values()) == pytest.approx(report["median"], rel=0.01)


@pytest.fixture(scope="module")
def counted():
    """The main figures of a small report on a machine that counts instructions."""
    with subjects.subject("rv32-emulated:1") as device:
        bench = latency.Bench(device)
        return latency.main_figures(bench, SMALL, ("duchi",))


def test_the_parts_of_a_report_are_all_of_it(counted):
    report = counted["instructions_per_report"]
    assert 100_000 < report["median"] < 2_000_000
    assert sum(report["breakdown"].values()) == pytest.approx(report["median"], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", figures.COUNTING)
def test_measured_figures_agree_with_the_file(name):
    kept = json.loads(figures.KEPT.read_text())[f"{name}_emulated"]
    assert figures.on_qemu(name) == pytest.approx(kept, rel=0.005), (
        "intended? python tests/figures.py --keep"
    )


def test_a_board_that_counts_no_instructions_cannot_be_benched():
    with (
        pytest.raises(UsageError, match="counts no instructions"),
        subjects.subject("m33-emulated:1"),
    ):
        pass
