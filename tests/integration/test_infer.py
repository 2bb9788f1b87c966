"""Protected inference over ptys: MicroPython classifies, adds noise and reports; an interrupted run is resumed."""

import numpy as np
import pytest
import rig

from tern import card as cards
from tern import storage
from ternhost.count import batches, estimate
from ternhost.errors import InterruptedByUser, RefusedError, StorageError
from ternhost.learn import clustering
from ternhost.privacy.accounting import Policy
from ternhost.run.status import Watcher
from ternhost.store.store import Store
from terntools.emulators.unix_fleet import EmulatedFleet

pytestmark = pytest.mark.usefixtures("here")


def test_the_score_comes_from_the_reports_that_the_boards_paid_for(tmp_path, micropython):
    words = ("--dataset", "iris", "--epsilon", 20, "--fleet", "emulated:2", "--no-report", "--json")
    done = rig.tern("infer", *words)
    assert "75/75 reports" in done.err
    result = done.json
    assert (result["reports"], result["asked"], result["refusals"]) == (75, 75, 0)
    assert (result["epsilon_true"], result["bytes_per_report"]) == (20, 22)
    # As the ledgers show, the vector was paid for once.
    assert result["epsilon_spent"] == [[result["epsilon_per_client"], 75]]
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
    assert result["epsilon_spent"] == [[result["epsilon_per_client"], 75]]
    assert result["agreement"] > 0.9  # .995 expected


def test_an_interrupted_run_is_resumed_and_each_device_pays_once(tmp_path, micropython):
    def stop(status):
        if status.reports:
            raise KeyboardInterrupt

    path = tmp_path / "store.sqlite"
    with pytest.raises(InterruptedByUser) as caught:
        rig.finish(
            "infer", epsilon="4", fleet="emulated:2", cluster_client_num=60, store=path, name="one",
            watcher=Watcher(status=stop),
        )  # fmt: skip
    assert caught.value.hint == "go on with: tern infer --resume one"
    result = rig.resume("one")
    assert (result["reports"], result["epsilon_spent"]) == (60, [[result["epsilon_per_client"], 60]])
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
            with pytest.raises(RefusedError, match="budget is spent"):
                rig.finish("infer", **options)
    assert (result["reports"], result["agreement"], result["score_without_noise"]) == (38, None, None)
    assert second["reports"] == 38
    assert (directories[0] / storage.CLIENTS).exists()


def test_a_result_that_could_not_be_written_is_made_from_the_same_reports(tmp_path, micropython):
    run = tmp_path / "runs" / "one"

    def obstruct(status):
        (run / "result.json").mkdir(exist_ok=True)

    with pytest.raises(StorageError) as caught:
        rig.finish(
            "infer", epsilon="4", fleet="emulated:2", cluster_client_num=60, name="one",
            watcher=Watcher(status=obstruct),
        )  # fmt: skip
    assert "--resume" in caught.value.hint
    (run / "result.json").rmdir()
    with Store(run / "store.sqlite") as store:
        before = store.reports(1)
    result = rig.resume("one")
    assert (result["reports"], result["epsilon_spent"]) == (60, [[result["epsilon_per_client"], 60]])
    with Store(run / "store.sqlite") as store:
        assert store.reports(1) == before
        assert store.reports(2) == []
    assert rig.resume("one")["clusters"] == result["clusters"], "its result again"
