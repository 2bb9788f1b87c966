"""What a board says of its budget, as `tern device info` and the other tools tell it."""

from framing import encoded

from tern import frames, ledger
from ternhost.reach.links import read_hello
from terntools.boards import devices


def hello(left, spent, measure=ledger.EPSILON):
    """The HELLO of a board whose first device has these millionths left, and has spent those."""
    return read_hello(
        encoded(
            frames.encode_hello, 0, 7, 1, left, spent, 0, 0, 0, 0, 0, 1, 0, measure, 0, "a; b; c"
        )
    )


def test_what_is_left_and_what_was_spent_are_told_together():
    told = hello(1_500_000, 500_000)
    assert devices.budget_text(told) == "epsilon left 1.5, spent 0.5"
    budget = devices.budget(told)
    assert (budget["epsilon_left"], budget["epsilon_spent"]) == (1.5, 0.5)
    assert budget["protects"] == "a device with all of its records"


def test_what_is_left_and_what_was_spent_are_the_budget_that_is_promised():
    promised = devices.guarantee_of(hello(1_500_000, 500_000))
    words = "the budget for life protects a device with all of its records with epsilon 2"
    assert promised.words() == words
    assert devices.guarantee_of(hello(0, 0)) is None, "its ledger cannot be read"


def test_a_ledger_in_rho_is_told_in_rho():
    assert devices.budget_text(hello(20_000, 4_000, ledger.RHO)) == "rho left 0.02, spent 0.004"


def test_a_budget_is_spent_only_where_something_was_paid():
    assert devices.is_spent(hello(0, 2_000_000))
    assert not devices.is_spent(hello(1, 2_000_000))
    assert not devices.is_spent(hello(0, 0)), "its ledger cannot be read"
