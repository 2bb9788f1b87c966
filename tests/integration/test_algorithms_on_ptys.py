"""Algorithms over ptys.

`tern collect`: MicroPython reports values, categories and levels, and its ledgers show their cost.
Then protected inference, and FedAvg.
"""

from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
import rig
from beside import needs_papers
from harness import kept

from tern import card as cards
from tern import storage
from ternhost import datasets
from ternhost.count import batches
from ternhost.errors import InterruptedByUser, RefusedError, StorageError, UsageError
from ternhost.learn import clustering, estimate
from ternhost.learn.designs import class_of
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import fleet_file
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


def test_emulated_boards_with_a_unit_tell_the_sums_of_their_records(micropython):
    words = (
        "--unit 10 --dataset wine --records 60 --life 1000 --fleet emulated:2 --no-report --json"
    )
    result = rig.tern("collect", *words.split()).json
    assert (result["algorithm"], result["reports"], result["unit"]) == ("means", 2, 10)
    assert result["records"] == pytest.approx(120, abs=8 * result["records_error"])
    for entry in result["attributes"]:
        assert (
            abs(entry["mean"] - entry["true"])
            < 3 * (entry["interval"][1] - entry["interval"][0])
            < 2
        ), entry


TOWNS = "AGE,TOWN\n" + "".join(f"30,{i}\n" for i in range(60)) + "30,41\n" * 240


@needs_papers
def test_the_host_decodes_what_boards_hash(tmp_path, micropython):
    (tmp_path / "people.csv").write_text(TOWNS)
    result = rig.finish("collect", dataset="ipums:people.csv", epsilon="2.5", fleet="emulated:2")
    assert [part["mechanism"] for part in result["parts"]] == ["three-outputs", "olh"]
    _, towns = result["attributes"]
    at = towns["categories"].index("41")
    assert np.argmax(towns["frequencies"]) == at
    low, high = towns["intervals"][at]
    assert low - 0.1 < 241 / 300 < high + 0.1, "240 rows, and one of the first 60"
    assert np.abs(np.delete(towns["frequencies"], at)).max() < 0.3


def test_the_constant_feature_of_a_data_set_is_not_asked_for(tmp_path, micropython):
    wine = datasets.load("wine")
    rows = np.repeat(
        wine.records([3]), 300, axis=0
    )  # of one record, so that its values are the means
    store, directories = rig.provision(tmp_path, rows, Policy(500_000_000, 500_000_000))
    with EmulatedFleet(micropython, directories) as boards:
        fleet = "port:" + boards.ports[0]
        result = rig.finish("collect", dataset="wine", epsilon="20", fleet=fleet, store=store)
    (part,) = result["parts"]
    assert (part["d"], part["reports"]) == (13, 300)
    assert [entry["name"] for entry in result["attributes"]] == list(wine.feature_names[1:])
    means = [entry["mean"] for entry in result["attributes"]]
    error = np.abs(means - wine.features[3, 1:] / 16384).max()
    assert error < 0.4, means  # five standard errors or more


# Protected inference over ptys: MicroPython classifies, adds noise and reports; an interrupted run
# is resumed


def test_the_score_comes_from_the_reports_that_the_boards_paid_for(tmp_path, micropython):
    words = ("--dataset", "iris", "--epsilon", 20, "--fleet", "emulated:2", "--no-report", "--json")
    done = rig.tern("infer", *words)
    assert "75/75 reports" in done.err
    result = done.json
    assert (result["reports"], result["asked"], result["refusals"]) == (75, 75, 0)
    assert (result["epsilon_true"], result["bytes_per_report"]) == (20, 22)
    # As the ledgers show, the vector was paid for once.
    assert result["epsilon_spent"] == [[result["epsilon_paid"], 75]]
    assert result["agreement"] > 0.75  # at least 0.91 in 15 runs; a third by guessing
    assert 0.3 < result["score"] < result["score_without_noise"]
    # The reports in the store are those in the ledgers, and give the score.
    directory = tmp_path / result["directory"]
    card = cards.decode(bytes.fromhex(result["card"]))
    ledgers = rig.ledgers_of_run(directory)
    with Store(directory / "store.sqlite", create=False) as store:
        reports = store.reports(1)
    assert all(ledgers[device] == (card.epsilon, 1, payload) for device, payload in reports)
    packed = np.array([list(payload) for _, payload in reports], np.uint8)
    symbols, valid = batches.unpack(packed, 3, card.symbols)
    vectors = estimate.symbol_values(card)[symbols]
    assert valid.all()
    score = clustering.score("SILHOUETTE_SCORE", vectors, vectors.argmax(axis=1))
    assert score == pytest.approx(result["score"])
    assert np.abs(vectors.sum(axis=1).mean() - 1) < 0.2  # the noise has mean 0


