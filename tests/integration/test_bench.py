"""`tern bench latency` on emulated devices, timed by this machine's clock."""

import pytest

from terntools.bench import latency, latency_command, subjects
from terntools.boards import deploy
from terntools.boards.repl import ExecutionError
from terntools.emulators import catalogue


def test_a_bench_gives_figures_a_summary_and_a_page():
    progress = []
    result = latency.measure("emulated:1", latency.Case(d=4), progress.append, names=("duchi",))
    assert len(progress) == len(latency.plan("emulated:1", latency.Case(d=4), ("duchi",)))
    report = result["us_per_report"]
    assert 0 < report["median"] <= report["slowest"]
    assert set(report["breakdown"]) == {*latency.PARTS, "steps"}
    assert result["us_per_coordinate"]["duchi"] < result["us_per_coordinate_plain_float"]["duchi"]
    assert result["us_per_coordinate_native_c"] is None  # the C code is for the Pico
    assert result["identical_runs"] is None
    assert 20_000 < result["mpy_bytes"] < 32 * 1024
    assert "duchi" in latency_command.summary(result)
    names = [row["name"] for row in result["reports"]]
    assert {"three-outputs, 1 of 4, logistic", "projection, all 4, logistic"} <= set(names)
    (page,) = latency_command.pictures(result).values()
    assert len(page.axes) == 2


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
