"""Simulated fleets: what they tell is what a fleet of devices would tell, and a run over them trains."""

from array import array
from pathlib import Path

import numpy as np
import pytest

from tern import gradient as gradients
from tern import wire
from tern.card import decode
from ternhost import datasets, fleet, vectorised
from ternhost.aggregate import estimate
from ternhost.aggregate.questions import Question
from ternhost.algorithms import training
from ternhost.cli import main
from ternhost.drivers.simulated import (
    SimulatedFleet,
    collect_values,
    combined_variance,
    count,
    lanes_at_a_time,
    train,
)
from ternhost.errors import RefusedError, UsageError
from ternhost.mechanisms import design
from ternhost.runs.session import Options, Session, Status, Watcher


def _dataset(n: int = 4000, d: int = 5, seed: int = 3) -> datasets.Dataset:
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.ones((n, 1)), rng.uniform(-1, 1, (n, d - 1))], axis=1)
    labels = np.where(x @ np.arange(d - 1, -1, -1) * np.where(np.arange(n) % 20, 1, -1) > d - 1, 1, -1)
    return datasets.Dataset(
        "toy",
        datasets.CLASSIFICATION,
        tuple(f"x{i}" for i in range(d)),
        datasets.to_fixed(x),
        datasets.to_fixed(labels),
        datasets.held_out(n),
    )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> datasets.Dataset:
    data = _dataset()
    monkeypatch.setattr(datasets, "load", lambda name: data)
    return data


def _question(k: int, card: bytes, d: int = 5) -> Question:
    return Question(wire.LOGISTIC, array("h", range(0, 900 * d, 900)), -12, card, k)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("mechanism", ["three-outputs", "pm-sub"])
def test_counts_estimate_the_mean_gradient(k: int, mechanism: str) -> None:
    data = _dataset()
    records = data.records(np.arange(len(data.labels)))
    card = design(mechanism, 4, 15 if mechanism == "pm-sub" else None).card
    clients = np.repeat(np.arange(len(records)), 25)
    result = SimulatedFleet(records, seed=8).collect(1, [(_question(k, card), clients)])
    assert result.reports == result.asked == len(clients)
    counts = result.cohorts[0].counts
    assert counts.sum() == k * len(clients)
    if k == 5:
        assert (counts.sum(axis=1) == len(clients)).all()

    device = gradients.Gradient(5)
    exact, out = np.zeros(5), array("h", bytes(10))
    for row in records:
        device.reset()
        device.add(wire.LOGISTIC, array("h", range(0, 4500, 900)), -12, array("h", row.tolist()))
        device.finish(out)
        exact += np.array(out) / 16384
    found = estimate.estimate(decode(card), counts)
    assert (abs(found.mean - exact / len(records)) < 4.5 * found.standard_error).all()
    assert found.standard_error.max() < 0.05


def test_a_round_is_repeated_by_its_seed_and_differs_from_the_next() -> None:
    data = _dataset()
    simulated = SimulatedFleet(data.records(np.arange(4000)), seed=5)
    cohorts = [(_question(1, design("duchi", 1).card), np.arange(3000))]
    first, again = (simulated.collect(7, cohorts).cohorts[0].counts for _ in range(2))
    other = simulated.collect(8, cohorts).cohorts[0].counts
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_cohorts_keep_their_cards() -> None:
    data = _dataset()
    simulated = SimulatedFleet(data.records(np.arange(4000)))
    cards = [design("duchi", 1).card, design("three-outputs", 2).card]
    cohorts = [
        (_question(1, cards[0]), np.arange(1000)),
        (_question(2, cards[1]), np.arange(1000, 4000)),
    ]
    heard = []
    result = simulated.collect(1, cohorts, heard.append)
    assert [cohort.card.data for cohort in result.cohorts] == cards
    assert [int(cohort.counts.sum()) for cohort in result.cohorts] == [1000, 6000]
    assert heard[-1].reports == heard[-1].asked == 4000


