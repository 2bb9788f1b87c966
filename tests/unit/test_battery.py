"""The life of a battery: charges add up, limits hold, and every figure says where it is from."""

import json
from pathlib import Path

import pytest

from ternhost.cli import main
from ternhost.errors import UsageError
from terntools.bench import battery
from terntools.bench.battery import Phase, Wakes


def wakes(**options):
    """A wake of 2 s at 100 mA; 0.01 mA asleep."""
    usual = {
        "phases": {"awake": Phase(2000, 100, "x")},
        "sleep": 0.01,
        "longest": None,
        "self_discharge": 0.0,
    }
    return Wakes(**{"name": "n", "sleep_source": "x", "volts": 3.7, **usual, **options})


def test_charges_add_up():
    life = wakes().life(1000, 3600)
    assert life.milliampere["awake"] == pytest.approx(200 / 3600)
    assert life.milliampere["sleep"] == pytest.approx(0.01 * 3598 / 3600)
    assert life.years == pytest.approx(1000 / life.average / 8766)
    assert wakes().life(1000, 7200).milliampere["awake"] == pytest.approx(100 / 3600)
    assert wakes().charge == 200


def test_a_battery_that_nobody_uses_is_empty_when_it_has_lost_all_of_it():
    idle = wakes(phases={}, sleep=0.0, self_discharge=0.025)
    assert idle.life(1000, 3600).years == pytest.approx(40 / 12)
    assert idle.life(2000, 3600).years == pytest.approx(40 / 12)


def test_times_can_be_given():
    shorter = battery.load("esp32").with_ms({"join": 200, "slot": 0})
    assert shorter.phases["join"].ms == 200
    assert shorter.phases["join"].ma == battery.load("esp32").phases["join"].ma
    assert shorter.charge == pytest.approx(battery.load("esp32").charge - 0.6 * 110 - 0.5 * 110)
    for call, message in (
        (lambda: battery.load("esp32").with_ms({"dance": 1}), "no phase 'dance'"),
        (lambda: battery.load("esp8266"), "no figures of esp8266"),
        (lambda: battery.load("esp32", "hibernate"), "ESP32 has no sleep 'hibernate'"),
        (lambda: wakes().life(1000, 2), "it cannot come every 2 s"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            call()
        assert caught.value.hint


def test_a_switching_converter_draws_more_from_a_lower_voltage():
    low, high = (battery.load("pico-w", volts=volts) for volts in (2.5, 5.0))
    assert low.charge == pytest.approx(2 * high.charge)
    assert low.sleep == pytest.approx(2 * high.sleep)
    assert battery.load("pico-w", "timer", volts=2.5).sleep == battery.load("pico-w", "timer", volts=5).sleep
    assert battery.load("esp32", volts=2.5).charge == battery.load("esp32", volts=5).charge


def test_every_figure_says_where_it_is_from():
    told = {"source", "measured_by", "assumed"}
    for name, of in battery.figures()["boards"].items():
        for figure in (*of["currents"].values(), *of["sleeps"].values()):
            assert told & figure.keys(), f"{name}: {figure['what']}"
            assert not figure.get("assumed"), "currents are not assumed"
            assert figure["ma"] >= 0 < figure["volts"]
        for phase, figure in of["phases"].items():
            assert told & figure.keys() or phase == "slot", f"{name}: {phase}"
            assert figure["current"] in of["currents"]
        assert of["phases"].keys() == battery.figures()["boards"]["esp32"]["phases"].keys()


def test_a_year_on_2000_mah_at_a_round_an_hour():
    """What docs/guides/battery.md says: an ESP32 by itself, a Pico W whose supply a timer cuts."""
    years = {
        (board, sleep): battery.load(board, sleep).life(2000, 3600).years
        for board, of in battery.figures()["boards"].items()
        for sleep in of["sleeps"]
    }
    assert {case for case, value in years.items() if value >= 1} == {
        ("esp32", "deepsleep"),
        ("esp32", "timer"),
        ("pico-w", "timer"),
    }


# A row of the guide's second table -> what is changed there for an ESP32, and for a Pico W with a timer.
CHANGES = {
    "as above": ({}, {}),
    "TLS takes twice the time": ({"connect": 3000}, {"connect": 6000}),
    "a scan for the network": ({"join": 6000}, {"join": 8200}),
    "TLS session and address kept": ({"connect": 300, "address": 0}, None),
    "without TLS": ({"connect": 200}, {"connect": 200}),
    "a lithium primary cell": ({"self_discharge": 0.0017}, {"self_discharge": 0.0017}),
    "a round every 15 minutes": ({"interval": 900}, {"interval": 900}),
    "a round a day": ({"interval": 86_400}, {"interval": 86_400}),
}


def test_the_guide_has_these_years():
    guide = Path(__file__).parents[2] / "docs/guides/battery.md"
    rows = [line.strip("| ").split(" | ") for line in guide.read_text().splitlines() if line.startswith("| ")]
    kinds = (("esp32", "deepsleep"), ("pico-w", "timer"))
    for begins, changes in CHANGES.items():
        (cells,) = [row[1:] for row in rows if row[0].startswith(begins)]
        for cell, kind, change in zip(cells, kinds, changes, strict=True):
            if change is None:
                assert cell == "-"
                continue
            times = dict(change)
            interval = times.pop("interval", 3600)
            loss = times.pop("self_discharge", None)
            years = battery.load(*kind, self_discharge=loss).with_ms(times).life(2000, interval).years
            assert cell == f"{years:.2f}".removeprefix("0"), begins
    for kind in (*kinds, ("esp32", "devkit"), ("pico-w", "deepsleep")):
        years = f"{battery.load(*kind).life(2000, 3600).years:.2f}".removeprefix("0")
        assert any(
            row[1].startswith(kind[1]) or kind[1] == "devkit" for row in rows if row[2:3] == [years]
        ), kind


def test_the_command(tmp_path, capsys):
    picture = tmp_path / "battery.png"
    words = ["bench", "battery", "--board", "pico-w", "--awake-ms", "join=1000"]
    assert main([*words, "--json", "--plot", str(picture)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert result["phases"]["join"]["ms"] == 1000
    assert result["milliampere_average"] == pytest.approx(sum(result["milliampere"].values()))
    assert result["modelled"]
    assert main([*words, "--interval-s", "7200"]) == 0
    text = capsys.readouterr().out
    assert "years (modelled)" in text
    assert "cannot sleep longer than 4290 s" in text
    for wrong in ("join", "join=x", "join=-1"):
        assert main([*words, "--awake-ms", wrong]) == 2
        assert "--awake-ms must be PHASE=MS" in capsys.readouterr().err
