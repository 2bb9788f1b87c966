"""The threshold of a model: its forms, how it is used on the host and on a board, and its errors."""

import json
from array import array
from dataclasses import replace

import numpy as np
import pytest

import ternhost
from tern import wire
from tern.fixed import ONE
from tern.model import MODEL, Model
from ternhost import DeviceModel, UsageError
from ternhost.cli import main
from ternhost.count.questions import Averaged
from ternhost.datasets import load
from ternhost.errors import USAGE
from ternhost.learn.base import Population
from ternhost.learn.inference.classifiers import Classifier, LearnedBy
from ternhost.learn.inference.infer import Infer
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.models.judging import choices, decisions, logit
from ternhost.learn.models.thresholds import Threshold, for_decisions
from ternhost.learn.parameters import LARGEST_WEIGHT
from ternhost.store.runs import RUNNING, StoredRun
from ternhost.vectorised import probabilities

# A model of the constant and one feature, with the weights -2 and 1.
WEIGHTS = np.array([[-2 * 2**12, 2**12]], np.int16)
LOGISTIC = DeviceModel(wire.LOGISTIC, WEIGHTS, -12)
FEATURE = np.linspace(-1, 1, 201)
ROWS = np.stack([np.full(201, ONE), FEATURE * ONE], axis=1).astype(np.int16)

FLEET = "simulated:100"
QUICK = {"data": "breast-cancer", "epsilon": 8, "reports": 100, "group": 50}


def train(**options):
    return ternhost.train(ternhost.FedSGD(**QUICK | options), FLEET)


# Its forms


@pytest.mark.parametrize(
    ("text", "probability"), [("0.3", 0.3), ("1:5", 1 / 6), ("2:2", 0.5), ("0.5:4.5", 0.1)]
)
def test_a_threshold_is_a_probability_or_follows_from_costs(text, probability):
    assert Threshold.parse(text).probability == pytest.approx(probability)


def test_a_threshold_with_a_percent_sign_is_a_share():
    assert Threshold.parse("24%") == Threshold(probability=None, share=0.24)


OUT_OF_BOUNDS = (
    "0",
    "1",
    "-0.1",
    "0%",
    "100%",
    "150%",
    "1:0",
    "0:1",
    "1:-5",
    "1:inf",
    "1e-300:1e300",
)
OF_NO_FORM = ("abc", "nan", "%", ":", "1:2:3")


@pytest.mark.parametrize("text", [*OUT_OF_BOUNDS, *OF_NO_FORM])
def test_other_texts_are_no_threshold(text):
    with pytest.raises(UsageError, match="--threshold"):
        ternhost.FedSGD(threshold=text)


@pytest.mark.parametrize("share", [0.07, 0.25, 0.75])
def test_so_many_records_are_above_the_threshold_of_a_share(share):
    scores = np.random.default_rng(1).normal(size=1000)
    threshold = Threshold(probability=None, share=share).of(scores)
    assert (scores > logit(threshold)).mean() == share


@pytest.mark.parametrize(("share", "predicted"), [(0.01, 0), (0.99, 4)])
def test_a_share_of_few_records_is_rounded_to_none_or_all(share, predicted):
    scores = np.array([0.0, 1.0, 2.0, 3.0])
    threshold = Threshold(probability=None, share=share).of(scores)
    assert (scores > logit(threshold)).sum() == predicted


# On a board


def opened(twin, folder):
    """The model of a board that has the model.bin of this twin."""
    twin.save(str(folder) + MODEL)
    board = Model()
    board.open(str(folder))
    return board


@pytest.mark.parametrize("threshold", [0.05, 0.12, 0.3, 0.5, 0.97])
def test_a_board_predicts_at_the_threshold_what_the_host_predicts(tmp_path, threshold):
    twin = replace(LOGISTIC, threshold=threshold)
    board = opened(twin, tmp_path)
    predicted = [board.predict(array("h", row)) for row in ROWS.tolist()]
    assert predicted == twin.predict_numbers(ROWS).tolist()


@pytest.mark.parametrize("threshold", [0.05, 0.12, 0.3])
def test_label_1_is_predicted_above_the_threshold(threshold):
    probability = 1 / (1 + np.exp(2 - FEATURE))
    clear = np.abs(probability - threshold) > 0.001  # of rounding
    predicted = replace(LOGISTIC, threshold=threshold).predict_numbers(ROWS) > 0
    assert (predicted == (probability > threshold))[clear].all()


