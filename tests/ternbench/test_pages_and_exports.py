"""`tern bench`: energy by link from measured figures, and a page with all bars, units and legends."""

import importlib.util
import math
import re
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from ternbench import current_model, latency, latency_command
from ternbench import plots as bench_plots
from ternhost.errors import StorageError, UsageError
from terntools.sessions import Session, Telling


def report(case, **more):
    """Figures as latency.Bench.figures gives them: 9 ms, 1.5 ms of them for the link."""
    return {
        "name": case.label,
        "mechanism": case.mechanism,
        "d": case.d,
        "k": case.k,
        "model": case.model,
        "records": case.records,
        "bytes_in": 120,
        "bytes_out": case.report_bytes,
        "bytes_float32": latency.OVERHEAD + 4 * case.d,
        "median": 9000.0,
        "receive": 1300.0,
        "send": 200.0,
        "breakdown": {"tag": 7000.0, "link": 1500.0, "steps": 500.0},
        **more,
    }


def test_a_report_is_as_long_as_its_symbols_need():
    assert latency.Case().report_bytes == 18
    assert latency.Case(k=28).report_bytes <= 26
    assert latency.Case("pm-sub", k=28).report_bytes == latency.OVERHEAD + 28
    assert latency.Case("projection").report_bytes == latency.OVERHEAD + 1


def test_a_projection_is_about_all_coordinates():
    assert latency.Case("projection").label == "projection, all 28, logistic"
    with pytest.raises(UsageError, match="--k must be 1, not 2"):
        latency.Case("projection", k=2)


def test_a_missing_compiler_is_named_before_anything_is_measured(monkeypatch):
    monkeypatch.delenv("TERN_MPY_CROSS", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(latency, "subject", lambda spec: pytest.fail("a board was started"))
    with pytest.raises(UsageError, match="mpy-cross is not installed"):
        latency.measure("emulated:1", latency.Case(), print)


def test_energy_is_time_by_current_plus_the_energy_of_the_link():
    model = current_model.load("rp2040")
    figures = report(latency.Case())
    computing, line = model.report_microjoules(figures)
    assert computing == pytest.approx(7.5e-3 * 3.3 * 27.1 * 1000)
    on_the_wire = (120 + 18) * 10 / 12e6
    assert line == pytest.approx(1.5e-3 * 3.3 * 27.1 * 1000 + on_the_wire * 3.3 * 1.4 * 1000)
    energies = current_model.by_link(model, [figures])
    assert energies[f"serial: {figures['name']}"] == {"computing": computing, "link": line}
    wifi = {name: parts["link"] for name, parts in energies.items() if name.startswith("Wi-Fi")}
    assert list(wifi) == [
        f"Wi-Fi (ESP32), sending alone: {size}" for size in ("18 bytes", "float32 x 28")
    ]
    assert min(wifi.values()) == wifi["Wi-Fi (ESP32), sending alone: 18 bytes"]


def test_the_page_shows_latency_energy_and_bytes():
    main = latency.Case()
    cases = [
        main,
        latency.Case(k=28),
        latency.Case("duchi"),
        latency.Case(d=100),
        latency.Case(model="svm"),
    ]
    parts = dict.fromkeys((*latency.PARTS, "steps", "link"), 800.0)
    result = {
        "chip": "rp2040",
        "unit": "us",
        "case": {"mechanism": main.mechanism, "model": main.model},
        "reports": [report(case, breakdown=parts) for case in cases],
    }
    (page,) = latency_command.pictures(result).values()
    latency_axes, energy_axes, bytes_axes = page.axes
    assert "milliseconds" in latency_axes.get_xlabel()
    assert "microjoules" in energy_axes.get_xlabel()
    assert "modelled" in energy_axes.get_title(loc="left")
    assert "bytes" in bytes_axes.get_xlabel()
    assert [text.get_text() for text in latency_axes.get_legend().get_texts()] == list(parts)
    assert [text.get_text() for text in latency_axes.get_yticklabels()] == [
        case.label for case in cases
    ]
    page.draw_without_rendering()
    for axes in page.axes:
        box = axes.get_legend().get_window_extent()
        assert page.bbox.x0 <= box.x0
        assert box.x1 <= page.bbox.x1


def test_times_of_this_machine_have_no_energy():
    result = {"chip": None, "unit": "us", "case": {}, "reports": [report(latency.Case())]}
    (page,) = latency_command.pictures(result).values()
    assert len(page.axes) == 2


def test_sessions_that_begin_in_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda layout: "20261124-120000")
    monkeypatch.setattr(
        Path, "exists", lambda path: False
    )  # each checks before another makes its folder
    folders = [Session(tmp_path / "sessions").directory for _ in range(3)]
    assert [folder.name for folder in folders] == [
        f"20261124-120000{suffix}" for suffix in ("", "-2", "-3")
    ]
    assert all((folder / "log.txt").is_file() for folder in folders)


