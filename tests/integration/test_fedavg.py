"""FedAvg, personalised budgets and HierA over ptys: real MicroPython computes, and its ledgers show what each paid."""

from collections import Counter

import numpy as np
import pytest
import rig

from tern.storage import FLEET
from ternhost.aggregate.store import Store
from ternhost.algorithms.base import FEDAVG
from ternhost.errors import InterruptedByUser, RefusedError, UsageError
from ternhost.fleet.attach import fleet_file
from ternhost.mechanisms.accounting import Policy
from ternhost.runs import inference_run, session
from ternhost.runs.directory import board_directories
from ternhost.runs.session import Options, Session, Watcher
from terntools.emulators.unix_fleet import EmulatedFleet

LOCAL = Options(
    algorithm=FEDAVG, dataset="synthetic-logistic", mechanism="duchi", choices="0.25:4:0.5,0.5:8:0.5", batch=4,
    clients=60, rounds=4, share=0.5, fleet="emulated:2",
)  # fmt: skip


def test_devices_train_and_pay_for_every_round_that_they_take_part_in(tmp_path, micropython):
    def stop(status):
        if status.round == 2 and status.reports > 5:
            raise KeyboardInterrupt

    path = tmp_path / "store.sqlite"
    with Session.begin(LOCAL, path, Watcher(status=stop)) as run, pytest.raises(InterruptedByUser):
        run.run()
    with Session.resume(path) as run:
        result = run.run()
        assert run.trainer.model.any()
    assert (result["rounds"], result["reports"], result["stopped"]) == (4, 120, "rounds")
    assert result["bytes_per_report"] == 18
    low, high = result["classes"]
    assert (low["clients"], high["clients"]) == (30, 30)
    assert result["epsilon_per_client"] == high["epsilon_per_client"] == 2 * high["epsilon_per_report"]
    # each client takes part in two of the four rounds, and pays the price of its class for it
    assert result["epsilon_spent"] == [[low["epsilon_per_client"], 30], [high["epsilon_per_client"], 30]]
    with Store(path) as store:
        taken = Counter(device for number in range(1, 5) for device, _ in store.reports(number))
    assert set(taken.values()) == {2}


def test_personalised_budgets_are_kept_by_the_devices(tmp_path, micropython):
    options = Options(epsilons="1:0.5,4:0.5", reports=80, group=40, fleet="emulated:2")
    with Session.begin(options, tmp_path / "store.sqlite") as run:
        result = run.run()
    spent = [own["epsilon_per_client"] for own in result["classes"]]
    assert result["epsilon_spent"] == [[spent[0], 40], [spent[1], 40]]
    assert all(
        epsilon == pytest.approx(asked, abs=1e-4) for epsilon, asked in zip(spent, (1, 4), strict=True)
    )
    assert result["reports"] == 80


def test_a_device_of_a_small_epsilon_refuses_the_card_of_another(tmp_path, micropython):
    directories = board_directories(tmp_path, 1)
    rows = np.random.default_rng(5).integers(-16384, 16385, (20, 29), dtype=np.int16)
    policies = [Policy(1_000_000, 5_000_000)] * 10 + [Policy(4_000_000, 5_000_000)] * 10
    with Store(tmp_path / "store.sqlite") as store:
        session.provision_fleet(store, directories, rows, policies)
    with EmulatedFleet(micropython, directories) as boards:
        options = Options(epsilon="4", reports=20, fleet="port:" + boards.ports[0])
        said = []
        with Session.begin(options, tmp_path / "store.sqlite", Watcher(warn=said.append)) as run:
            result = run.run()
    assert said == [
        "round 1: 10 of 20 devices refuse: a report would cost more than the epsilon of 1 that they allow for one"
    ]
    (entry,) = result["history"]
    assert (entry["reports"], entry["refusals"]) == (10, 10)
    ledgers = rig.read_ledgers(directories)
    assert [ledgers[device][0] > 0 for device in range(1, 21)] == [False] * 10 + [True] * 10


def test_boards_of_too_few_clients(tmp_path, micropython):
    site = rig.make_site(tmp_path, micropython, clients=10, boards=1)
    site.store.close()
    with site.boards() as boards:
        options = Options(**{**vars(LOCAL), "fleet": "port:" + boards.ports[0]})
        with (
            Session.begin(options, tmp_path / "store.sqlite") as run,
            pytest.raises(Exception, match="the fleet has 10 devices, and the run needs 60") as caught,
        ):
            run.run()
        assert caught.value.hint == "ask for --clients 10"