def test_the_probabilities_of_the_host_do_not_depend_on_the_threshold():
    twin = replace(LOGISTIC, threshold=0.1)
    assert (twin.probability(ROWS) == LOGISTIC.probability(ROWS)).all()


def test_the_usual_threshold_changes_no_weight():
    averaged = Averaged(wire.LOGISTIC, [5, -3], -12)
    assert for_decisions(averaged, 0.5) is averaged


def test_a_weight_that_gets_too_large_scales_all_of_them():
    """The score at 1 / 3000 is -8, so that the constant of 4 would become 12. Devices take less
    than 8. Half of all weights decide the same.
    """
    averaged = Averaged(wire.LOGISTIC, [4 * 2**12, 2**12], -12)
    shifted = for_decisions(averaged, 1 / 3000).weights
    exact = averaged.weights - [logit(1 / 3000), 0]
    assert shifted.max() <= LARGEST_WEIGHT
    assert shifted / shifted.max() == pytest.approx(exact / exact.max(), abs=1e-3)


def test_labels_of_protected_inference_are_decided_at_the_threshold():
    """A classifier has the weights 0 for label -1, and those of the model for label 1."""
    classifier = Classifier.of(WEIGHTS.ravel() * 2.0**-12, 1).deciding(0.12)
    by_class = probabilities(classifier.mantissas, classifier.exponent, ROWS)
    twin = replace(LOGISTIC, threshold=0.12)
    assert (by_class.argmax(axis=1) == (twin.predict_numbers(ROWS) > 0)).mean() > 0.99


# Changed afterwards


def test_a_model_takes_another_threshold():
    assert LOGISTIC.with_threshold("1:3").threshold == 0.25
    assert LOGISTIC.with_threshold(0.1).threshold == 0.1


def test_a_model_does_not_know_the_records_that_a_share_is_of():
    with pytest.raises(UsageError, match="share"):
        LOGISTIC.with_threshold("24%")


@pytest.mark.parametrize("threshold", [0, 1, 1.5, -0.1, float("nan")])
def test_a_model_takes_no_threshold_out_of_bounds(threshold):
    with pytest.raises(UsageError, match="--threshold"):
        replace(LOGISTIC, threshold=threshold)


@pytest.mark.parametrize("model", [wire.LINEAR, wire.SVM])
def test_models_without_probabilities_take_no_threshold(model):
    with pytest.raises(UsageError, match="threshold"):
        replace(LOGISTIC, model=model, threshold=0.3)


def test_a_model_without_the_constant_takes_no_threshold():
    with pytest.raises(UsageError, match="constant"):
        replace(LOGISTIC, features=("age", "height"), threshold=0.3)


KEY = bytes(range(32))


def test_a_model_of_a_frame_predicts_by_its_threshold_without_knowing_it():
    twin = replace(LOGISTIC, threshold=0.2)
    of_frame = DeviceModel.of_frame(twin.frame(KEY), KEY)
    assert of_frame.threshold is None
    assert (of_frame.predict_numbers(ROWS) == twin.predict_numbers(ROWS)).all()


def test_a_model_of_a_frame_makes_the_same_frame_again():
    frame = replace(LOGISTIC, threshold=0.2).frame(KEY)
    assert DeviceModel.of_frame(frame, KEY).frame(KEY) == frame


def test_a_model_that_may_have_a_threshold_in_its_constant_takes_no_other():
    of_frame = DeviceModel.of_frame(LOGISTIC.frame(KEY), KEY)
    with pytest.raises(UsageError, match="constant"):
        of_frame.with_threshold(0.3)


def test_the_model_of_a_board_takes_no_threshold_a_second_time():
    with pytest.raises(UsageError, match="constant"):
        replace(LOGISTIC, threshold=0.2).on_board.with_threshold(0.3)


def test_a_model_of_a_frame_that_gives_no_probability_has_the_usual_threshold():
    vector_machine = replace(LOGISTIC, model=wire.SVM)
    assert DeviceModel.of_frame(vector_machine.frame(KEY), KEY).threshold == 0.5


@pytest.mark.parametrize(("of_run", "of_model"), [("0.5", 0.5), ("0.2", None)])
def test_a_model_of_a_store_has_the_usual_threshold_if_its_run_has(store, of_run, of_model):
    frame = LOGISTIC.frame(KEY)
    store.save_state({"model": frame[: -wire.TAG_BYTES].hex()})
    options = {"learning": {"threshold": of_run}}
    store.begin_run(StoredRun("mine", 1.0, RUNNING, options, {"first_round": 1}))
    assert DeviceModel.of_store(store.path, "mine").threshold == of_model


