"""What devices have told for life is at least what their boards say that they have paid, also with
a restored store.
"""

import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:N

from tern import wire
from tern.ledger import EPSILON
from ternhost import datasets
from ternhost.count.disclosures import Disclosures
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import StoredCohort, StoredRound
from ternhost.errors import REFUSED
from ternhost.privacy.accounting import Policy
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.mechanisms import design
from ternhost.provision import boards as provision
from ternhost.reach.driver import BoardBudget
from ternhost.run import payments
from ternhost.run.payments import unknown_payments, with_payments
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("here")
CARD = design("three-outputs", epsilon_micro=500_000).card
QUESTION = Question(wire.LOGISTIC, [100] * 5, -14, CARD, 1)
COST = 500_000  # of a report, micro-epsilon, at most


def board(first, spent, clients=1, measure=EPSILON):
    return BoardBudget(range(first, first + clients), clients, measure, 10**7, spent, first)


def asked(store, number, devices):
    """Store a round that asked these devices, and in which none has reported yet."""
    store.open_round(StoredRound(number, [StoredCohort(round_body(number, QUESTION), devices)], 1))


def told(devices, times=1):
    return Disclosures().with_reports([(ReportKind(COST), devices, times)])


# What is unknown


def test_a_lost_report_was_paid_for_and_the_store_explains_it(store):
    asked(store, 1, [1])
    (found,) = unknown_payments(store, [board(1, COST)], Disclosures())
    assert (found.amount, found.beyond_this_store) == (COST, False)
    assert payments.warning([found]) == ""


def test_a_round_that_the_store_never_asked_is_beyond_it(store):
    asked(store, 1, [1])
    (found,) = unknown_payments(store, [board(1, 3 * COST)], told([1]))
    assert (found.amount, found.paid, found.asked) == (2 * COST, 3 * COST, COST)
    assert found.beyond_this_store


def test_a_payment_counts_for_all_devices_of_its_board_and_for_no_others(store):
    found = unknown_payments(store, [board(1, 2 * COST, clients=3)], told([1]))
    after = with_payments(told([1, 2, 9]), map(asdict, found), range(1, 10), 0)
    assert after.prices([1, 2, 3, 9], EPSILON).tolist() == [2 * COST, 2 * COST, COST, COST]


def test_the_accounts_of_many_boards_stay_small(store):
    boards = [board(i, 1000 + i) for i in range(1, 3001)]
    found = unknown_payments(store, boards, Disclosures())
    assert len(found) <= 64, "a run keeps them with every round"
    after = with_payments(Disclosures(), map(asdict, found), range(1, 3001), 0)
    spent = np.array([each.spent for each in boards])
    assert np.all(after.prices(range(1, 3001), EPSILON) >= spent)
    assert len(after.report_counts()) <= 16


# Whole runs


@pytest.fixture
def train():
    """The words of a run of one report on a board with one device; its store is keys.sqlite."""
    rows = datasets.load("iris").records(range(1))
    board = Path("a").absolute()
    with Store("keys.sqlite") as store:
        provision.provision_fleet(store, [board], rows, [Policy(2_000_000, 20_000_000)])
    fleet = ["--fleet", f"port:inprocess:{board}", "--store", "keys.sqlite", "--no-report"]
    learning = ["--algorithm", "fedsgd", "--dataset", "iris", "--reports", "1"]
    return ["train", *fleet, *learning, "--json"]


def pure_for_life(result):
    return result["guarantees"][0]["life"]["bounds"]["pure"]


def test_a_store_that_was_restored_counts_what_the_boards_have_paid(train, tern):
    tern(*train, "--epsilon", "2")
    shutil.copy("keys.sqlite", "copy.sqlite")
    tern(*train, "--epsilon", "1.5")
    shutil.copy("copy.sqlite", "keys.sqlite")
    printed = tern(*train, "--epsilon", "1", "--after-round", "2")
    assert "one says epsilon 3.5 in its life, and the rounds of this store cost it 2" in printed.err
    assert (printed.json["epsilon_before"], pure_for_life(printed.json)) == (3.5, 4.5)


def test_a_named_budget_includes_what_the_boards_have_paid(train, tern):
    shutil.copy("keys.sqlite", "copy.sqlite")
    tern(*train, "--epsilon", "2")
    shutil.copy("copy.sqlite", "keys.sqlite")
    words = [*train, "--epsilon", "1.5", "--after-round", "1", "--budget"]
    tern(*words, "3", code=REFUSED)
    tern(*words, "3.5")