def test_a_run_that_all_boards_refuse_does_not_keep_others_from_the_store(tmp_path, micropython):
    rows = np.random.default_rng(5).integers(-16384, 16385, (40, 17), dtype=np.int16)
    directories = board_directories(tmp_path / "elsewhere", 1)
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        session.provision_fleet(store, directories, rows, Policy(8_000_000, 80_000_000), 20)
    (directories[0] / FLEET).write_bytes(fleet_file(bytes(32), slot=100))
    with EmulatedFleet(micropython, directories) as boards:
        port = {**vars(LOCAL), "fleet": "port:" + boards.ports[0], "rounds": 1, "share": 1.0}
        with (
            Session.begin(Options(**{**port, "clients": 3}), path) as run,
            pytest.raises(UsageError, match="has 2 devices, and the run needs 3"),
        ):
            run.run()
        with (
            Session.begin(Options(**{**port, "clients": 2, "local_epochs": 5}), path) as run,
            pytest.raises(RefusedError, match="might not fit their slot: 80 epochs times records do"),
        ):
            run.run()
        assert {spent for spent, _, _ in rig.read_ledgers(directories).values()} == {0}
        with pytest.raises(UsageError, match="has finished") as caught:
            Session.resume(path)
        assert "begin another" in caught.value.hint
        with Session.begin(Options(**{**port, "clients": 2, "local_epochs": 4}), path) as run:
            assert run.run()["reports"] == 2


def test_boards_of_another_data_set_refuse_to_train_on_it(tmp_path, micropython):
    site = rig.make_site(tmp_path, micropython, clients=60, boards=1)
    site.store.close()
    with site.boards() as boards:
        options = Options(**{**vars(LOCAL), "fleet": "port:" + boards.ports[0]})
        with (
            Session.begin(options, tmp_path / "store.sqlite") as run,
            pytest.raises(RefusedError, match="another dimension"),
        ):
            run.run()
    assert {spent for spent, _, _ in site.ledgers().values()} == {0}


def test_a_run_with_boards_of_its_own_is_to_be_resumed(tmp_path, micropython):
    path = tmp_path / "store.sqlite"
    Session.begin(Options(reports=30, fleet="emulated:1"), path).store.close()
    with pytest.raises(UsageError, match="has not finished"):
        Session.begin(Options(reports=20, fleet="emulated:1"), path)
    with Session.resume(path) as run:
        assert run.run()["reports"] == 30


def test_the_rounds_of_a_store_are_one_runs_at_a_time(tmp_path, micropython):
    rows = np.random.default_rng(5).integers(-16384, 16385, (20, 29), dtype=np.int16)
    directories = board_directories(tmp_path / "elsewhere", 1)
    path = tmp_path / "store.sqlite"
    with Store(path) as store:
        session.provision_fleet(store, directories, rows, Policy(2_000_000, 80_000_000))

    def stop(status):
        raise KeyboardInterrupt

    with EmulatedFleet(micropython, directories) as boards:
        options = Options(reports=20, fleet="port:" + boards.ports[0])
        with Session.begin(options, path, Watcher(status=stop)) as run, pytest.raises(InterruptedByUser):
            run.run()
        asked = inference_run.Options(dataset="flights", fleet=options.fleet)
        for begin in (lambda: Session.begin(options, path), lambda: inference_run.begin(asked, path)):
            with pytest.raises(UsageError, match="has not finished") as caught:
                begin()
            assert f"tern train --resume {path}; or end it with --anew" in caught.value.hint
    with EmulatedFleet(micropython, directories) as boards:  # at another port
        port = "port:" + boards.ports[0]
        with pytest.raises(UsageError, match="keeps its fleet"):
            Session.resume(path, ports="emulated:1")
        with Session.resume(path, ports=port) as run:
            assert run.run()["reports"] == 20
        options = Options(reports=20, fleet=port)
        with Session.begin(options, path, Watcher(status=stop)) as run, pytest.raises(InterruptedByUser):
            run.run()
        with Session.begin(options, path, anew=True) as run:
            assert run.run()["reports"] == 20
    with Store(path) as store:
        assert [(number, ended) for number, ended, _ in store.ended_rounds()] == [
            (1, "complete"), (2, "abandoned"), (3, "complete"),
        ]  # fmt: skip


def test_hiera_on_devices(tmp_path, micropython):
    options = Options(
        algorithm="hiera", dataset="synthetic-linear", model="linear", epsilon="9", budgets="3,2,1", reports=80,
        fleet="emulated:2",
    )  # fmt: skip
    with Session.begin(options, tmp_path / "store.sqlite") as run:
        result = run.run()
    assert result["reports"] == 80
    assert result["epsilon_spent"] == [[result["epsilon_per_client"], 80]]
    assert result["epsilon_stated"] < result["epsilon_per_client"] <= 9
    assert result["levels"] == 6
