"""Algorithms over ptys.

`tern collect`: MicroPython reports values, categories and levels, and its ledgers show their cost.
Then protected inference, and FedAvg.
"""

from collections import Counter

import numpy as np
import pytest
import rig
from beside import needs_papers

from tern import card as cards
from tern import storage
from ternhost.errors import InterruptedByUser, RefusedError
from ternhost.learn import clustering
from ternhost.learn.designs import class_of
from ternhost.privacy.accounting import Policy
from ternhost.run.run import Run
from ternhost.run.status import Watcher
from ternhost.store.store import Store
from terntools.emulators.unix_fleet import EmulatedFleet

EXTRACT = "AGE,HRSWORK1,SEX,REGION,TOWN\n" + "".join(
    f"{20 + i % 60},{(7 * i) % 90},{1 + i % 2},{i % 6 // 2},{i % 30 // 3 * (i % 3)}\n"
    for i in range(300)
)


pytestmark = pytest.mark.usefixtures("here")


@needs_papers
def test_emulated_boards_report_means_and_frequencies_near_the_truth(tmp_path, micropython):
    (tmp_path / "people.csv").write_text(EXTRACT)
    words = ("--dataset", "ipums:people.csv", "--epsilon", 20, "--fleet", "emulated:2")
    result = rig.tern("collect", *words, "--no-report", "--json").json
    assert sum(part["reports"] for part in result["parts"]) == 300
    assert [part["mechanism"] for part in result["parts"]] == ["three-outputs", "grr", "grr", "grr"]
    assert max(cost for cost, _ in result["epsilon_spent"]) == result["epsilon_paid"] <= 20
    assert sum(devices for _, devices in result["epsilon_spent"]) == 300
    for entry in result["attributes"]:
        estimate = entry["frequencies"] if "frequencies" in entry else entry["mean"]
        assert np.abs(np.subtract(estimate, entry["true"])).max() < 0.3, entry


# Protected inference over ptys: MicroPython classifies, adds noise and reports; an interrupted run
# is resumed


def test_an_interrupted_run_is_resumed_and_each_device_pays_once(tmp_path, micropython):
    def stop(status):
        if status.reports:
            raise KeyboardInterrupt

    path = tmp_path / "store.sqlite"
    with pytest.raises(InterruptedByUser) as caught:
        rig.finish(
            "infer",
            epsilon="4",
            fleet="emulated:2",
            cluster_client_num=60,
            store=path,
            name="one",
            watcher=Watcher(status=stop),
        )
    assert caught.value.hint == "go on with: tern infer --resume one"
    result = rig.resume("one")
    assert (result["reports"], result["epsilon_spent"]) == (60, [[result["epsilon_paid"], 60]])
    with Store(path) as store:
        ledgers = rig.ledgers_of_run(tmp_path / result["directory"])
        cost = cards.decode(bytes.fromhex(result["card"])).epsilon
        rig.assert_counted_once(store, ledgers, 1, range(1, 61), cost)


# FedAvg and personalised budgets over ptys, where the ledgers show what each device has paid; and
# refused runs


LOCAL = {
    "algorithm": "fedavg",
    "dataset": "synthetic-logistic",
    "mechanism": "duchi",
    "choices": "0.25:4:0.5,0.5:8:0.5",
    "batch": 4,
    "clients": 60,
    "rounds": 4,
    "share": 0.5,
    "fleet": "emulated:2",
}


def test_devices_pay_for_every_round_that_they_take_part_in(tmp_path, micropython):
    def stop(status):
        if status.round == 2 and status.reports > 5:
            raise KeyboardInterrupt

    path = tmp_path / "store.sqlite"
    with (
        rig.begin(**LOCAL, store=path, watcher=Watcher(status=stop)) as run,
        pytest.raises(InterruptedByUser),
    ):
        run.run()
    with Run.resume(str(path)) as run:
        result = run.run()
        assert run.algorithm.weights.any()
    assert (result["rounds"], result["reports"], result["stopped"]) == (4, 120, "rounds")
    assert result["bytes_per_report"] == 18
    low, high = result["classes"]
    assert result["epsilon_paid"] == high["epsilon_paid"] == 2 * high["epsilon_per_report"]
    # Each client takes part in two of the four rounds, and pays the price of its class.
    of_low = sum(class_of(range(1, 61), (0.5, 0.5), seed=1) == 0)
    assert 15 < of_low < 45
    assert result["epsilon_spent"] == [
        [low["epsilon_paid"], of_low],
        [high["epsilon_paid"], 60 - of_low],
    ]
    with Store(path) as store:
        rounds_by_device = Counter(
            device for number in range(1, 5) for device, _ in store.reports(number)
        )
    assert set(rounds_by_device.values()) == {2}


def test_a_run_scores_boards_whose_records_it_does_not_know(tmp_path, micropython):
    dataset = clustering.load("iris")
    rows = dataset.records(np.arange(0, 150, 4))
    path, directories = rig.provision(tmp_path, rows, Policy(4_000_000, 8_000_000))
    with EmulatedFleet(micropython, directories) as boards:
        options = {"epsilon": "4", "fleet": "port:" + boards.ports[0], "store": path}
        result, second = rig.finish("infer", **options), rig.finish("infer", **options)
        for _ in range(2):  # a refusal leaves no unfinished run
            with pytest.raises(RefusedError, match="cannot pay that: they have epsilon 0 left"):
                rig.finish("infer", **options)
    assert (result["reports"], result["agreement"], result["score_without_noise"]) == (
        38,
        None,
        None,
    )
    assert second["reports"] == 38
    assert (directories[0] / storage.CLIENTS).exists()
