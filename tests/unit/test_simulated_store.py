"""The runs of a simulated fleet on one store: their costs add up, as those of devices do, and stay
apart from these.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:N

from tern.ledger import EPSILON
from ternhost import datasets, errors
from ternhost.privacy.accounting import Policy
from ternhost.provision import boards as provision
from ternhost.run import costs
from ternhost.run.status import END, Watcher
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("here")
FLEET = ["--fleet", "simulated:50", "--data", "iris", "--no-report"]
RUN = ["train", *FLEET, "--reports", "50", "fedsgd", "--epsilon", ".1", "--json"]
STORED = [*RUN, "--store", "f.sqlite"]


@pytest.fixture
def store():
    """The store of the runs, once there are some."""

    def opened():
        return Store("f.sqlite", create=False, beside=True)

    return opened


@pytest.fixture
def pure_for_life(tern):
    """`pure_for_life(*words)` runs a command: the pure epsilon of all runs of its clients so far."""

    def run(*words):
        (guarantees,) = tern(*words).json["guarantees"]
        return guarantees["life"]["bounds"]["pure"]

    return run


def test_the_seed_of_a_simulated_fleet_fixes_its_noise(tern):
    weights = tern(*RUN).json["weights"]
    assert tern(*RUN).json["weights"] == weights
    assert tern(*RUN, "--seed", "2").json["weights"] != weights


def test_what_a_client_has_told_for_life_adds_up(pure_for_life):
    assert pure_for_life(*STORED) == pytest.approx(0.1)
    assert pure_for_life(*STORED) == pytest.approx(0.2)
    assert pure_for_life(*STORED) == pytest.approx(0.3)


def test_a_budget_for_life_refuses_the_run_that_exceeds_it(tern, store):
    """Each run costs a client epsilon 0.1, and its budget for life is 0.3: the fourth run is
    refused before it begins, and leaves neither a directory nor a row in the store.
    """
    for _ in range(3):
        tern(*STORED, "--budget", ".3")
    refused = tern(*STORED, "--budget", ".3", "--name", "fourth", code=errors.REFUSED).json
    assert "this would cost a client 0.4, more than its budget of 0.3" in refused["error"]
    assert not Path("runs/fourth").exists()
    with store() as opened:
        assert len(opened.runs()) == 3


@pytest.mark.parametrize(
    "words", ["collect --clients 10", "infer --clients 10", "train --reports 10"]
)
def test_only_the_clients_that_were_asked_have_told(words, tern, store):
    """Of 50 simulated clients, each command asks 10. The store then counts privacy loss for 10
    clients, and not for all of the fleet.
    """
    command, *rest = words.split()
    tern(command, *FLEET, *rest, "--store", "f.sqlite")
    with store() as opened:
        (first,) = opened.runs()

        # What another run of the same clients would find that they have told.
        opened.begin_run(replace(first, name="next"))
        told = costs.earlier_disclosures(opened, "next")
    spent_by_client = told.prices(range(1, 51), EPSILON)
    assert np.count_nonzero(spent_by_client) == 10


def test_a_resumed_run_has_the_same_result_and_cost(tern, pure_for_life, monkeypatch):
    """A run of five rounds is interrupted after the second and resumed. It learns the same weights
    as an uninterrupted one, and its clients have told as much as in one run.
    """
    words = [*STORED, "--group", "10", "--name", "mine"]
    whole = tern(*RUN, "--group", "10").json

    def interrupt(status):
        if status.event == END and status.round == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        watcher = Watcher(status=interrupt)
        patched.setattr("ternhost.cli.progress.ProgressPrinter.watcher", lambda self: watcher)
        tern(*words, code=errors.INTERRUPTED)

    resumed = tern("resume", "mine", "--json").json
    assert resumed["weights"] == whole["weights"]
    assert pure_for_life(*STORED) == pytest.approx(0.2), "after one run, and not two"


def test_simulated_clients_are_not_the_devices_of_the_same_ids(pure_for_life):
    """A store can hold simulated runs beside those of real devices. Both number clients from 1, but
    what a simulated client has told does not count for the device, nor the other way round.
    """
    board, rows = Path("a").absolute(), datasets.load("iris").records(range(1))
    with Store("f.sqlite") as opened:
        provision.provision_fleet(opened, [board], rows, [Policy(10**8, 10**8)])
    devices = ["--fleet", f"port:inprocess:{board}", "--reports", "1", "--epsilon", "1"]
    on_devices = [*STORED, *devices]  # the last value of an option counts

    # A simulated run costs 0.1, and one on devices costs 1.
    assert pure_for_life(*STORED) == pytest.approx(0.1)
    assert pure_for_life(*on_devices) == pytest.approx(1)
    assert pure_for_life(*STORED) == pytest.approx(0.1 + 0.1)
    assert pure_for_life(*on_devices) == pytest.approx(1 + 1)


def test_a_served_simulated_fleet_goes_on_after_another_run_of_its_store(tern, store):
    """A service and another run share a store and its numbers of rounds. The service, started
    again, goes on with its own next round, after the one of the other run.
    """
    fleet = [*FLEET, "fedsgd", "--store", "f.sqlite"]
    serve = ["serve", *fleet, "--quiet", "--name", "served"]
    tern(*serve, "--rounds", "2")
    tern(*STORED)  # one round
    tern(*serve, "--rounds", "4")  # of its own, with the two before

    with store() as opened:
        is_served = [round_.run == "served" for round_ in opened.rounds(simulated=True)]
    assert is_served == [True, True, False, True, True]
