"""What a device allows: the largest cost of a report, and a budget for life."""

from decimal import Decimal

from tern.ledger import MAX_BUDGET, RHO
from ternhost.errors import UsageError
from ternhost.options import Number
from ternhost.privacy import sums
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO, parse_epsilon

_MAX_EPSILON = "2"  # of a report
_BUDGET = "100"  # epsilon for life
_LARGEST_OPTION = "--max-epsilon"


def policy(
    max_epsilon: Number | None, budget: Number | None, delta: Number | None = None
) -> Policy:
    """Return the privacy limits of a device, from the options of the command line.

    With `delta`, both amounts are the epsilon of (epsilon, delta), and the device counts in rho (of
    zCDP). Without it the epsilons of reports add up.

    max_epsilon: the largest epsilon of a report; None for 2, or with `delta` for the whole budget.
    budget: the epsilon for life; None for 100. Raises UsageError.
    """
    budget_text = _BUDGET if budget is None else str(budget)
    if max_epsilon is not None:
        largest_text = str(max_epsilon)
    elif delta is None:
        largest_text = _MAX_EPSILON
    else:
        largest_text = budget_text
    if delta is None:
        limits = _in_epsilon(largest_text, budget_text)
    else:
        limits = _in_rho(largest_text, budget_text, sums.parse_delta(delta))
    if limits.largest > limits.budget:
        raise UsageError(
            f"{_LARGEST_OPTION} must be at most the --budget for life, {budget_text}, "
            f"not {largest_text}",
            hint=f"--budget = {_LARGEST_OPTION} x the number of reports pays for that many",
        )
    return limits


def _in_rho(max_epsilon: str, budget: str, delta: float) -> Policy:
    """Return the limits of a device that counts rho. Raises UsageError.

    max_epsilon: of a report, at `delta`. budget: for life, at `delta`.
    """
    rhos = []
    for text, option in ((max_epsilon, _LARGEST_OPTION), (budget, "--budget")):
        epsilon = parse_epsilon(text, MAX_BUDGET, option) / MICRO
        rhos.append(sums.rho_of(epsilon, delta))
    largest_rho, budget_rho = rhos
    return Policy(largest_rho, budget_rho, RHO)


def _in_epsilon(max_epsilon: str, budget: str) -> Policy:
    """Return the limits of a device that counts epsilon. Raises UsageError.

    max_epsilon: of a report. budget: for life.
    """
    largest_epsilon = parse_epsilon(max_epsilon, option=_LARGEST_OPTION)
    limits = Policy(largest_epsilon, parse_epsilon(budget, MAX_BUDGET, "--budget"))
    was_rounded = Decimal(budget.strip()) * MICRO != limits.budget
    if was_rounded:
        raise UsageError(
            f"--budget must be a whole number of millionths, not {budget!r}", hint="such as 100"
        )
    return limits
