"""`tern bench latency` on emulated devices: figures, pages, and the figures that the project states."""

import json

import figures
import pytest

from ternbench import latency, subjects
from ternbench.cases import Case
from ternhost.errors import UsageError
from terntools.boards import deploy
from terntools.boards.repl import ExecutionError
from terntools.emulators import catalogue


def test_a_bench_of_a_board_times_reports_and_mechanisms():
    progress = []
    result = latency.measure("emulated:1", Case(d=4), progress.append, mechanisms=("duchi",))

    report = result["us_per_report"]
    assert 0 < report["median"] <= report["slowest"]
    assert set(report["breakdown"]) == {*latency.PARTS, "steps"}
    assert result["us_per_coordinate"]["duchi"] < result["us_per_coordinate_plain_float"]["duchi"]
    names = [row["name"] for row in result["reports"]]
    assert {"three-outputs, 1 of 4, logistic", "projection, all 4, logistic"} <= set(names)
    assert len(progress) == len(latency.plan("emulated:1", Case(d=4), ("duchi",)))


@pytest.mark.parametrize("name", ["rv32", pytest.param("pico", marks=pytest.mark.exhaustive)])
def test_a_board_at_a_port_runs_its_own_program_again_after_a_bench(name):
    with catalogue.boot(name) as board:
        spec = f"port:{board.url}"
        with subjects.subject(spec) as on:
            on.install({})
        assert deploy.wait_for_hello(board.url).clients == 0
        with pytest.raises(ExecutionError, match="ZeroDivisionError"), subjects.subject(spec) as on:
            on.call("1 / 0")
        assert deploy.wait_for_hello(board.url).clients == 0


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
        return latency.main_figures(bench, Case(d=4), ("duchi",), lambda line: None)


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
