"""Boards get the model over their serial ports: at the end of a run, during a served one, and when
they come back.
"""

from array import array
from pathlib import Path

import numpy as np
import pytest
import rig

from tern import wire
from tern.model import MODEL, Model, check_model
from ternhost import DeviceModel
from ternhost.count.questions import Averaged, Question
from ternhost.learn.schedule import Terms
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.fleet import Ports
from ternhost.store.store import Store
from terntools.emulators.unix_fleet import EmulatedFleet

PROGRAM = Path(__file__).parents[1] / "harness" / "model_board.py"


def kept_round(board):
    """The round of the model that a board keeps; None: it has none."""
    path = Path(f"{board.directory}{MODEL}")
    return check_model(path.read_bytes(), b"")[1] if path.exists() else None


@pytest.fixture
def classes():
    """The classes whose numbers are labels; None: labels are numbers in [-1, 1]."""
    return


@pytest.fixture
def boards(here, micropython, classes):
    site = rig.make_site(here, micropython, budget=200 * rig.COST, classes=classes)
    site.store.close()
    with EmulatedFleet(micropython, site.directories, PROGRAM) as running:
        yield running.boards


def fleet(boards):
    return "port:" + ",".join(board.port for board in boards)


def assert_same_predictions(board, model):
    """Assert that a board keeps this DeviceModel, and predicts as it does."""
    device = Model()
    device.open(str(board.directory))
    assert (device.kind, device.classes, device.d) == (model.model, model.classes, model.d)
    rows = np.random.default_rng(5).integers(-16384, 16385, (50, model.d), dtype=np.int16)
    predictions = model.predict_numbers(rows).tolist()
    assert [device.predict(array("h", row.tolist())) for row in rows] == predictions
    assert kept_round(board) == model.number


def test_a_board_that_missed_the_model_is_named_and_gets_it_when_it_is_back(boards, monkeypatch):
    """After a round the host publishes a model, from which boards predict. One of two boards is off
    then: the user is told which one, and it gets the model as soon as a host finds it again,
    without another round.
    """
    monkeypatch.setattr("ternhost.reach.ports.driver._MODEL_TIMEOUT", 1.0)
    warnings = []
    ports = Ports([board.port for board in boards])
    question = Question(wire.LOGISTIC, [1] * rig.D, -14, rig.CARD, 1)
    board, absent_board = boards
    with Store("store.sqlite", create=False) as store:
        with BoardsDriver(store, ports, Terms(), warn=warnings.append) as driver:
            number = driver.next_round(1)
            driver.open(number, [(question, [1])])
            driver.collect(number)
            store.end_round(number, "complete")

            absent_board.kill()
            driver.publish(Averaged(wire.LOGISTIC, [5] * rig.D, -14))
        (warning,) = warnings
        assert absent_board.port in warning
        assert "may keep an earlier model" in warning
        assert kept_round(board) == number
        assert kept_round(absent_board) is None

        absent_board.start()
        with BoardsDriver(store, ports, Terms(), warn=warnings.append):
            pass  # without a round

    assert kept_round(absent_board) == number
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("model", "kind", "classes", "threshold"),
    [
        ("svm", wire.SVM, None, "0.5"),
        ("logistic", wire.LOGISTIC, None, "0.2"),
        ("softmax", wire.SOFTMAX, 8, "0.5"),
    ],
    ids=["two classes", "two classes with a threshold", "eight"],
)
def test_boards_have_the_model_at_the_end_of_a_run(boards, model, kind, threshold):
    """At the end of a run the boards have its last model in flash, whether it tells two classes
    apart or eight. Each predicts the same as the host for any record.
    """
    sizes = {"rounds": 2, "clients": 40, "records": 1, "data": f"devices:{rig.D}"}
    if kind == wire.SOFTMAX:
        sizes["data"] += ":8"
    place = {"fleet": fleet(boards), "store": "store.sqlite", "name": "mine"}

    rig.finish("fedavg", model=model, threshold=threshold, epsilon="1", seed=3, **sizes, **place)

    sent = DeviceModel.of_run("mine")
    assert (sent.model, sent.threshold) == (kind, float(threshold))
    for board in boards:
        assert_same_predictions(board, sent)
