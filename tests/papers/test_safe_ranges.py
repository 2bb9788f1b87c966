"""The epsilons and safe ranges of clients in the experiments of PLDP-FL."""

import math

import numpy as np
import pytest

from ternhost.errors import UsageError
from ternhost.learn.models.fedavg import Options
from ternpapers import safe_ranges
from ternpapers.papers.shen.averaging import perturbed

MICRO = 1_000_000
WEIGHTS = 28
TENTHS = [i / 10 for i in range(1, 11)]
# By the paper's mode: the epsilons of a weight, and the sizes of safe ranges.
EPSILONS = {"1": [0.1, 0.2], "2": TENTHS, "3": [0.9, 1.0]}
SIZES = {"1": [0.2, 0.4], "2": [2 * tenth for tenth in TENTHS], "3": [1.8, 2.0]}
each_pair_of_modes = pytest.mark.parametrize(
    ("epsilon_mode", "tau_mode"), [(one, other) for one in "123" for other in "123"]
)


@each_pair_of_modes
def test_clients_take_the_epsilons_and_the_safe_ranges_of_a_mode_in_turn(epsilon_mode, tau_mode):
    """A safe range is 2 tau wide: tau is its half width."""
    choices = safe_ranges.in_turn(epsilon_mode, tau_mode)
    of_clients = [safe_ranges.choice_of(client, choices) for client in range(100)]
    epsilons, taus = np.transpose(of_clients)
    assert epsilons == pytest.approx(np.resize(EPSILONS[epsilon_mode], 100))
    assert 2 * taus == pytest.approx(np.resize(SIZES[tau_mode], 100))


@each_pair_of_modes
def test_the_classes_of_devices_are_the_choices_of_the_paper_s_clients(epsilon_mode, tau_mode):
    """All classes are equally large. The epsilon of a report is that of all weights."""
    text = safe_ranges.epsilons(epsilon_mode, tau_mode, WEIGHTS)
    classes = Options(epsilons=text, k=str(WEIGHTS)).device_classes()
    choices = safe_ranges.in_turn(epsilon_mode, tau_mode)

    assert [each.share for each in classes] == pytest.approx([1 / len(choices)] * len(choices))
    of_weights = [(each.epsilon / MICRO / WEIGHTS, each.tau) for each in classes]
    assert np.array(of_weights) == pytest.approx(np.array(choices))


@pytest.mark.parametrize("modes", [("4", "1"), ("1", "0")])
def test_a_mode_that_the_paper_does_not_have_is_refused(modes):
    with pytest.raises(UsageError):
        safe_ranges.epsilons(*modes, WEIGHTS)


def test_pdpm_at_epsilon_1_and_a_safe_range_of_size_0_2_reports_one_of_the_paper_s_three_outputs():
    """The paper has L (E + 3) / (2 (E - 1)), -L (E + 1) / (E - 1) and 0, where L is the size of the
    range and E = exp(epsilon).
    """
    _, tau = safe_ranges.in_turn("3", "1")[0]
    length = 0.2
    assert tau == length / 2
    highest = length * (math.e + 3) / (2 * (math.e - 1))
    lowest = -length * (math.e + 1) / (math.e - 1)
    assert (highest, lowest) == pytest.approx((0.333, -0.433), abs=5e-4)

    rng = np.random.default_rng(1)
    reports = perturbed(np.zeros((1, 100)), "pdpm", ((1.0, tau),), centre=0.0, rng=rng)
    assert np.unique(reports) == pytest.approx([lowest, 0, highest])
