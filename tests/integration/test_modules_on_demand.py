"""Rounds that need a module on demand: an emulated board with the module answers, one without it
refuses for free.
"""

import pytest
import rig
from harness import kept
from simulating import ask

from tern import wire
from ternhost.count.questions import Question
from ternhost.learn import clustering
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.reach import fleet
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.refusals import AllRefused
from ternhost.store.store import Store

D = 4
CARD, NOISE = design("duchi", 2), clustering.noise_card(2_000_000)
LOCAL = Question(wire.LOCAL + wire.LOGISTIC, [100] * D, -12, CARD.card, 1, 0, (2, 2, 1 << 18))
CLASSES = Question(
    wire.LOCAL_SOFTMAX, [100] * 2 * D, -12, CARD.card, 1, 0, (2, 2, 1 << 18), classes=2
)
INFERENCE = Question(wire.SOFTMAX, list(range(0, 800, 100)), -12, NOISE, 2, classes=2)
VALUES = Question(wire.VALUES, [1, 0, 1, 1], 0, CARD.card, 1)


def test_a_board_answers_with_its_modules_and_refuses_for_free_without(tmp_path):
    rows, policy = rig.random_rows(3, 6, D + 1), Policy(3_000_000, 9_000_000)
    path, directories = rig.provision(tmp_path, rows, policy, each=3)
    devices = [1, 2]
    with Store(path) as store:
        boards = fleet.parse("rv32-emulated:1").boards(directories, ("local", "collect"))
        with BoardsDriver(store, boards, Terms()) as driver:
            assert ask(driver, [(LOCAL, devices)], 1).reports == 2
            # Local training of classes needs softmax, too.
            for number, question in enumerate((INFERENCE, CLASSES), start=2):
                with pytest.raises(AllRefused, match="lack the module") as caught:
                    ask(driver, [(question, devices)], number)
                assert "tern deploy --with" in caught.value.hint
                for refusal in caught.value.result.refusals.values():
                    assert refusal.code == wire.ERR_MODEL
                    assert refusal.detail == question.model
            assert ask(driver, [(VALUES, devices)], 4).reports == 2

    two_reports = 2 * CARD.decode().epsilon
    assert kept.spent(directories) == dict.fromkeys(devices, two_reports)
