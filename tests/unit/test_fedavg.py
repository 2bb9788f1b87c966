"""PLDP-FL: models learn, means are unbiased whatever clients choose, costs are known before a run."""

import numpy as np
import pytest

from tern import wire
from ternhost import datasets
from ternhost.algorithms import averaging as fedavg
from ternhost.algorithms.averaging import Choice, Settings
from ternhost.errors import RefusedError, UsageError

LOOSE = (Choice(1.0, "20"),)


def _line(n: int = 24_000, seed: int = 5) -> datasets.Dataset:
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, 3))], axis=1)
    labels = np.where(x @ [0.2, 1, -1, 0.5] + rng.normal(0, 0.2, n) > 0, 1, -1)
    return datasets.Dataset(
        "line",
        datasets.CLASSIFICATION,
        ("1", "a", "b", "c"),
        datasets.to_fixed(x),
        datasets.to_fixed(labels),
        datasets.held_out(n),
    )


DATA = _line()


@pytest.mark.parametrize("mechanism", ["pdpm", "duchi", "three-outputs"])
def test_models_learn(mechanism: str) -> None:
    settings = Settings(wire.LOGISTIC, LOOSE, rounds=15, gamma=0.2, mechanism=mechanism, k=1)
    heard = []
    result = fedavg.run(settings, DATA, 8, report=lambda number, judged: heard.append((number, judged)))
    assert result["accuracy"] > (0.8 if mechanism == "pdpm" else 0.88)
    assert result["accuracy_nonprivate"] > 0.9
    assert result["accuracy_nonprivate"] >= result["accuracy"] - 0.02
    assert [number for number, _ in heard] == list(range(1, 16))
    assert [judged for _, judged in heard] == result["history"]
    assert result["clients"] == int((~DATA.held_out).sum()) // 8


@pytest.mark.parametrize("weights", ["clients", "variance"])
def test_changes_are_unbiased_whatever_clients_choose(weights: str) -> None:
    choices = (Choice(0.5, "2", 0.5), Choice(1.0, "8", 0.25), Choice(0.75, "4", 0.25))
    settings = Settings(wire.LOGISTIC, choices, weights=weights, k=2, mechanism="duchi")
    positions = fedavg.deal(DATA, 4, 1)
    clients = np.arange(len(positions))
    classes = fedavg.divide(settings, len(positions), 2, 1)
    mantissas = np.zeros(4, np.int64)
    exact = fedavg._moves(settings, DATA, positions, clients, mantissas).mean(axis=0) * fedavg._FINE
    found = []
    for seed in range(60):
        change, clipped = fedavg._private_change(
            settings, DATA, positions, clients, classes, mantissas, 2, fedavg.random_bits(seed)
        )
        assert clipped == 0
        found.append(change)
    error = np.std(found, axis=0) / 60**0.5
    assert (abs(np.mean(found, axis=0) - exact) < 4.5 * error + 2e-3).all()


def test_inverse_variance_has_less_noise() -> None:
    choices = (Choice(0.5, "1", 0.5), Choice(0.5, "8", 0.5))
    positions = fedavg.deal(DATA, 4, 1)
    spread = {}
    for weights in fedavg.WEIGHTS:
        settings = Settings(wire.LOGISTIC, choices, weights=weights, mechanism="duchi")
        classes = fedavg.divide(settings, len(positions), 4, 1)
        found = [
            fedavg._private_change(
                settings,
                DATA,
                positions,
                np.arange(3000),
                classes,
                np.zeros(4, np.int64),
                4,
                fedavg.random_bits(seed),
            )[0]
            for seed in range(40)
        ]
        spread[weights] = np.std(found, axis=0).mean()
    assert spread["variance"] < 0.7 * spread["clients"]


def test_costs_compose_over_weights_and_rounds() -> None:
    settings = Settings(wire.LOGISTIC, (Choice(0.5, "2", 0.5), Choice(0.5, "6", 0.5)), rounds=25, gamma=0.1)
    accounts = fedavg.plan(settings, 1000, 4)
    low, high = (account.user_level for account in accounts.values())
    assert (
        0.999 * 6_000_000 < low <= 6_000_000
    )  # 3 rounds of 25 in which it takes part, 4 weights at 0.5 each
    assert 0.999 * 18_000_000 < high <= 18_000_000
    assert fedavg.budget_for(settings, 1000, 4) == high / 1e6


def test_nobody_takes_part_more_often_than_planned() -> None:
    for clients, group, rounds in ((10, 3, 17), (1000, 100, 25), (7, 7, 3), (5, 1, 4)):
        turns = fedavg.turns(clients, group, rounds, 3)
        assert [len(set(turn.tolist())) for turn in turns] == [group] * rounds
        times = np.bincount(np.concatenate(turns), minlength=clients)
        assert times.max() - times.min() <= 1


def test_a_run_beyond_the_budget_does_not_start() -> None:
    heard: list[int] = []
    settings = Settings(wire.LOGISTIC, LOOSE, rounds=30, gamma=0.5, budget=100_000_000)
    with pytest.raises(RefusedError, match="cost each client epsilon 300"):
        fedavg.run(settings, DATA, 8, report=lambda number, judged: heard.append(number))
    assert not heard


def test_a_range_that_is_too_small_clips() -> None:
    settings = Settings(wire.LOGISTIC, (Choice(0.001, "20"),), rounds=3, k=1, mechanism="duchi")
    assert fedavg.run(settings, DATA, 8)["clipped"] > 0.5


@pytest.mark.parametrize("mode", fedavg.MODES)
def test_modes(mode: str) -> None:
    settings = Settings(wire.LOGISTIC, fedavg.MODES[mode], rounds=4, gamma=0.5)
    result = fedavg.run(settings, DATA, 8)
    assert len(result["accounting"]) == len(fedavg.MODES[mode])
    assert 0 <= result["accuracy"] <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"gamma": 0},
        {"gamma": 1.1},
        {"weights": "size"},
        {"choices": ()},
        {"choices": (Choice(1, "1", 0.4),)},
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Settings(**{"model": wire.LOGISTIC, "choices": LOOSE, **wrong})


def test_runs_that_cannot_be() -> None:
    for settings, records in (
        (Settings(wire.LOGISTIC, LOOSE, k=5), 4),
        (Settings(wire.LOGISTIC, (Choice(1e-9, "1"),)), 4),
        (Settings(wire.LOGISTIC, (Choice(100, "1"),)), 4),
        (Settings(wire.LOGISTIC, LOOSE, batch=33), 40),
        (Settings(wire.LOGISTIC, LOOSE), 10**6),
    ):
        with pytest.raises(UsageError):
            fedavg.run(settings, DATA, records)
