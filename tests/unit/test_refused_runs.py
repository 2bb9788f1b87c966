"""A run that every device refuses for good, and that nobody has paid for, leaves nothing behind."""

from pathlib import Path

import pytest
from harness import in_process  # noqa: F401, registers inprocess:N

from tern import wire
from tern.ledger import EPSILON, RHO
from ternhost import datasets, errors
from ternhost.count.rounds import Refusal, RoundResult
from ternhost.privacy.accounting import Policy
from ternhost.provision import boards as provision
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.refusals import nobody_will_report
from ternhost.run import costs
from ternhost.run.status import ROUND, Watcher
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("here")
FOR_GOOD = ("CARD", "NOT_CERTIFIED", "POLICY", "BUDGET", "MODEL", "SLOT", "UNIT", "MEASURE")
FOR_NOW = ("OLD_ROUND", "CHANGED_ROUND", "LEDGER", "ENTROPY")


def result(codes, asked=None, reports=0, detail=0):
    """The result of a round with these refusals."""
    refusals = {
        device: Refusal(device, 1, getattr(wire, f"ERR_{code}"), detail)
        for device, code in enumerate(codes, 1)
    }
    return RoundResult(1, "complete", len(codes) if asked is None else asked, reports, refusals, [])


@pytest.mark.parametrize("code", FOR_GOOD)
def test_a_reason_that_will_not_change_ends_a_run_if_all_give_one(code):
    assert nobody_will_report(result([code, "BUDGET"]))
    assert not nobody_will_report(result([code], asked=2)), "who is silent may have paid"
    assert not nobody_will_report(result([code], asked=2, reports=1))


@pytest.mark.parametrize("code", FOR_NOW)
def test_a_reason_that_may_change_ends_no_run(code):
    assert not nobody_will_report(result([code]))
    assert not nobody_will_report(result(["UNIT", code]))


# Whole runs


@pytest.fixture
def fleet():
    """`fleet(measure, unit)`: the options of a command for two boards of a device each, with a
    large budget.
    """

    def make(measure=EPSILON, unit=0, largest=100_000_000, budget=100_000_000):
        rows = datasets.load("flights").records(range(40))
        policies = [Policy(largest, budget, measure)] * 2
        boards = [Path(name).absolute() for name in ("a", "b")]
        with Store("keys.sqlite") as store:
            provision.provision_fleet(store, boards, rows, policies, 20, unit)
        ports = ",".join(f"inprocess:{board}" for board in boards)
        return ["--fleet", f"port:{ports}", "--store", "keys.sqlite", "--no-report"]

    return make


def assert_nothing_is_left(rounds=1):
    """No run, no directory, nothing told; the numbers of its rounds stay used."""
    assert not Path("runs").exists()
    with Store("keys.sqlite") as store:
        assert store.runs() == []
        assert not store.open_rounds()
        assert store.last_round() == rounds
        assert not costs.earlier_disclosures(store, "another")
        assert not costs.asked_disclosures(store), "a device that refused for good has paid nothing"


@pytest.mark.parametrize(
    ("board", "words"),
    [
        ({}, "train --data iris --rounds 40"),  # its records have another dimension
        (
            {"measure": RHO, "unit": 2},
            "train --unit record --records 20 --run-epsilon .1",
        ),
        ({"largest": 1_000_000}, "train --rounds 3"),  # a report costs 2
        ({"largest": 1_000_000}, "collect --data iris"),
    ],
    ids=["dimension", "unit", "policy", "collect"],
)
def test_a_refused_run_is_taken_back_after_its_first_round(board, words, fleet, tern):
    tern(*words.split(), *fleet(**board), code=errors.REFUSED)
    assert_nothing_is_left()


@pytest.mark.parametrize("learner", ["fedsgd", "fedavg"])
def test_softmax_is_refused_before_a_question_if_labels_are_no_class_numbers(learner, fleet, tern):
    """The boards have records of flights, whose labels are -1 and 1."""
    words = ["--data", "devices:28:3", "--reports", "2", *fleet()]
    tern("train", learner, *words, code=errors.USAGE)
    assert_nothing_is_left(rounds=0)


def test_a_run_that_was_interrupted_in_its_first_round_is_taken_back_later(
    fleet, tern, monkeypatch
):
    """Every device refuses this run, as its data set has another dimension. Ctrl-C comes before the
    host learns so; the resumed run is then taken back like any other that nobody has paid for.
    """

    def interrupt(status):
        if status.event == ROUND:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        watcher = Watcher(status=interrupt)
        patched.setattr("ternhost.cli.progress.ProgressPrinter.watcher", lambda self: watcher)
        words = [*fleet(), "--data", "iris", "--rounds", "40", "--name", "mine"]
        tern("train", *words, code=errors.INTERRUPTED)

    tern("resume", "mine", code=errors.REFUSED)
    assert_nothing_is_left()


def test_a_run_that_reported_once_stays_whatever_comes_later(fleet, tern, monkeypatch):
    """Each device has a budget of epsilon 100 for life, and each report of this run costs 20. After
    five reports of both devices all refuse for good; but the reports have cost privacy, so the run
    stays in the store. The host is kept from learning the budgets, by which it would not begin.
    """
    words = fleet()
    monkeypatch.setattr(BoardsDriver, "budgets", property(lambda self: []))

    printed = tern(
        "train", *words, "--epsilon", "20", "--reports", "12", "--name", "mine", "--json", code=None
    )
    assert printed.code == errors.REFUSED
    with Store("keys.sqlite") as store:
        assert store.run("mine").state["reports"] == 10, "five of each of two devices"