# In a run


def test_a_run_stores_its_threshold_with_the_model(here):
    result = train(threshold="1:4")
    stored = json.loads((result.directory / "result.json").read_text())
    assert stored["threshold"] == 0.2
    assert DeviceModel.of_run(result.name).threshold == 0.2


def test_the_accuracy_of_a_run_is_that_of_its_model_at_the_threshold(here):
    result = train(threshold=0.8)
    data = load("breast-cancer")
    predicted = result.device_model.predict_numbers(data.features[data.test])
    right = (predicted > 0) == (data.labels[data.test] > 0)
    assert result.accuracy == pytest.approx(right.mean(), abs=1 / len(right))


def test_a_run_predicts_the_share_that_was_asked_for(here):
    result = train(threshold="25%")
    data = load("breast-cancer")
    predicted = result.device_model.predict_numbers(data.features[data.test]) > 0
    assert predicted.mean() == pytest.approx(0.25, abs=1.5 / len(predicted))


def test_the_model_that_is_sent_to_devices_has_the_threshold():
    learner = FedSGD(FedSGD.Options(**QUICK, threshold="0.2"), Population(devices=100))
    constant, *others = learner.published.weights - learner.averaged.weights
    assert constant == pytest.approx(-logit(0.2), abs=1e-3)
    assert not any(others)


@pytest.mark.parametrize(
    "options",
    [{"model": "svm"}, {"data": "diabetes"}, {"data": "iris", "model": "softmax"}],
    ids=["svm", "regression", "softmax"],
)
def test_runs_of_other_models_take_no_threshold(here, options):
    with pytest.raises(UsageError, match="--threshold"):
        train(threshold=0.3, **options)


def test_a_share_of_records_that_only_devices_have_is_refused():
    with pytest.raises(UsageError, match="only the devices"):
        ternhost.FedSGD(data="devices:5", threshold="24%")


def test_a_probability_does_for_records_that_only_devices_have():
    assert ternhost.FedSGD(data="devices:5", threshold=0.3).threshold == "0.3"


def test_a_run_has_the_usual_threshold_by_default(here):
    assert train().threshold == 0.5


def test_a_support_vector_machine_has_no_threshold(here):
    assert train(model="svm").threshold is None


# What a result says


def rare_records():
    """400 records, of which 5 % are "yes", and a feature that hardly tells."""
    random = np.random.default_rng(1)
    is_rare = np.arange(400) % 20 == 0
    feature = np.clip(0.1 * is_rare + 0.3 * random.normal(size=400), -1, 1)
    return {"feature": feature, "label": np.where(is_rare, "yes", "no")}


SCHEMA = ternhost.Schema(
    (ternhost.Numeric("feature", -1, 1), ternhost.Categorical("label", ("no", "yes"))),
    label="label",
)


def train_on_rare_records(**options):
    learner = ternhost.FedSGD(epsilon=8, reports=300, group=100, **options)
    data = ternhost.Data(rare_records(), schema=SCHEMA)
    return ternhost.train(learner, ternhost.Simulated(300), data=data)


def test_a_result_says_that_a_class_is_never_predicted(here):
    assert "never predicts yes" in str(train_on_rare_records(threshold=0.99))


def test_a_result_says_that_the_other_class_is_never_predicted(here):
    assert "never predicts no" in str(train_on_rare_records(threshold=0.001))


def test_a_model_that_predicts_both_classes_is_not_said_to_miss_one(here):
    assert "never predicts" not in str(train_on_rare_records(threshold="20%"))


def test_a_result_names_the_classes_that_a_softmax_model_never_predicts(here):
    result = train(data="digits", model="softmax", reports=10, group=10)
    never = result.decisions["never_predicted"]
    assert never
    assert f"never predicts {', '.join(never)}" in str(result)


def test_a_threshold_does_not_make_a_good_model_look_like_chance(here):
    """At this threshold the accuracy is far below that of the majority, and the AUC is good."""
    result = train(threshold=0.9999)
    assert result.accuracy < result.figures["accuracy_baseline"]
    assert "chance" not in str(result)


def test_a_result_of_a_single_held_out_record_has_no_number_that_is_none(here):
    """ "NaN" is no JSON, and no interval."""
    data = ternhost.Data(rare_records(), schema=SCHEMA)
    learner = ternhost.FedSGD(epsilon=8, reports=300, group=100, held_out=0.0025)
    result = ternhost.train(learner, ternhost.Simulated(300), data=data)
    assert "NaN" not in (result.directory / "result.json").read_text()
    assert "nan" not in str(result)


