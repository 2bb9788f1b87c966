"""The classes of clients in the experiments of PLDP-FL, as an option of tern."""

import pytest

from ternhost.learn.fedavg import Options
from ternpapers import safe_ranges

MICRO = 1_000_000
WEIGHTS = 28
EPSILONS = {"1": (0.1, 0.2), "2": [i / 10 for i in range(1, 11)], "3": (0.9, 1.0)}  # of a weight


@pytest.mark.parametrize("epsilon_mode", "123")
@pytest.mark.parametrize(
    ("tau_mode", "taus"),
    [("1", [0.2, 0.4]), ("2", [i / 5 for i in range(1, 11)]), ("3", [1.8, 2.0])],
)
def test_modes_of_the_paper_draw_tau_and_epsilon_independently_and_evenly(
    tau_mode, taus, epsilon_mode
):
    """In the paper's experiments, clients choose the range tau of their reports and their epsilon
    from a list, that of their mode. Every pair of the two is a class of clients, and all classes
    are equally large. The epsilon of a report is that of all weights.
    """
    text = safe_ranges.epsilons(epsilon_mode, tau_mode, WEIGHTS)
    chosen = Options(epsilons=text, k=str(WEIGHTS)).device_classes()
    assert sorted({choice.tau for choice in chosen}) == pytest.approx(taus)
    assert [choice.share for choice in chosen] == pytest.approx([1 / len(chosen)] * len(chosen))
    epsilons = {choice.epsilon / MICRO / WEIGHTS for choice in chosen}
    assert sorted(epsilons) == pytest.approx(EPSILONS[epsilon_mode])
    assert len(chosen) == len(taus) * len(epsilons), "every pair once"