def test_boards_report_labels_that_agree_with_the_clusters(tmp_path, micropython):
    result = rig.finish("infer", dataset="iris", epsilon="6", answer="label", fleet="emulated:2")
    assert (result["reports"], result["refusals"], result["bytes_per_report"]) == (75, 0, 18)
    assert result["epsilon_spent"] == [[result["epsilon_paid"], 75]]
    assert result["agreement"] > 0.9  # .995 expected


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


def test_a_result_that_could_not_be_written_is_made_from_the_same_reports(tmp_path, micropython):
    run = tmp_path / "runs" / "one"

    def obstruct(status):
        (run / "result.json").mkdir(exist_ok=True)

    with pytest.raises(StorageError) as caught:
        rig.finish(
            "infer",
            epsilon="4",
            fleet="emulated:2",
            cluster_client_num=60,
            name="one",
            watcher=Watcher(status=obstruct),
        )
    assert "--resume" in caught.value.hint
    (run / "result.json").rmdir()
    with Store(run / "store.sqlite") as store:
        before = store.reports(1)
    result = rig.resume("one")
    assert (result["reports"], result["epsilon_spent"]) == (60, [[result["epsilon_paid"], 60]])
    with Store(run / "store.sqlite") as store:
        assert store.reports(1) == before
        assert store.reports(2) == []
    assert rig.resume("one")["clusters"] == result["clusters"], "its result again"


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


def test_personalised_budgets_are_kept_by_the_devices(tmp_path, micropython):
    result = rig.finish(epsilons="1:0.5,4:0.5", reports=80, group=40, fleet="emulated:2")
    spent = [of_class["epsilon_paid"] for of_class in result["classes"]]
    of_low = sum(class_of(range(1, 81), (0.5, 0.5), seed=1) == 0)
    assert result["epsilon_spent"] == [[spent[0], of_low], [spent[1], 80 - of_low]]
    assert spent == pytest.approx([1, 4], abs=1e-4)
    assert result["reports"] == 80


def test_a_device_of_a_small_epsilon_refuses_the_card_of_another(tmp_path, micropython):
    policies = [Policy(1_000_000, 5_000_000)] * 10 + [Policy(4_000_000, 5_000_000)] * 10
    path, directories = rig.provision(tmp_path, rig.random_rows(5, 20, 29), policies)
    warnings = []
    with EmulatedFleet(micropython, directories) as boards:
        fleet, watcher = "port:" + boards.ports[0], Watcher(warn=warnings.append)
        result = rig.finish(epsilon="4", reports=20, fleet=fleet, store=path, watcher=watcher)
    assert warnings == [
        "round 1: 10 of 20 devices refuse: a report would cost more than they allow for one, 1, "
        "or needs a mechanism that they do not allow"
    ]
    (entry,) = result["history"]
    assert (entry["reports"], entry["refusals"]) == (10, 10)
    ledgers = rig.read_ledgers(directories)
    assert [ledgers[device][0] > 0 for device in range(1, 21)] == [False] * 10 + [True] * 10


