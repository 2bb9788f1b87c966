"""What MindSpore's settings are as options of tern."""

import numpy as np
import pytest

from tern import card as cards
from ternhost.errors import UsageError
from ternhost.learn.base import Population
from ternhost.learn.inference import clustering
from ternhost.learn.inference.infer import Infer, Options
from ternhost.privacy import cards as card_law
from ternpapers import mindspore_settings as mindspore

MICRO = 1_000_000


def test_the_setting_of_mindspore_is_half_of_the_true_epsilon():
    assert Options(**mindspore.options("0.75")).epsilon == "1.5"


def test_noise_is_at_most_the_named_one_with_its_probability():
    setting = mindspore.setting_for(noise=0.25, probability=0.75)
    epsilon = float(mindspore.true_epsilon(setting))
    card = cards.decode(clustering.noise_card(round(epsilon * MICRO)))
    law, middle = np.array(card_law.distribution(card, 0)), card.symbols // 2
    steps = round(0.25 * 2**card.grid_bits)
    assert law[middle - steps : middle + steps + 1].sum() == pytest.approx(0.75, abs=1e-3)


def test_the_guide_s_noise_needs_its_setting():
    assert mindspore.setting_for(noise=1e-5, probability=0.9) == pytest.approx(230_260, rel=1e-5)


def test_without_encryption_there_is_no_noise():
    options = mindspore.options(
        privacy_eval_type="NOT_ENCRYPT", cluster_client_num=30, eval_type="NOT_EVAL"
    )
    assert Options(**options) == Options(no_noise=True, clients=30, score="none")


@pytest.mark.parametrize(
    "wrong",
    [{"eval_type": "BEST"}, {"privacy_eval_type": "GAUSS"}, {"laplace_eval_eps": "much"}],
)
def test_settings_that_mindspore_does_not_have_are_refused(wrong):
    with pytest.raises(UsageError):
        mindspore.options(**wrong)


def test_the_guide_s_number_of_clients_is_the_most_that_are_asked():
    """The guide has 1000; of the 75 clients here, all report."""
    options = Options(**mindspore.options(cluster_client_num=1000))
    assert Infer(options, Population(clients=75)).reports == 75
