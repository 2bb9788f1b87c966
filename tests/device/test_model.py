"""The model on the device: which one it uses, how much of it survives any failure, and its
predictions.
"""

import gc
import os
from array import array

import flash_chip
import scratch
import vectors
from checks import raises, replaced, taken_by
from small_board import put_fleet
from streams import Words

from tern import frames, host_frames, storage, wire
from tern import model as model_module
from tern.compat import MICROPYTHON
from tern.frames import FrameError
from tern.ledger import LedgerError
from tern.model import Model

NEEDS = {"test_power_cut_at_every_write_of_the_model": "endurance"}
ONE = 16384
KEY = bytes(range(32))
OTHER = bytes(32)
_out = bytearray(wire.MAX_FRAME)


def random_values(words, n, low=-32768, high=32767):
    return array("h", [words.between(low, high) for _ in range(n)])


class Question:
    """The fields of a frames.Round that a model reads."""

    def __init__(self, number, parameters, kind=wire.LOGISTIC, exponent=-13, classes=1):
        self.round = number
        self.model = kind
        self.exponent = exponent
        self.classes = classes
        self.d = len(parameters) // classes
        self.parameters = array("h", parameters)


def frame_of(
    number, parameters, kind=wire.LOGISTIC, exponent=-13, classes=1, key=KEY, device=wire.FLEET
):
    n = host_frames.encode_model(_out, key, device, number, kind, parameters, exponent, classes)
    return memoryview(bytearray(memoryview(_out)[:n]))


def opened(folder):
    model = Model()
    model.open(folder)
    return model


class Writes(replaced):
    """Counts the writes of a model."""

    def __init__(self):
        super().__init__(model_module, replace=self.replace)
        self.count = 0
        self.real = model_module.replace

    def replace(self, path, data):
        self.count += 1
        self.real(path, data)


# --- The model in use


def test_nothing_is_predicted_without_a_model():
    model = opened(scratch.folder())
    for function in (model.score, model.predict, model.probability):
        raises(RuntimeError, function, array("h", (1, 2, 3)))


# A board predicts with the parameters of the newest ROUND, which are not final, until a MODEL
# comes, with which a host ends its training. The models here have two parameters, each a multiple
# of 2**-13. Scores are multiples of 2**-14. So on this record, whose features are 1 and 0, the
# score is twice the first parameter.
RECORD = (ONE, 0)


def score_of(model):
    return model.score(array("h", RECORD))


def test_the_parameters_of_the_newest_round_are_used():
    model = opened(scratch.folder())
    model.take_round(Question(4, (100, 0)))
    assert score_of(model) == 200
    model.take_round(Question(5, (300, 0)))
    assert score_of(model) == 600
    assert not model.final


def test_a_round_of_the_same_number_does_not_replace_the_parameters():
    model = opened(scratch.folder())
    model.take_round(Question(4, (100, 0)))
    model.take_round(Question(4, (700, 0)))
    assert score_of(model) == 200


def test_the_parameters_of_an_older_round_are_not_used():
    model = opened(scratch.folder())
    model.take_round(Question(4, (100, 0)))
    model.take_round(Question(3, (700, 0)))
    assert score_of(model) == 200
    assert not model.final


def test_a_model_replaces_the_parameters_of_rounds():
    model = opened(scratch.folder())
    model.take_round(Question(5, (300, 0)))
    model.take_model(frame_of(2, (40, 1)), KEY)  # even one that was made in an earlier round
    assert score_of(model) == 80
    assert model.round == 2
    assert model.final


def test_a_round_does_not_replace_a_model():
    model = opened(scratch.folder())
    model.take_model(frame_of(2, (40, 1)), KEY)
    model.take_round(Question(9, (300, 0)))
    assert score_of(model) == 80
    assert model.round == 2
    assert model.final


# A kind of question -> the kind of model whose parameters it holds.
MODEL_OF_QUESTION = {
    wire.LINEAR: wire.LINEAR,
    wire.LOGISTIC: wire.LOGISTIC,
    wire.SVM: wire.SVM,
    wire.LOCAL + wire.LINEAR: wire.LINEAR,
    wire.LOCAL + wire.SVM: wire.SVM,
    wire.SOFTMAX: wire.SOFTMAX,
    wire.SOFTMAX_GRADIENT: wire.SOFTMAX,
    wire.LOCAL_SOFTMAX: wire.SOFTMAX,
}