def test_a_card_that_does_not_certify_is_refused() -> None:
    data = _dataset()
    card = bytearray(design("duchi", 1).card)
    card[1:5] = (999_000).to_bytes(4, "little")
    with pytest.raises(RefusedError, match="does not keep"):
        SimulatedFleet(data.records(np.arange(100))).collect(1, [(_question(1, bytes(card)), np.arange(100))])
    with pytest.raises(RefusedError, match="does not keep"):
        collect_values(decode(bytes(card)), [np.zeros((5, 2), np.int16)])


def test_a_question_that_no_frame_can_carry() -> None:
    data = _dataset()
    with pytest.raises(UsageError, match="cannot be asked"):
        SimulatedFleet(data.records(np.arange(100))).collect(
            1, [(_question(6, design("duchi", 1).card), np.arange(100))]
        )


def test_values_in_chunks_of_any_size() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(-16384, 16385, (60_000, 3)).astype(np.int16)
    card = decode(design("three-outputs", 2).card)
    heard: list[int] = []
    for chunks in ([values], np.array_split(values, 7)):
        found = collect_values(card, chunks, k=2, seed=3, report=heard.append)
        assert heard[-1] == found.reports == 60_000
        assert found.counts.sum() == 120_000
        result = estimate.estimate(card, found.counts)
        assert (abs(result.mean - values.mean(axis=0) / 16384) < 4.5 * result.standard_error).all()


def test_memory_is_bounded_whatever_the_width() -> None:
    assert lanes_at_a_time(1) <= 1 << 17
    assert lanes_at_a_time(128) * 128 <= 1 << 21
    assert lanes_at_a_time(1 << 30) == 1


def test_count_counts() -> None:
    chosen = np.array([[0, 2], [1, 2], [0, 1]], np.uint8)
    drawn = np.array([[1, 0], [1, 1], [1, 0]], np.uint8)
    assert count(3, 2, chosen, drawn).tolist() == [[0, 2], [1, 1], [1, 1]]


def test_names_of_fleets() -> None:
    assert fleet.parse("simulated:1000000") == fleet.FleetSpec("simulated", 1_000_000)
    for name in (
        "simulated",
        "simulated:",
        "simulated:0",
        "simulated:-1",
        "simulated:1e6",
        "simulated:9999999999",
    ):
        with pytest.raises(UsageError, match="fleet"):
            fleet.parse(name)


def test_a_run_trains_and_is_repeatable(toy: datasets.Dataset, tmp_path: Path) -> None:
    results = []
    for name in ("a", "b"):
        options = Options(dataset="toy", fleet="simulated:3500", reports=3500, group=100, epsilon="8", seed=2)
        with Session.begin(options, tmp_path / name) as session:
            results.append(session.run())
    assert results[0]["weights"] == results[1]["weights"]
    assert results[0]["reports"] == 3500
    assert results[0]["rounds"] == 35
    assert results[0]["accuracy"] > results[0]["accuracy_baseline"] + 0.05
    assert results[0]["epsilon_per_client"] <= 8


def test_small_groups_whose_estimate_is_often_zero_use_all_reports(
    toy: datasets.Dataset, tmp_path: Path
) -> None:
    options = Options(dataset="toy", fleet="simulated:300", reports=300, group=1, epsilon="1")
    with Session.begin(options, tmp_path / "store.sqlite") as session:
        result = session.run()
    assert (result["reports"], result["stopped"]) == (300, "rounds")


def test_more_clients_than_records(toy: datasets.Dataset) -> None:
    groups = training.choose_simulated_groups(toy, 20_000, 12_000, 1000, 1)
    assert sum(len(group) for group in groups) == 12_000
    times = np.bincount(np.concatenate(groups), minlength=4000)
    assert set(times[toy.training]) == {3, 4}
    assert not times[toy.test].any()
    with pytest.raises(UsageError, match="cannot give"):
        training.choose_simulated_groups(toy, 10, 11, 5, 1)


