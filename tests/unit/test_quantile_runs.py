"""The methods that quantiles of tern are compared with, and what counts as covered."""

import json
import math

import numpy as np
import pytest
import quantile_peers as peers
import quantile_runs as runs

from ternhost.cli import main

EPSILON = 1.5
TINY = 1e-9


def test_reports_of_the_square_wave_keep_epsilon():
    likelihoods = peers._likelihoods(EPSILON)
    largest_ratio = (likelihoods.max(axis=1) / likelihoods.min(axis=1)).max()
    assert largest_ratio == pytest.approx(math.exp(EPSILON))


def test_a_report_of_the_square_wave_is_in_each_bin_as_often_as_its_likelihood_says():
    bin_of_number = 40
    count = 400_000
    values = np.full(count, (bin_of_number + 0.5) / peers.BINS)
    reports = peers._square_wave_reports(values, EPSILON, np.random.default_rng(1))
    width = peers._wave_width(EPSILON)
    observed, _ = np.histogram(reports, peers.BINS, (-width, 1 + width))
    assert observed.sum() == count
    expected = count * peers._likelihoods(EPSILON)[:, bin_of_number]
    assert np.abs((observed - expected) / np.sqrt(expected)).max() < 5


def test_an_answer_is_true_with_the_probability_of_randomised_response():
    is_true = np.ones(400_000, bool)
    yes = peers._answers(is_true, EPSILON, np.random.default_rng(1)).mean()
    assert yes == pytest.approx(peers._answer_probability(1, EPSILON), abs=0.004)
    assert yes / (1 - yes) == pytest.approx(math.exp(EPSILON), rel=0.03)


@pytest.mark.parametrize("method", runs.METHODS)
@pytest.mark.parametrize("distribution", ["uniform", "skewed"])
def test_with_little_noise_every_method_finds_the_quantiles(method, distribution):
    (row,) = runs.errors(method, distribution, devices=20_000, epsilon="8", seed=1)
    assert row["p50"] < 0.015
    assert row["p90"] < 0.015


def test_the_flat_histogram_has_one_bin_for_each_of_64_parts():
    values = np.linspace(0, 1, 64_000, endpoint=False)
    assert np.bincount(peers._bins_of(values, 64)).tolist() == [1000] * 64


def test_quantiles_are_interpolated_within_a_bin():
    shares = np.array([0.25, 0.5, 0.25, 0])
    assert peers._quantiles_of(shares, [0.5, 0.75]) == pytest.approx([0.375, 0.5])


def test_a_true_quantile_is_the_least_number_that_its_share_does_not_exceed():
    held = np.repeat(np.array([-5, 0, 7], np.int16), [50, 40, 10])
    assert runs.true_quantiles(held).tolist() == [-5, 0, 7]


@pytest.fixture
def entry():
    """The entry of a number in a result, whose intervals have all true values but two."""
    quantiles = []
    for value in (0.0, 0.5, 1.0):
        quantiles.append({"value": value, "interval": [value - 0.2, value + 0.2], "true": value})
    quantiles[1]["true"] = 0.9
    return {
        "quantiles": quantiles,
        "histogram": {"intervals": [[0, 0.2], [0.7, 1]], "true": [0.3, 0.7]},
        "cumulative": {"intervals": [[0, 0.5], [1, 1]], "true": [0.3, 1]},
    }


def test_a_quantile_outside_of_its_interval_is_not_covered(entry):
    row = runs.covered(entry)
    assert (row["p50"], row["p90"], row["p99"]) == (True, False, True)


def test_bins_are_covered_by_their_share(entry):
    row = runs.covered(entry)
    assert (row["bins"], row["cumulative"]) == (0.5, 1)


def test_half_an_interval_is_a_share_of_the_public_range(entry):
    assert runs.covered(entry)["half_p50"] == pytest.approx(0.1)


def test_runs_of_two_seeds_have_no_seed_in_common():
    assert not {*runs.seeds_of_runs(1)} & {*runs.seeds_of_runs(2)}


@pytest.mark.parametrize("seed", range(1, 17))
def test_a_run_in_memory_has_the_result_of_the_command(seed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    devices = 600
    held = runs.held_values("two peaks", devices, seed)
    lines = [f"{value / runs.ONE:.6f}" for value in held]
    (tmp_path / "values.csv").write_text("\n".join(["x", *lines, ""]))
    (tmp_path / "values.toml").write_text("[columns.x]\nlow = -1\nhigh = 1\n")
    command = f"collect quantiles --data values.csv --fleet simulated:{devices} --epsilon 1"
    options = f"--seed {seed} --no-report --quiet --json"
    assert main(f"{command} {options}".split()) == 0
    result = json.loads(capsys.readouterr().out)
    in_memory = runs.collected(held, "1", seed)
    for name in ("quantiles", "histogram", "cumulative"):
        assert result["attributes"][0][name] == in_memory[name]
