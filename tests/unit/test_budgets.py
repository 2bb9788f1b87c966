"""What boards say of their budgets reaches a host, with the reports since."""

import time
from pathlib import Path

import pytest

from tern.ledger import EPSILON, RHO
from ternhost.reach.driver import BoardBudget, least
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


def say(sightings, left, spent, measure=EPSILON, **how):
    hello = {"budget": left, "spent": spent, "measure": measure, "unit": 60}
    sightings.note(Sighting("a board", BOARD, time.monotonic(), hello=hello, **how))


def test_a_board_that_has_said_nothing_has_no_budget(sightings):
    assert sightings.budget(BOARD) is None
    sightings.note(Sighting("a board", BOARD, time.monotonic()))
    assert sightings.budget(BOARD) is None


def test_a_budget_is_what_the_board_has_just_said(sightings):
    say(sightings, 900, 100)
    assert sightings.budget(BOARD) == BoardBudget(BOARD, 3, EPSILON, 900, 100, first=7, unit=60)


@pytest.mark.parametrize(
    ("answered", "left", "spent"),
    [
        ([(4, 7), (5, 7), (5, 8)], 700, 300),  # of later rounds: 100 each
        ([(3, 7)], 900, 100),  # of the round that was open: it may have been paid before the hello
    ],
)
def test_reports_of_later_rounds_are_taken_off(sightings, answered, left, spent):
    say(sightings, 900, 100)
    sightings.count_costs(answered, costs)
    assert (sightings.budget(BOARD).left, sightings.budget(BOARD).spent) == (left, spent)


def test_a_new_hello_replaces_what_was_counted(sightings, rounds):
    say(sightings, 900, 100)
    sightings.count_costs([(4, 7)], costs)
    rounds[0] = 4
    say(sightings, 800, 200)
    assert (sightings.budget(BOARD).left, sightings.budget(BOARD).spent) == (800, 200)


def test_a_ledger_in_rho_pays_in_rho(sightings):
    say(sightings, 900, 100, RHO)
    sightings.count_costs([(4, 7)], costs)
    assert (sightings.budget(BOARD).left, sightings.budget(BOARD).spent) == (895, 105)


def test_nothing_is_left_below_zero(sightings):
    say(sightings, 50, 100)
    sightings.count_costs([(4, 7)], costs)
    assert sightings.budget(BOARD).left == 0


def test_observers_read_the_same_from_the_store(sightings, store):
    say(sightings, 900, 100)
    sightings.count_costs([(4, 7)], costs)
    sightings.write()
    (row,) = store.boards()
    assert (row.budget_left, row.paid, row.measure) == (800, 200, EPSILON)


@pytest.fixture
def earlier(store):
    """What an earlier host has heard of the board, and counted since."""
    earlier = Sightings(store, last_round=lambda: 3)
    say(earlier, 900, 100)
    earlier.count_costs([(4, 7)], costs)
    earlier.write()


@pytest.mark.parametrize(("retained", "left"), [(True, 800), (False, 900)])
def test_a_hello_from_before_this_host_includes_what_an_earlier_host_counted(
    earlier, store, retained, left
):
    """A board that says the same again has repeated a report that it had paid for."""
    later = Sightings(store, last_round=lambda: 9)
    say(later, 900, 100, retained=retained)
    assert later.budget(BOARD).left == left


def test_a_board_that_is_heard_without_a_hello_keeps_what_it_has_paid(earlier, store):
    later = Sightings(store, last_round=lambda: 9)
    later.note(Sighting("a board", BOARD, time.monotonic()))
    later.write()
    assert store.boards()[0].budget_left == 800


def test_the_least_budget_is_told_for_each_measure():
    found = least(
        BoardBudget(BOARD, 3, measure, left, 0) for measure, left in ((0, 5), (0, 3), (1, 9))
    )
    assert found == (3, 9)
    assert least([]) == (None, None)


# Listed


def test_the_list_of_devices_says_what_their_boards_said(sightings, store, tern):
    store.add_devices({7: bytes(32), 8: bytes(32)})
    say(sightings, 1_500_000, 500_000)
    sightings.write()
    path = str(Path(store.path))
    store.close()
    lines = tern("device", "list", "--store", path).out.splitlines()
    assert "has a key, epsilon left 1.5, spent 0.5 (its board has 3 devices), as of " in lines[0]
    assert lines[1].endswith("has a key")
    first, second = tern("device", "list", "--store", path, "--json").json["devices"]
    assert (first["epsilon_left"], first["epsilon_spent"]) == (1.5, 0.5)
    assert "epsilon_left" not in second
