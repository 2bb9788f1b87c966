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


def board(spent, first=1, clients=1):
    """What a board of these clients says that its first one has spent."""
    return BoardBudget(range(first, first + clients), clients, EPSILON, 10**7, spent, first)


def ask_device_1(store):
    """Store a round that asked device 1, and in which nobody has reported yet."""
    store.open_round(StoredRound(1, [StoredCohort(round_body(1, QUESTION), [1])], 1))


def told_once_by(devices):
    """The disclosures of one accepted report of each of these devices."""
    return Disclosures().with_reports([(ReportKind(COST), devices, 1)])


# What is unknown


def test_a_lost_report_was_paid_for_and_the_store_explains_it(store):
    ask_device_1(store)
    (found,) = unknown_payments(store, [board(spent=COST)], Disclosures())
    assert (found.amount, found.beyond_this_store) == (COST, False)
    assert payments.warning([found]) == ""


def test_a_round_that_the_store_never_asked_is_beyond_it(store):
    """The device has paid for three reports: one was accepted, one was asked for, one is unknown."""
    ask_device_1(store)
    (found,) = unknown_payments(store, [board(spent=3 * COST)], told_once_by([1]))
    assert (found.paid, found.asked) == (3 * COST, COST)
    assert found.amount == 2 * COST, "what no accepted report explains"
    assert found.beyond_this_store


def test_a_payment_counts_for_all_devices_of_its_board_and_for_no_others(store):
    """Device 1 speaks for 1 to 3: it has paid for two reports, of which the store knows one. So all
    three may have paid for one more than the store knows; device 9 is on another board.
    """
    found = unknown_payments(store, [board(spent=2 * COST, clients=3)], told_once_by([1]))
    after = with_payments(told_once_by([1, 2, 9]), map(asdict, found), range(1, 10), 0)
    assert after.prices([1, 2, 3, 9], EPSILON).tolist() == [2 * COST, 2 * COST, COST, COST]


def test_the_accounts_of_many_boards_stay_small(store):
    """3,000 boards each say that they have paid a different amount that the store cannot explain. A
    run keeps these payments with every round, so they are joined to few; joined, they state at
    least what each device has paid.
    """
    devices = range(1, 3001)  # one on each board
    boards = [board(spent=1000 + i, first=i) for i in devices]

    found = unknown_payments(store, boards, Disclosures())
    after = with_payments(Disclosures(), map(asdict, found), devices, 0)

    assert len(found) <= 64
    spent = np.array([each.spent for each in boards])
    assert np.all(after.prices(devices, EPSILON) >= spent)
    assert len(after.report_counts()) <= 16, "kinds of accounts"


def test_a_site_counts_what_its_boards_have_paid_beyond_any_of_its_devices_by_the_store(store):
    """A site tells what its devices have paid, but not which ones: of its ten, five have paid for
    three reports and five for one. The store knows of one report of each of two devices. What it
    does not know is the most that any has paid, less the most that it knows of any; all ten may
    have paid it.
    """
    site = np.arange(1, 11)
    most_paid = BoardBudget(site, 5, EPSILON, left=0, spent=3 * COST)
    least_paid = BoardBudget(site, 5, EPSILON, left=0, spent=COST)
    (found,) = unknown_payments(store, [most_paid, least_paid], told_once_by([1, 2]))
    assert (found.first, found.last) == (1, 10), "of all devices of the site"
    assert found.amount == 3 * COST - COST


# Whole runs


@pytest.fixture
def train():
    """The words of a run of one report on a board with one device; its store is keys.sqlite."""
    rows = datasets.load("iris").records(range(1))
    board = Path("a").absolute()
    with Store("keys.sqlite") as store:
        provision.provision_fleet(store, [board], rows, [Policy(2_000_000, 20_000_000)])
    fleet = ["--fleet", f"port:inprocess:{board}", "--store", "keys.sqlite", "--no-report"]
    learning = ["fedsgd", "--data", "iris", "--reports", "1"]
    return ["train", *fleet, *learning, "--json"]


def pure_for_life(result):
    return result["guarantees"][0]["life"]["bounds"]["pure"]


def test_a_store_that_was_restored_counts_what_the_boards_have_paid(train, tern):
    """Three runs cost a device epsilon 2, 1.5 and 1. The store, restored from a copy, has lost the
    second, but the boards' own ledgers have not: the third run warns, and its guarantee for life
    counts all of them.
    """
    tern(*train, "--epsilon", "2")
    shutil.copy("keys.sqlite", "copy.sqlite")
    tern(*train, "--epsilon", "1.5")
    shutil.copy("copy.sqlite", "keys.sqlite")

    # Without the lost run, the store would use its round number again.
    printed = tern(*train, "--epsilon", "1", "--after-round", "2")
    assert "one says epsilon 3.5 in its life, and the rounds of this store cost it 2" in printed.err
    assert printed.json["epsilon_before"] == 2 + 1.5, "also what the lost round cost"
    assert pure_for_life(printed.json) == 2 + 1.5 + 1


def test_a_named_budget_includes_what_the_boards_have_paid(train, tern):
    shutil.copy("keys.sqlite", "copy.sqlite")
    tern(*train, "--epsilon", "2")
    shutil.copy("copy.sqlite", "keys.sqlite")
    words = [*train, "--epsilon", "1.5", "--after-round", "1", "--budget"]
    tern(*words, "3", code=REFUSED)  # 2 are spent, although this store does not know
    tern(*words, "3.5")
