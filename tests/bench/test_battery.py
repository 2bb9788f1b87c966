"""The life of a battery: charges add up, limits hold, and every figure names its source."""

from pathlib import Path

import pytest

from ternbench import battery
from ternbench.battery import Phase, Wakes
from ternhost.errors import UsageError

GUIDE = Path(__file__).parents[2] / "docs/guides/battery.md"


def wakes(**changes):
    """A wake of 2 s at 100 mA; 0.01 mA asleep."""
    fields = {
        "name": "n",
        "phases": {"awake": Phase(2000, 100, "x")},
        "sleep": 0.01,
        "sleep_source": "x",
        "longest": None,
        "volts": 3.7,
        "self_discharge": 0.0,
    }
    return Wakes(**{**fields, **changes})


def test_charges_add_up():
    life = wakes().life(1000, interval=3600)
    assert life.milliampere["awake"] == pytest.approx(200 / 3600)
    assert life.milliampere["sleep"] == pytest.approx(0.01 * 3598 / 3600)
    assert life.years == pytest.approx(1000 / life.average / 8766)


def test_an_unused_battery_is_empty_after_its_self_discharge():
    idle = wakes(phases={}, sleep=0.0, self_discharge=0.025)
    years = [idle.life(capacity, 3600).years for capacity in (1000, 2000)]
    assert years == pytest.approx([40 / 12] * 2)  # 1 / 0.025 months


def test_a_wake_cannot_take_longer_than_the_interval():
    with pytest.raises(UsageError, match="it cannot come every 2 s"):
        wakes().life(1000, interval=2)


def test_a_switching_converter_draws_more_from_a_lower_voltage():
    low, high = (battery.load("pico-w", volts=volts) for volts in (2.5, 5.0))
    assert low.charge == pytest.approx(2 * high.charge)
    assert low.sleep == pytest.approx(2 * high.sleep)


# What each row of the guide's second table changes: for an ESP32, and for a Pico W with a timer.
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


def stated_years(kind, interval=3600, self_discharge=None, **times):
    """The years of 2000 mAh as the guide writes them; "-" where there are none."""
    board = battery.load(*kind, self_discharge=self_discharge).with_ms(times)
    return f"{board.life(2000, interval).years:.2f}"


def rows_of_guide():
    lines = [line for line in GUIDE.read_text().splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines]


@pytest.mark.parametrize("begins", CHANGES)
def test_the_guide_has_the_years_of_each_change(begins):
    expected = []
    for kind, change in zip((("esp32",), ("pico-w", "timer")), CHANGES[begins], strict=True):
        expected.append("-" if change is None else stated_years(kind, **change))
    (cells,) = [row[1:] for row in rows_of_guide() if row[0].startswith(begins)]
    assert cells[:2] == expected


@pytest.mark.parametrize(
    "kind",
    [("esp32", "deepsleep"), ("esp32", "devkit"), ("pico-w", "deepsleep"), ("pico-w", "timer")],
)
def test_the_guide_has_the_years_of_each_sleep(kind):
    sleeps = [row[1] for row in rows_of_guide() if row[2:3] == [stated_years(kind)]]
    assert any(sleep.startswith(kind[1]) or kind[1] == "devkit" for sleep in sleeps)


def test_a_current_asleep_may_be_given_instead_of_a_kind_of_sleep(tern):
    result = tern(*["bench", "battery", "--chip", "esp32", "--sleep", "90uA", "--json"]).json
    assert (result["sleep_ma"], result["sleep_source"]) == (0.09, "given")


WORDS = ("bench", "battery", "--chip", "pico-w", "--awake-ms", "join=1000")


def test_the_command_takes_times_and_draws_the_life_of_a_battery(tmp_path, tern):
    picture = tmp_path / "battery.png"
    result = tern(*WORDS, "--json", "--plot", str(picture)).json
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert result["phases"]["join"]["ms"] == 1000
    assert result["milliampere_average"] == pytest.approx(sum(result["milliampere"].values()))
