"""FedAvg and personalised budgets over ptys, where the ledgers show what each device has paid; and refused runs."""

from collections import Counter
from unittest.mock import Mock

import pytest
import rig
from harness import kept

from tern.storage import FLEET
from ternhost.errors import InterruptedByUser, RefusedError, UsageError
from ternhost.learn.designs import class_of
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import fleet_file
from ternhost.run.run import Run
from ternhost.run.status import Watcher
from ternhost.store.store import Store
from terntools.emulators.unix_fleet import EmulatedFleet

LOCAL = {
    "algorithm": "fedavg", "dataset": "synthetic-logistic", "mechanism": "duchi", "choices": "0.25:4:0.5,0.5:8:0.5",
    "batch": 4, "clients": 60, "rounds": 4, "share": 0.5, "fleet": "emulated:2",
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("here")


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
    assert result["epsilon_per_client"] == high["epsilon_per_client"] == 2 * high["epsilon_per_report"]
    # Each client takes part in two of the four rounds, and pays the price of its class.
    of_low = sum(class_of(range(1, 61), (0.5, 0.5), seed=1) == 0)
    assert 15 < of_low < 45
    assert result["epsilon_spent"] == [
        [low["epsilon_per_client"], of_low],
        [high["epsilon_per_client"], 60 - of_low],
    ]
    with Store(path) as store:
        rounds_by_device = Counter(device for number in range(1, 5) for device, _ in store.reports(number))
    assert set(rounds_by_device.values()) == {2}


def test_personalised_budgets_are_kept_by_the_devices(tmp_path, micropython):
    result = rig.finish(epsilons="1:0.5,4:0.5", reports=80, group=40, fleet="emulated:2")
    spent = [of_class["epsilon_per_client"] for of_class in result["classes"]]
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
        "round 1: 10 of 20 devices refuse: a report would cost more than the epsilon of 1 that they allow for one, "
        "or needs a mechanism that they do not allow"
    ]
    (entry,) = result["history"]
    assert (entry["reports"], entry["refusals"]) == (10, 10)
    ledgers = rig.read_ledgers(directories)
    assert [ledgers[device][0] > 0 for device in range(1, 21)] == [False] * 10 + [True] * 10


def test_a_run_that_all_boards_refuse_does_not_keep_others_from_the_store(tmp_path, micropython):
    rows, policy = rig.random_rows(5, 40, 17), Policy(8_000_000, 80_000_000)
    path, directories = rig.provision(tmp_path, rows, policy, each=20)
    (directories[0] / FLEET).write_bytes(fleet_file(bytes(32), slot=335, records=20))
    with EmulatedFleet(micropython, directories) as boards:
        port = {**LOCAL, "fleet": "port:" + boards.ports[0], "rounds": 1, "share": 1.0, "store": path}
        with (
            rig.begin(**{**port, "clients": 3}) as run,
            pytest.raises(UsageError, match="the fleet has 2 devices, and the run needs 3") as caught,
        ):
            run.run()
        assert caught.value.hint == "ask for --clients 2"
        with (
            rig.begin(**{**port, "clients": 2, "local_epochs": 5}) as run,
            pytest.raises(RefusedError, match="might not fit their slot"),
        ):
            run.run()
        assert {spent for spent, _, _ in rig.read_ledgers(directories).values()} == {0}
        with pytest.raises(UsageError, match="has finished") as caught:
            Run.resume(str(path))
        assert "begin another" in caught.value.hint
        assert rig.finish(**{**port, "clients": 2, "local_epochs": 4})["reports"] == 2


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
            (1, "complete"), (2, "abandoned"), (3, "complete"),
        ]  # fmt: skip