def test_questions_hold_the_parameters_of_their_kind_of_model():
    parameters = (1, 2, 3, 4, 5, 6)
    for question, kind in MODEL_OF_QUESTION.items():
        model = opened(scratch.folder())
        classes = 2 if kind == wire.SOFTMAX else 1
        model.take_round(Question(1, parameters, question, -16, classes))
        assert (model.kind, model.classes, model.d) == (kind, classes, 6 // classes)


def test_a_collection_holds_no_parameters():
    for question in (wire.VALUES, wire.CATEGORIES):
        model = opened(scratch.folder())
        model.take_round(Question(1, (1, 2), question, 0))
        assert not model.ready


# MODEL frames are numbered. Somebody may have recorded an older one, and send it again. The models
# of these tests have one parameter, and the record one feature, so that a score is twice the
# parameter.


def test_an_older_model_does_not_replace_a_newer_one():
    model = opened(scratch.folder())
    model.take_model(frame_of(7, (1,)), KEY)
    model.take_model(frame_of(6, (2,)), KEY)
    assert model.score(array("h", (ONE,))) == 2
    assert model.round == 7


def test_a_model_of_the_same_number_replaces_the_one_before():
    model = opened(scratch.folder())
    model.take_model(frame_of(7, (1,)), KEY)
    model.take_model(frame_of(7, (3,)), KEY)
    assert model.score(array("h", (ONE,))) == 6


def test_an_older_model_is_refused_even_after_a_restart():
    folder = scratch.folder()
    model = opened(folder)
    model.take_model(frame_of(7, (3,)), KEY)

    restarted = opened(folder)
    restarted.take_model(frame_of(6, (2,)), KEY)
    assert restarted.score(array("h", (ONE,))) == 6
    assert restarted.round == 7


def test_a_new_fleet_key_forgets_the_round_and_keeps_the_model():
    # With a new fleet key (and the next epoch) a host counts its models from 1 again. The old
    # model goes on predicting, but its number, the largest there is, must not block the new ones.
    for restart in (False, True):
        folder = scratch.folder()
        put_fleet(folder, KEY, epoch=1000)
        model = opened(folder)
        model.take_model(frame_of(wire.MAX_ROUND, (1, 2)), KEY)
        put_fleet(folder, KEY, epoch=1001)
        if restart:  # before forget_round() could be called
            model = opened(folder)
        else:
            model.forget_round()

        assert model.score(array("h", (ONE, 0))) == 2
        model.take_model(frame_of(3, (1, 2)), KEY)
        assert model.round == 3

        # Model 2 is older than 3, also after a restart.
        model = opened(folder)
        model.take_model(frame_of(2, (5, 5)), KEY)
        assert model.round == 3 and model.score(array("h", (ONE, 0))) == 2


def test_a_model_is_used_although_fleet_bin_is_damaged():
    # The board then has no clients, but the program beside it goes on.
    folder = scratch.folder()
    scratch.write(folder + "/" + storage.FLEET, b"TFL3")
    model = opened(folder)
    model.take_model(frame_of(7, (100,)), KEY)
    assert model.score(array("h", (ONE,))) == 200


# --- The stored model


def state_of(model):
    """The state of a model: its fields, and the scores of a row."""
    row = array("h", (ONE, -5000, 77, 1) * 32)[: model.d]
    scores = [model.score(row, label) for label in range(model.classes)]
    return model.round, model.kind, model.classes, model.d, model.exponent, scores


# Epoch of the fleet key (0: no fleet), kind of model, classes, features.
STORED_MODELS = (
    (0, wire.LINEAR, 1, 1),
    (1, wire.LOGISTIC, 1, 13),
    (70_000_000, wire.SVM, 1, 8),
    (2**32 - 1, wire.SOFTMAX, 6, 13),
)


def folders_of_stored_models():
    """A folder for each of STORED_MODELS, and the model that was stored there."""
    words = Words(1)
    for epoch, kind, classes, d in STORED_MODELS:
        folder = scratch.folder()
        if epoch:
            put_fleet(folder, KEY, epoch=epoch)
        model = opened(folder)
        parameters = random_values(words, classes * d)
        model.take_model(frame_of(12, parameters, kind, -20, classes), KEY)
        yield folder, model


def test_a_model_survives_a_restart():
    for folder, model in folders_of_stored_models():
        restarted = opened(folder)
        assert restarted.ready
        assert state_of(restarted) == state_of(model)


def test_a_later_round_does_not_replace_a_model_after_a_restart():
    for folder, model in folders_of_stored_models():
        restarted = opened(folder)
        restarted.take_round(Question(99, (1, 2, 3)))
        assert state_of(restarted) == state_of(model)


def test_parameters_are_written_for_one_of_eight_rounds():
    # Flash wears out with each write, so that the parameters that come with each ROUND are only
    # now and then kept.
    folder = scratch.folder()
    with Writes() as writes:
        model = opened(folder)
        for number in range(1, 101):
            model.take_round(Question(number, (number, 1)))
        assert writes.count == 1 + 100 // 8, "the first, and every eighth"
        # A sleeper restarts for each round and forgets unwritten ones.
        for number in range(101, 141):
            opened(folder).take_round(Question(number, (number, 1)))
        assert writes.count <= 140 // 8 + 1


def test_a_model_that_is_received_again_is_not_written_again():
    # Flash wears out with each write. Ten models, received three times each, are ten writes, and
    # leave one file.
    folder = scratch.folder()
    with Writes() as writes:
        for number in range(150, 160):
            for _ in range(3):  # retained: it is received with each connection
                opened(folder).take_model(frame_of(number, (1, 2, 3)), KEY)
        assert writes.count == 10
    assert os.listdir(folder) == ["model.bin"]


def test_a_model_that_cannot_be_written_is_used_nevertheless():
    folder = scratch.folder()
    model = opened(folder)
    scratch.remove(folder)
    raises(LedgerError, model.take_model, frame_of(7, (100,)), KEY)
    assert model.ready and model.score(array("h", (ONE,))) == 200


def hostile_models():
    """(frame, key) of MODELs that must be refused."""
    good = bytes(frame_of(2, (4, 5, 6)))
    for n in range(len(good)):
        yield good[:n], KEY
    for at in range(len(good)):
        yield good[:at] + bytes((good[at] ^ 1 << at % 8,)) + good[at + 1 :], KEY
    yield good, OTHER
    question = bytearray(frame_of(2, (4, 5, 6, 7), wire.SOFTMAX, -13, 2))
    question[9] = wire.SOFTMAX_GRADIENT
    frames.seal(KEY, question, len(question) - wire.TAG_BYTES)
    yield bytes(question), KEY
    for case in vectors.cases("frames.json", "frames"):
        if case["kind"] != "model" or case["result"] == "invalid":
            yield bytes.fromhex(case["frame"]), bytes.fromhex(case["key"])


def test_hostile_models_change_nothing():
    # MODEL frames with forged tags, wrong sizes or impossible fields are refused; neither the
    # model in memory nor the file changes.
    folder = scratch.folder()
    model = opened(folder)
    model.take_model(frame_of(1, (1, 2, 3)), KEY)
    before = state_of(model)
    with Writes() as writes:
        for frame, key in hostile_models():
            raises(FrameError, model.take_model, memoryview(frame), key)
        assert writes.count == 0
    assert state_of(model) == before == state_of(opened(folder))


# --- Power and wear


def test_power_cut_at_every_write_of_the_model():
    # After a power cut at any write to a simulated flash chip, a board has the old model or the
    # new one, whole.
    if MICROPYTHON:
        cut_at_every_write_of_models()


def cut_at_every_write_of_models():
    """Small and large models, each with a new file and in place. Returns the number of cuts."""
    image, start = bytearray(flash_chip.BYTES), bytearray(flash_chip.BYTES)
    small, large = model_frames(13), model_frames(600, wire.SOFTMAX, classes=6)
    cuts = 0
    # Within a block of the chip, and over several; with a new file, and in place.
    for models, in_place in ((small, False), (large, False), (small, True), (large, True)):
        cuts += cut_at_every_write(image, start, models, in_place)
    return cuts


def model_frames(n, kind=wire.LOGISTIC, classes=1):
    """MODELs of rounds 1, 2 and 3 with n parameters each."""
    models = []
    for number in (1, 2, 3):
        parameters = [number * 100 + j % 9 for j in range(n)]
        models.append(frame_of(number, parameters, kind, -13, classes))
    return models


def cut_at_every_write(image, start, models, in_place):
    """After each cut the first or the second model is whole, and the third is taken.

    image, start: buffers for the chip and its content before a cut. Returns the number of cuts.
    """
    flash = flash_chip.Flash(image)
    flash_chip.format(flash)
    first, second, third = models
    expected = [state_after_taking(frame) for frame in (first, second)]
    opened("/flash").take_model(first, KEY)
    flash_chip.unmount()

    def prepare():
        model = opened("/flash")
        model.in_place = in_place
        return model

    def take(model):
        try:
            model.take_model(second, KEY)
        except (LedgerError, OSError):
            pass

    rounds = set()
    for cut, _, _ in flash_chip.cut_at_every_write(flash, start, prepare, take):
        model = opened("/flash")
        assert state_of(model) == expected[model.round - 1], cut
        rounds.add(model.round)
        model.take_model(third, KEY)
        assert opened("/flash").round == 3
    assert rounds == {1, 2} and cut > 3
    return cut


def state_after_taking(frame):
    model = opened(scratch.folder())
    model.take_model(frame, KEY)
    return state_of(model)


# --- Predictions


def test_prediction_vectors():
    # models.json, which other implementations share, holds models and rows of features, with the
    # exact integer scores, predictions and probabilities that every device must compute.
    model = opened(scratch.folder())
    for number, case in enumerate(vectors.cases("models.json", "predictions"), 1):
        gc.collect()  # the heap of a device is small
        comment, classes = case["comment"], case["classes"]
        parameters = array("h", case["parameters"])
        frame = frame_of(number, parameters, case["model"], case["exponent"], classes)
        model.take_model(frame, KEY)
        labels = range(classes) if classes > 1 else (1,)
        for i, values in enumerate(case["rows"]):
            row = array("h", values)
            assert [model.score(row, j) for j in range(classes)] == case["scores"][i], comment
            assert model.predict(row) == case["predictions"][i], comment
            if "probabilities" in case:
                probabilities = [model.probability(row, label) for label in labels]
                assert probabilities == case["probabilities"][i], comment


def test_the_probabilities_of_both_labels_add_up_to_one():
    model = opened(scratch.folder())
    row = array("h", (ONE, ONE, 0))
    model.take_model(frame_of(3, (4096, 0, 0), wire.LOGISTIC, -12), KEY)
    # The score is 1. 1 / (1 + 1 / e) is 11978 / 2**14.
    assert model.probability(row) == 11978 == ONE - model.probability(row, -1)


def test_rows_and_labels_that_do_not_fit_the_model_are_refused():
    # The model has 3 classes (labels 0 to 2) of 3 features; a row of 2 and the labels -1 and 3 do
    # not fit.
    model = opened(scratch.folder())
    row = array("h", (ONE, ONE, 0))
    model.take_model(frame_of(4, (1, 2, 0, 2, 1, 0, 2, 1, 0), wire.SOFTMAX, -12, 3), KEY)
    raises(RuntimeError, model.score, row[:2])
    for label in (-1, 3):
        raises(RuntimeError, model.score, row, label)
        raises(RuntimeError, model.probability, row, label)


def test_predictions_allocate_nothing():
    # A program may predict between samples of a sensor: no kind of model uses the heap (after a
    # first call).
    words = Words(3)
    model = opened(scratch.folder())
    row = random_values(words, 14, -ONE, ONE)
    for number, (kind, classes) in enumerate(((1, 1), (2, 1), (3, 1), (4, 6)), 1):
        model.take_model(
            frame_of(number, random_values(words, classes * 13), kind, -13, classes), KEY
        )
        functions = [model.score, model.predict]
        if kind in (wire.LOGISTIC, wire.SOFTMAX):
            functions.append(model.probability)
        for function in functions:
            function(row)
            assert taken_by(lambda: function(row)) == 0, kind  # noqa: B023