def test_a_run_goes_on_after_it_was_interrupted(toy: datasets.Dataset, tmp_path: Path) -> None:
    options = Options(dataset="toy", fleet="simulated:2000", reports=2000, group=100, epsilon="4")
    with Session.begin(options, tmp_path / "whole") as session:
        whole = session.run()

    def stop(status: Status) -> None:
        if status.round == 5 and status.ended:
            raise KeyboardInterrupt

    with (
        Session.begin(options, tmp_path / "broken", Watcher(status=stop)) as session,
        pytest.raises(Exception, match="500 reports so far are safe"),
    ):
        session.run()
    with Session.resume(tmp_path / "broken") as session:
        resumed = session.run()
    assert resumed["weights"] == whole["weights"]
    assert len(resumed["history"]) == 20


def test_simulated_clients_have_no_boards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["device", "info", "--fleet", "simulated:5"]) == 2
    assert "simulated clients have no boards" in capsys.readouterr().err


def test_personalised_budgets_learn_more_than_their_lowest(toy: datasets.Dataset) -> None:
    strict, loose = (decode(design("three-outputs", epsilon).card) for epsilon in (0.5, 6))
    dealt = training.choose_groups(toy, 3500, 50, 1)
    classes = np.arange(4000) % 2
    found = {}
    for name, own, of in (
        ("strict", strict, None),
        ("both", [strict, loose], classes),
        ("loose", loose, None),
    ):
        shares = {"strict": [1.0, 0.0], "both": [0.5, 0.5], "loose": [0.0, 1.0]}[name]
        variance = combined_variance([strict, loose], shares)
        settings = training.plan(wire.LOGISTIC, 5, reports=3500, group=50, k=1, variance=variance)
        judged = [
            training.accuracy(toy, train(settings, toy, dealt, own, 1, seed, classes=of).model)
            for seed in range(5)
        ]
        found[name] = np.mean(judged)
    assert found["loose"] > found["strict"] + 0.05
    assert found["both"] > found["strict"] + 0.03


def test_personalised_means_are_unbiased() -> None:
    data = _dataset()
    records = data.records(np.arange(4000))
    cards = [design("duchi", 0.5).card, design("three-outputs", 4).card]
    order = np.random.default_rng(1).permutation(4000)
    simulated = [SimulatedFleet(records, seed) for seed in range(200)]
    means = []
    for one in simulated:
        result = one.collect(1, [(_question(1, card), order[i::2]) for i, card in enumerate(cards)])
        means.append(estimate.combine([(cohort.card, cohort.counts) for cohort in result.cohorts]).mean)
    weight = estimate.combine([(cohort.card, cohort.counts) for cohort in result.cohorts]).standard_error
    exact = np.stack([gradients_of(records[order[i::2]]).mean(axis=0) / 16384 for i in range(2)])
    # between the means of the two cohorts, which are one population
    error = np.std(means, axis=0) / 200**0.5
    low, high = exact.min(axis=0), exact.max(axis=0)
    assert (np.mean(means, axis=0) > low - 4.5 * error).all()
    assert (np.mean(means, axis=0) < high + 4.5 * error).all()
    assert (error * 200**0.5 < 1.2 * weight).all()


def gradients_of(records: np.ndarray) -> np.ndarray:
    return vectorised.gradients(wire.LOGISTIC, np.arange(0, 4500, 900), -12, records)


@pytest.mark.parametrize(("epsilon", "least"), [(1, 0.885), (2, 0.890)])
def test_all_flights_report_once(epsilon: int, least: float) -> None:
    flights = datasets.load("flights")
    card, reports = decode(design("three-outputs", epsilon).card), len(flights.training)
    variance = combined_variance([card], [1.0])
    settings = training.plan(wire.LOGISTIC, 28, reports=reports, group=2000, k=1, variance=variance)
    reached = []
    for seed in range(5):
        dealt = training.choose_groups(flights, reports, 2000, seed)
        reached.append(training.accuracy(flights, train(settings, flights, dealt, card, 1, seed).model))
    assert np.mean(reached) >= least
