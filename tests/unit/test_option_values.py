"""The forms of the values of options: --data, --epsilons, --k and --every."""

import pytest

from ternhost.datasets import MULTICLASS, on_devices
from ternhost.datasets.on_devices import DeviceRecords
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS
from ternhost.learn.models.fedavg import Options as FedAvgOptions
from ternhost.learn.models.fedsgd import Options as FedSGDOptions
from ternhost.learn.schedule import Schedule
from ternhost.options import seconds_of
from ternhost.planning import records
from ternhost.run.options import RunOptions

MICRO = 1_000_000


# --data


@pytest.mark.parametrize(
    ("data", "records"),
    [
        ("devices:29", DeviceRecords(29, None)),
        ("devices:29:3", DeviceRecords(29, 3, MULTICLASS)),
        ("flights", None),
        ("wisdm:FILE.txt", None),
    ],
)
def test_data_names_a_data_set_or_records_of_the_devices(data, records):
    assert on_devices.parse(data) == records


@pytest.mark.parametrize(
    "data",
    ["devices", "devices:", "devices:x", "devices:0", "devices:129", "devices:3:1", "devices:3:"],
)
def test_records_of_the_devices_need_numbers_that_a_device_takes(data):
    with pytest.raises(UsageError, match="--data"):
        on_devices.parse(data)


@pytest.mark.parametrize(
    ("data", "model"),
    [("devices:5", "logistic"), ("devices:5:3", "softmax"), ("diabetes", "linear")],
)
def test_the_model_follows_from_the_data(data, model):
    assert FedSGDOptions(data=data).model_name == model


@pytest.mark.parametrize(
    "options",
    [
        {"data": "devices:5", "model": "softmax"},
        {"data": "devices:5:3", "model": "logistic"},
    ],
)
def test_classes_and_softmax_regression_go_together(options):
    with pytest.raises(UsageError, match="classes"):
        FedSGDOptions(**options)


def test_inference_cannot_do_without_a_data_set(tern):
    refused = tern("infer", "--data", "devices:5", "--fleet", "simulated:10", code=2)
    assert "only the devices know" in refused.err


def test_synthetic_records_stand_for_those_of_the_devices_in_a_plan():
    assert records.load("devices:20")[0].dimension == 20


# --epsilons


def test_classes_of_devices_may_have_a_bound_of_clipping_each():
    one, other = FedAvgOptions(epsilons="0.5:2:0.25,4:0.75").device_classes()
    assert (one.tau, one.epsilon, one.share) == (0.5, 2 * MICRO, 0.25)
    assert (other.tau, other.epsilon) == (FedAvgOptions.tau, 4 * MICRO)


@pytest.mark.parametrize("learner", ["fedsgd", "direct", "infer"])
def test_a_bound_of_clipping_is_refused_where_nothing_is_clipped_to_it(learner):
    with pytest.raises(UsageError, match="bounds"):
        ALGORITHMS[learner].Options(epsilons="0.5:2:0.5,1:2:0.5")


# --k


@pytest.mark.parametrize("k", ["most", "-1", "2.5"])
def test_k_is_a_number_or_a_rule(k):
    with pytest.raises(UsageError, match="--k"):
        FedSGDOptions(k=k)


# --every


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("1h", 3600), ("1d", 86_400), ("90", 90), ("0", 0)]
)
def test_a_time_has_a_unit_or_is_in_seconds(text, seconds):
    assert Schedule(every=text).interval == seconds


@pytest.mark.parametrize("text", ["", "h", "1y", "-1", "nan"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="--every"):
        seconds_of(text, "every")


# --delta


def test_a_run_and_its_learner_have_one_delta():
    options = RunOptions.parse("fedsum", {"delta": "1e-5"}, ALGORITHMS)
    assert options.delta == options.learning.delta == "1e-5"


def test_a_run_and_its_learner_with_two_deltas_are_refused():
    learning = ALGORITHMS["fedsum"].Options(delta="1e-5")
    with pytest.raises(UsageError, match="--delta"):
        RunOptions("fedsum", learning, delta="1e-6")
