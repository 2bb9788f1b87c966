"""The life of a battery: charges add up, limits hold, and every figure names its source."""

from pathlib import Path

import pytest

from ternbench import battery, battery_changes, plots
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
    "TLS takes twice the time": ({"tls": 2460}, {"tls": 4000}),
    "a scan for the network": ({"join": 6000}, {"join": 8200}),
    "DHCP at each wake": ({"address": 892}, {"address": 500}),
    "a lithium primary cell": ({"self_discharge": 0.0017}, {"self_discharge": 0.0017}),
    "a round every 15 minutes": ({"interval": 900}, {"interval": 900}),
    "a round a day": ({"interval": 86_400}, {"interval": 86_400}),
}


def stated_years(kind, interval=3600, self_discharge=None, **times):
    """The years of 2000 mAh as the guide writes them."""
    board = battery.load(*kind, self_discharge=self_discharge).with_ms(times)
    return f"{board.life(2000, interval).years:.2f}"


def rows_of_guide():
    lines = [line for line in GUIDE.read_text().splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines]


@pytest.mark.parametrize("begins", CHANGES)
def test_the_guide_has_the_years_of_each_change(begins):
    expected = []
    for kind, change in zip((("esp32",), ("pico-w", "timer")), CHANGES[begins], strict=True):
        expected.append(stated_years(kind, **change))
    (cells,) = [row[1:] for row in rows_of_guide() if row[0].startswith(begins)]
    assert cells[:2] == expected


@pytest.mark.parametrize(
    "kind",
    [
        ("esp32", "deepsleep"),
        ("esp32", "devkit"),
        ("esp32-c3", "deepsleep"),
        ("pico-w", "deepsleep"),
        ("pico-w", "timer"),
        ("pico2-w", "deepsleep"),
        ("pico2-w", "timer"),
    ],
)
def test_the_guide_has_the_years_of_each_sleep(kind):
    sleeps = [row[1] for row in rows_of_guide() if row[2:3] == [stated_years(kind)]]
    assert any(sleep.startswith(kind[1]) for sleep in sleeps)


# What to change

BOARDS = {"esp32": "deepsleep", "esp32-c3": "deepsleep", "pico-w": "timer", "pico2-w": "timer"}


def ranked(board, sleep="deepsleep", **given):
    """The changes for 2000 mAh and a wake an hour, by name, in their order."""
    now = battery.load(board, sleep).with_ms(given)
    return {each.name: each for each in battery_changes.ranked(board, sleep, now, 2000, 3600)}


@pytest.mark.parametrize("board", BOARDS)
def test_the_change_with_the_longest_life_is_first(board):
    years = [change.life.years for change in ranked(board).values()]
    assert years == sorted(years, reverse=True)


def test_a_shared_key_saves_the_charge_of_most_of_the_tls_phase():
    change = ranked("esp32")["psk"]
    assert change.saved_mas == pytest.approx(110 * (1.230 - 0.050))  # mA times s


def test_half_as_many_wakes_halve_the_charge_of_the_wakes():
    now = battery.load("esp32").life(2000, 3600).milliampere["tls"]
    assert ranked("esp32")["rarer"].life.milliampere["tls"] == pytest.approx(now / 2)


def test_without_radio_no_phase_takes_more_than_the_boot():
    change = ranked("esp32")["serial"]
    awake_s = 0.8 + 0.25 + 0.3 + 0.5 + 0.5  # all phases but those of the network, at 68 mA
    assert change.saved_mas == pytest.approx(battery.load("esp32").charge - 68 * awake_s)


def test_the_current_of_a_kept_connection_is_that_of_the_battery():
    drawn = ranked("pico-w")["connected"].life.milliampere["sleep"]
    assert drawn == pytest.approx(45 * 5 / 3.7, rel=0.001)


def test_a_change_that_makes_no_difference_is_left_out():
    assert "timer" not in ranked("pico-w", "timer")
    assert "no-tls" not in ranked("esp32", tls=0)


def test_no_change_makes_a_phase_longer():
    assert ranked("esp32", tls=20)["esp-now"].saved_mas > 0
    assert "psk" not in ranked("esp32", tls=20)


def test_esp_now_is_for_espressifs_chips_only():
    with_esp_now = [board for board in BOARDS if "esp-now" in ranked(board)]
    assert with_esp_now == ["esp32", "esp32-c3"]


@pytest.mark.parametrize("change", battery.figures()["changes"], ids=lambda change: change["name"])
def test_a_change_has_a_price(change):
    assert change["cost"]


@pytest.mark.parametrize("change", battery.figures()["changes"], ids=lambda change: change["name"])
def test_a_change_says_what_it_needs_unless_it_is_possible_today(change):
    assert ("needs" in change) != change["today"]


def test_the_guide_has_the_years_of_each_change_to_make():
    lists = [ranked(board, sleep) for board, sleep in BOARDS.items()]
    for name in (change["name"] for change in battery.figures()["changes"]):
        expected = [
            f"{changes[name].life.years:.2f}" if name in changes else "-" for changes in lists
        ]
        (cells,) = [row[1:] for row in rows_of_guide() if row[0].startswith(f"{name}: ")]
        assert cells == expected


@pytest.mark.parametrize("board", battery.figures()["boards"].values(), ids=lambda b: b["name"])
def test_each_figure_of_a_board_has_a_source_or_is_assumed(board):
    follow_from_slot = {"begin", "slot", "finish"}
    for part in ("currents", "phases", "sleeps"):
        for name in board[part].keys() - follow_from_slot:
            assert {"source", "measured_by", "assumed"} & board[part][name].keys(), (part, name)


def test_a_current_asleep_may_be_given_instead_of_a_kind_of_sleep(tern):
    result = tern(*["bench", "battery", "--chip", "esp32", "--sleep", "90uA", "--json"]).json
    assert (result["sleep_ma"], result["sleep_source"]) == (0.09, "given")


@pytest.mark.parametrize("board", battery.figures()["boards"])
def test_a_picture_has_a_colour_for_each_use_of_the_charge(board):
    uses = battery.load(board).life(2000, 3600).milliampere
    assert len(uses) <= len(plots.STYLES)


WORDS = ("bench", "battery", "--chip", "pico-w", "--awake-ms", "join=1000")


def test_the_command_takes_times_and_draws_the_life_of_a_battery(tmp_path, tern):
    picture = tmp_path / "battery.png"
    result = tern(*WORDS, "--json", "--plot", str(picture)).json
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert result["phases"]["join"]["ms"] == 1000
    assert result["milliampere_average"] == pytest.approx(sum(result["milliampere"].values()))


def test_the_charge_of_a_wake_is_the_sum_of_its_phases(tern):
    result = tern(*WORDS, "--json").json
    charges = [phase["mas"] for phase in result["phases"].values()]
    assert result["milliampere_seconds_a_wake"] == pytest.approx(sum(charges))


def test_the_command_lists_what_to_change_with_its_price(tern):
    result = tern(*WORDS, "--json").json
    best = result["changes"][0]
    assert best["name"] == "timer"
    text = tern(*WORDS).out
    assert f"timer: {best['years']:5.2f} years" in text
    assert f"price: {best['cost']}" in text


def test_a_phase_that_a_wake_does_not_have_is_refused(tern):
    refused = tern("bench", "battery", "--chip", "esp32", "--awake-ms", "connect=900", code=2)
    assert "a wake has no phase 'connect'" in refused.err