def test_a_session_tells_how_much_time_is_left(tmp_path, capsys, monkeypatch):
    session, seconds = Session(tmp_path), iter((100, 101, 103, 110))
    clock = SimpleNamespace(monotonic=lambda: next(seconds), strftime=time.strftime)
    monkeypatch.setattr("terntools.sessions.time", clock)
    with Telling(session, [1, 3, 16]) as progress:
        for line in ("one", "two", "three", "more than planned"):
            progress.say(line)
    one, *lines = capsys.readouterr().err.splitlines()
    assert one.strip() == "one"
    left = [int(re.search(r"about (\d+) s left", line)[1]) for line in lines]
    assert left == [19, 12, 0]  # 1 s for a share of 1, 3 s for 4, and all of 20


def test_a_folder_of_sessions_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot make a directory in .*file") as error:
        _ = Session(tmp_path / "file").directory
    assert "--sessions" in error.value.hint


def test_parts_can_be_told_apart_without_colour():
    styles = bench_plots._STYLES
    assert len(styles) >= len(latency.PARTS) + 2
    hatches = [hatch for _, hatch in styles if hatch not in ("", "//")]
    assert len(set(hatches)) == len(hatches)
    for shared in ("", "//"):
        colours = [colour for colour, hatch in styles if hatch == shared]
        assert (
            min(np.diff(sorted(np.dot(to_rgb(colour), (0.3, 0.59, 0.11)) for colour in colours)))
            > 0.1
        )


@pytest.fixture
def export(tmp_path):
    """The export of an instrument: six windows of 20 ms at 25 mA, and 10 mA between them."""
    on = [i % 500 >= 300 for i in range(3200)]
    rows = [
        f"{i / 10_000},{0.025 if marked else 0.010},{int(marked)}\n" for i, marked in enumerate(on)
    ]
    path = tmp_path / "export.csv"
    path.write_text("time_s,current_a,marker\n" + "".join(rows))
    return path


def test_an_export_gives_the_energy_of_a_report_and_the_life_of_a_battery(export, tmp_path, tern):
    words = ["bench", "energy", "--meter", "csv", "--file", str(export), "--volts", "3.3", "--json"]
    words += ["--sessions", str(tmp_path / "sessions")]
    result = tern(*words, "--sleep-milliwatts", "1", "--every", "60").json
    assert result["microjoules_per_report"] == pytest.approx(0.015 * 3.3 * 0.02 * 1e6, rel=0.01)
    gross = 0.025 * 3.3 * 0.02
    days = 2000 * 3.6 * 3.3 / ((gross + 1e-3 * 59.98) / 60) / 86400
    assert result["battery_days"] == pytest.approx(days, rel=0.01)
    (session,) = (tmp_path / "sessions").iterdir()
    assert {path.name for path in session.iterdir()} == {
        "log.txt",
        "energy.json",
        "energy.txt",
        "page.png",
    }
    assert "battery of 2000 mAh lasts" in (session / "energy.txt").read_text()
    result = tern(*words).json
    assert math.isclose(result["sleep_milliwatts"], result["idle_milliwatts"])
