"""Quantiles of what boards hold: round after round over a broker, and of features that boards
compute from their sensors.
"""

from array import array
from pathlib import Path

import features_program
import numpy as np
import pytest
import rig
from test_commands import start as start  # a fixture

from tern.features import Window
from tern.fixed import ONE
from ternhost.learn.distributions.distribution_entries import thinned
from ternhost.learn.distributions.quantile_options import Options
from ternhost.learn.schedule import Schedule
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store.reader import Reader
from ternhost.store.store import Store

# A served fleet over a broker

CLIENTS, ROUNDS = 20, 2


@pytest.fixture(scope="module")
def served(tmp_path_factory, micropython):
    """The result of two rounds over a broker, and the store. At this epsilon, fine bins are hashed."""
    directory = tmp_path_factory.mktemp("served")
    learning = Options(data="iris", epsilon="1", bins=64)
    schedule = Schedule(rounds=ROUNDS, every="0")
    with rig.OnBroker(directory, micropython, 2, CLIENTS) as fleet:
        options = RunOptions("quantiles", learning, fleet.name, schedule=schedule)
        with Run.begin(options, Place("r", directory / "runs", store=fleet.path)) as run:
            yield run.run(), fleet.path


def test_each_device_counts_once_in_each_round(served):
    result, _ = served
    assert (result["reports"], result["missing"]) == (ROUNDS * CLIENTS, 0)
    assert sum(attribute["reports"] for attribute in result["attributes"]) == ROUNDS * CLIENTS


def test_what_rounds_have_collected_together_equals_the_recount_of_their_reports(served):
    """Another learner counts the reports of the store again, all at once."""
    result, path = served
    with (
        Store(path, create=False, beside=True) as store,
        Store(path.with_name("copy.sqlite")) as copy,
    ):
        store._db.backup(copy._db)
        assert rig.replay(copy).entries() == result["attributes"]


def test_the_live_page_gets_what_all_rounds_have_collected(served):
    result, path = served
    with Reader(path) as reader:
        assert list(reader.snapshot().estimates) == list(map(thinned, result["attributes"]))


# Features of sensors

BOARDS = 4
DEVIATION = 2  # the position of the feature in a record, after the constant and the mean
UNIT = {"low": 0, "high": 2048, "unit": "mg"}  # by the scale of `tern.features`
SCHEMA = f"""
label = "kind"

[columns.mean]
low = -8192
high = 8192

[columns.deviation]
low = {UNIT["low"]}
high = {UNIT["high"]}
unit = "{UNIT["unit"]}"

[columns.jerk]
low = 0
high = 1024

[columns.crossings]
low = 0
high = 5

[columns.kind]
low = -1
high = 1
"""
PROGRAM = Path(features_program.__file__)


def features_of(device):
    """The features that a board computes of the samples of its sensor, and the constant."""
    samples = features_program.SAMPLES
    window = Window(samples, hop=samples, axes=1)
    row = array("h", bytes(2 * window.d))
    for number in range(samples):
        window.push(features_program.sample(device, number))
    window.features(row)
    return row


def bin_of(value, exponent):
    """The bin of a number in Q1.14, of 2**exponent equal bins of [-1, 1]."""
    return min((value + ONE) * 2**exponent // (2 * ONE), 2**exponent - 1)


@pytest.fixture
def collected(start, tmp_path):
    """The result of quantiles of a feature of sensors, and the store of the boards.

    The host knows the names and the bounds of features by the schema, and no record. At this
    epsilon, a report differs from what the device holds with a probability below a millionth.
    """
    (tmp_path / "sensor.toml").write_text(SCHEMA)
    fleet = start(
        "fleet", "emulate", BOARDS, "--program", PROGRAM, "--dir", "fleet", "--json"
    ).result()
    store = tmp_path / fleet["store"]
    boards = ("--fleet", "port:" + ",".join(fleet["ports"]), "--store", store)
    what = ("--data", "sensor.toml", "--attributes", "deviation", "--bins", 16)
    words = ("collect", "quantiles", *boards, *what, "--epsilon", 20, "--no-report", "--json")
    result = rig.tern(*words, cwd=tmp_path).json
    with Store(store, create=False, beside=True) as opened:
        yield result, opened


def test_boards_report_the_bins_of_features_that_they_compute_from_their_sensors(collected):
    result, store = collected
    assert result["reports"] == BOARDS
    (round_,) = store.rounds()
    tallies = store.tallies(round_.number)
    for tally, devices in zip(tallies, store.round_devices(round_.number), strict=True):
        assert np.flatnonzero(tally.question.parameters) == [DEVIATION]
        exponent = tally.question.exponent
        bins = [bin_of(features_of(device)[DEVIATION], exponent) for device in devices]
        assert tally.counts[0].tolist() == np.bincount(bins, minlength=2**exponent).tolist()


def test_quantiles_of_a_feature_have_the_unit_of_the_schema(collected):
    result, _ = collected
    (attribute,) = result["attributes"]
    assert attribute["name"] == "deviation"
    assert {name: attribute[name] for name in UNIT} == UNIT