def test_a_regression_has_no_decisions(here):
    assert train(data="diabetes").decisions == {}


def test_the_report_says_that_a_class_is_never_predicted(here):
    page = train_on_rare_records(threshold=0.99).report().read_text()
    assert "never predicts" in page


def test_the_report_has_the_score_at_the_threshold(here):
    page = train_on_rare_records(threshold=0.2).report().read_text()
    assert f"{logit(0.2):.4g}" in page


def test_protected_inference_reads_the_threshold_of_a_run(here):
    result = train(threshold=0.2)
    assert LearnedBy.read(str(result.directory)).threshold == 0.2


def test_the_file_of_a_board_is_written_with_another_threshold(here):
    result = train()
    command = ["runs", "--model-of", result.name, "--threshold", "1:4", "--output", "model.bin"]
    assert main(command) == 0
    assert (here / "model.bin").read_bytes() == result.device_model.with_threshold(0.2).file()


def rare_records_with_scores(positive):
    """A data set of 200 records with scores from -1 to 1, of which the 20 of one class are rare.

    positive: whether the rare class is the positive one.
    """
    score = np.round(np.linspace(-1, 1, 200) * ONE).astype(np.int16)
    is_rare = np.arange(200) % 10 == 0
    labels = np.where(is_rare == positive, 1, -1).astype(np.int16)
    records = load("breast-cancer")
    return replace(
        records,
        features=np.stack([np.full(200, ONE, np.int16), score], axis=1),
        feature_names=("constant", "score"),
        labels=labels,
        classes=(),
        owners=None,
    ).divided(np.arange(200) >= 100)


@pytest.mark.parametrize("positive", [True, False])
def test_a_choice_of_threshold_finds_the_share_that_it_states(positive):
    """Ten records of the rare class are held out, so the model finds a multiple of a tenth."""
    data = rare_records_with_scores(positive)
    weights = np.array([0.0, 1.0])
    found = [each["recall"] for each in choices(data, wire.LOGISTIC, weights)]
    assert found == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_choice_states_what_the_model_does_at_its_threshold():
    data = rare_records_with_scores(positive=True)
    weights = np.array([0.0, 1.0])
    choice = choices(data, wire.LOGISTIC, weights)[3]
    assert choice.items() <= decisions(data, wire.LOGISTIC, weights, choice["threshold"]).items()


def test_a_regression_has_no_choice_of_thresholds():
    assert choices(load("diabetes"), wire.LINEAR, np.zeros(11)) == []


def test_the_model_of_a_run_is_shown_with_the_choices_of_its_result(here, capsys):
    result = train()
    capsys.readouterr()
    assert main(["runs", "--model-of", result.name, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["choices"] == result.choices


def test_runs_without_a_model_take_no_threshold(here):
    assert main(["runs", "--threshold", "0.3"]) == USAGE


def asked_parameters(result, answer):
    """The parameters of the classifier by which devices answer a run of protected inference."""
    options = Infer.Options(data="breast-cancer", classifier=result.directory, answer=answer)
    [(question, _)] = Infer(options, Population(clients=20)).cohorts(range(1, 21))
    return np.array(question.parameters) * 2.0**question.exponent


def test_devices_report_labels_at_the_threshold(here):
    result = train(threshold=0.2)
    of_label_1 = asked_parameters(result, "label")[result.weights.size :]
    assert of_label_1 == pytest.approx(result.device_model.on_board.weights.ravel())


def test_devices_report_probabilities_without_the_threshold(here):
    result = train(threshold=0.2)
    of_label_1 = asked_parameters(result, "vector")[result.weights.size :]
    assert of_label_1 == pytest.approx(result.weights)


WORSE = "probabilities are worse than the class shares"


def summary_of_log_loss(above_class_shares):
    """The lines of a result with a good accuracy, whose log-loss is so far above the class shares."""
    result = train()
    good = {"accuracy": 0.95, "accuracy_interval": [0.9, 0.97]}
    log_loss = result.figures["log_loss_baseline"] + above_class_shares
    return "\n".join(FedSGD.summary(dict(result) | good | {"log_loss": log_loss}))


def test_a_result_says_that_probabilities_are_worse_than_the_class_shares(here):
    assert WORSE in summary_of_log_loss(0.01)


def test_a_result_does_not_say_so_of_better_probabilities(here):
    assert WORSE not in summary_of_log_loss(-0.01)