def test_a_run_that_all_boards_refuse_does_not_keep_others_from_the_store(tmp_path, micropython):
    rows, policy = rig.random_rows(5, 40, 17), Policy(8_000_000, 80_000_000)
    path, directories = rig.provision(tmp_path, rows, policy, each=20)
    (directories[0] / storage.FLEET).write_bytes(fleet_file(bytes(32), slot=335, records=20))
    with EmulatedFleet(micropython, directories) as boards:
        port = {
            **LOCAL,
            "fleet": "port:" + boards.ports[0],
            "rounds": 1,
            "share": 1.0,
            "store": path,
        }
        with (
            rig.begin(**{**port, "clients": 3}) as run,
            pytest.raises(
                UsageError, match="the fleet has 2 devices, and the run needs 3"
            ) as caught,
        ):
            run.run()
        assert caught.value.hint == "ask for --clients 2"
        with (
            rig.begin(**{**port, "clients": 2, "local_epochs": 5}) as run,
            pytest.raises(RefusedError, match="might not fit their slot"),
        ):
            run.run()
        assert {spent for spent, _, _ in rig.read_ledgers(directories).values()} == {0}
        with pytest.raises(UsageError, match="holds no run"):  # it was taken back
            Run.resume(str(path))
        assert rig.finish(**{**port, "clients": 2, "local_epochs": 4})["reports"] == 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "collect", "dataset": "wine", "epsilon": "1"},
        {"algorithm": "infer", "dataset": "iris", "epsilon": "4"},
        LOCAL,
    ],
    ids=lambda options: options["algorithm"],
)
def test_boards_that_hold_another_data_set_refuse_and_pay_nothing(tmp_path, micropython, options):
    policy = {"largest": 30_000_000, "budget": 32_000_000}
    site = rig.make_site(tmp_path, micropython, clients=60, boards=1, **policy)
    site.store.close()
    with site.boards() as boards:
        options = {**options, "fleet": "port:" + boards.ports[0]}
        with pytest.raises(RefusedError, match=r"another dimension \(6\)"):
            rig.finish(**options, store=site.store.path)
    assert {spent for spent, _, _ in site.ledgers().values()} == {0}


def test_a_run_that_has_asked_no_device_yet_can_be_resumed_or_replaced(tmp_path, micropython):
    path = tmp_path / "store.sqlite"
    rig.begin(reports=30, fleet="emulated:1", store=path).store.close()
    assert rig.resume(path)["reports"] == 30
    rig.begin(reports=30, fleet="emulated:1", store=path).store.close()
    assert rig.finish(reports=20, fleet="emulated:1", store=path)["reports"] == 20


def test_a_store_has_one_unfinished_run_at_a_time(tmp_path, micropython):
    rows, policy = rig.random_rows(5, 20, 29), Policy(2_000_000, 80_000_000)
    path, directories = rig.provision(tmp_path, rows, policy)
    watcher = Watcher(status=Mock(side_effect=KeyboardInterrupt))
    with EmulatedFleet(micropython, directories) as boards:
        port = "port:" + boards.ports[0]
        with rig.begin(reports=20, fleet=port, store=path, watcher=watcher) as run:
            name = run.files.name
            with pytest.raises(InterruptedByUser):
                run.run()
        for options in ({"reports": 20}, {"algorithm": "infer", "dataset": "flights"}):
            with pytest.raises(UsageError, match="has not finished") as caught:
                rig.begin(**options, fleet=port, store=path)
            assert f"tern train --resume {name}; or abandon it with --anew" in caught.value.hint
    with EmulatedFleet(micropython, directories) as boards:  # at another port
        port = "port:" + boards.ports[0]
        with pytest.raises(UsageError, match="keeps its fleet"):
            Run.resume(name, fleet_now="emulated:1")
        assert rig.resume(name, fleet_now=port)["reports"] == 20
        with (
            rig.begin(reports=20, fleet=port, store=path, watcher=watcher) as run,
            pytest.raises(InterruptedByUser),
        ):
            run.run()
        assert rig.finish(reports=20, fleet=port, store=path, anew=True)["reports"] == 20
    with Store(path) as store:
        assert [(number, ended) for number, ended, _ in kept.ended_rounds(store)] == [
            (1, "complete"),
            (2, "abandoned"),
            (3, "complete"),
        ]
