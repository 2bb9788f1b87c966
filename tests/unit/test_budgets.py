"""What boards say of their budgets reaches a host, with the reports since."""

import time
from pathlib import Path

import pytest

from tern.ledger import EPSILON, RHO
from ternhost.reach.driver import BoardBudget
from ternhost.reach.sightings import Sighting, Sightings

BOARD = range(7, 10)  # its devices
PRICES = {EPSILON: 100, RHO: 5}


def costs(number, devices, measure):
    """The cost of a report in any round."""
    return [PRICES[measure]] * len(devices)


@pytest.fixture
def rounds():
    """The number of the last round that was opened, to be changed."""
    return [3]


@pytest.fixture
def sightings(store, rounds):
    return Sightings(store, last_round=lambda: rounds[0])


def board_says(sightings, left, spent, measure=EPSILON, **how):
    """The board says hello with this budget, in millionths."""
    hello = {"budget": left, "spent": spent, "measure": measure, "unit": 60}
    sightings.note(Sighting("a board", BOARD, time.monotonic(), hello=hello, **how))


def left_and_spent(sightings):
    budget = sightings.budget(BOARD)
    return budget.left, budget.spent


# A report since then: the number of its round, and the device.
LATER_REPORT = (4, 7)


def test_a_budget_is_what_the_board_has_just_said(sightings):
    board_says(sightings, left=900, spent=100)
    assert sightings.budget(BOARD) == BoardBudget(
        BOARD, 3, EPSILON, left=900, spent=100, first=7, unit=60
    )


@pytest.mark.parametrize(
    ("answered", "left", "spent"),
    [
        ([(4, 7), (5, 7), (5, 8)], 700, 300),  # of later rounds: 100 each
        ([(3, 7)], 900, 100),  # of the round that was open: it may have been paid before the hello
    ],
)
def test_reports_of_later_rounds_are_taken_off(sightings, answered, left, spent):
    board_says(sightings, left=900, spent=100)
    sightings.count_costs(answered, costs)
    assert left_and_spent(sightings) == (left, spent)


def test_a_new_hello_replaces_what_was_counted(sightings, rounds):
    board_says(sightings, left=900, spent=100)
    sightings.count_costs([LATER_REPORT], costs)
    rounds[0] = 4
    board_says(sightings, left=800, spent=200)
    assert left_and_spent(sightings) == (800, 200)


def test_a_ledger_in_rho_pays_in_rho(sightings):
    board_says(sightings, left=900, spent=100, measure=RHO)
    sightings.count_costs([LATER_REPORT], costs)
    assert left_and_spent(sightings) == (895, 105)


def test_observers_read_the_same_from_the_store(sightings, store):
    board_says(sightings, left=900, spent=100)
    sightings.count_costs([LATER_REPORT], costs)
    sightings.write()
    (row,) = store.boards()
    assert (row.budget_left, row.paid, row.measure) == (800, 200, EPSILON)


@pytest.fixture
def earlier(store):
    """What an earlier host has heard of the board, and counted since."""
    earlier = Sightings(store, last_round=lambda: 3)
    board_says(earlier, left=900, spent=100)
    earlier.count_costs([LATER_REPORT], costs)
    earlier.write()


@pytest.mark.parametrize(("retained", "left"), [(True, 800), (False, 900)])
def test_a_hello_from_before_this_host_includes_what_an_earlier_host_counted(
    earlier, store, retained, left
):
    """A board that says the same again has repeated a report that it had paid for."""
    later = Sightings(store, last_round=lambda: 9)
    board_says(later, left=900, spent=100, retained=retained)
    assert later.budget(BOARD).left == left


def test_a_board_that_is_heard_without_a_hello_keeps_what_it_has_paid(earlier, store):
    later = Sightings(store, last_round=lambda: 9)
    later.note(Sighting("a board", BOARD, time.monotonic()))
    later.write()
    assert store.boards()[0].budget_left == 800


# Listed


@pytest.fixture
def listed(sightings, store, tern):
    """List the devices 7, 8 and 9 of a board, and 12 of none, after the board has said its budget.

    Returns what the command prints; further words are options.
    """
    store.add_devices({device: bytes(32) for device in (*BOARD, 12)})
    board_says(sightings, left=1_500_000, spent=500_000)
    sightings.write()
    path = str(Path(store.path))
    store.close()
    return lambda *words: tern("keys", "list", path, *words)


def test_the_list_of_devices_says_what_their_boards_said(listed):
    assert "epsilon left 1.5, spent 0.5" in listed().out


def test_the_list_finds_the_store_in_a_directory(listed, store, tern):
    assert tern("keys", "list", str(Path(store.path).parent)).out == listed().out


def test_the_list_has_a_line_for_the_devices_of_a_board(listed):
    assert [line.split()[0] for line in listed().out.splitlines()[:-1]] == ["7-9", "12"]


def test_a_board_says_the_budget_of_its_first_device_alone(listed):
    first, second, *_ = listed("--json").json["devices"]
    assert (first["epsilon_left"], first["epsilon_spent"]) == (1.5, 0.5)
    assert "epsilon_left" not in second


def test_the_list_says_what_the_fleet_has_left(listed):
    amounts = {"least": 1.5, "mean": 1.5, "most": 1.5}
    assert listed("--json").json["left"] == [
        {"measure": "epsilon", "boards": 1, "devices": 3, **amounts}
    ]


def test_what_a_revoked_device_has_left_does_not_count(listed, store, tern):
    listed()
    tern("keys", "revoke", "7", "--store", str(store.path))
    assert listed("--json").json["left"] == []
