"""What a device allows: the largest cost of a report, and a budget for life."""

from decimal import Decimal

from tern.ledger import MAX_BUDGET, RHO
from ternhost.errors import UsageError
from ternhost.privacy import sums
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO, parse_epsilon

_LARGEST, _BUDGET = "2", "100"  # epsilon of a report, and for life


def policy(
    largest: str | None, budget: str | None, delta: str | None = None, budget_rho: str | None = None
) -> Policy:
    """Return the privacy limits of a device, from the options of the command line.

    The device counts in rho (of zCDP) if `delta` or `budget_rho` is named, else in epsilon.

    largest: the largest epsilon, or rho, of a report; None for epsilon 2, or for the whole budget
    where it is in rho. budget: the epsilon for life, as the sum over all reports; together with
    `delta`, the epsilon of (epsilon, delta). budget_rho: the rho for life, instead of both. Raises
    UsageError.
    """
    if budget_rho is not None and (budget is not None or delta is not None):
        raise UsageError(
            "--budget-rho is a budget by itself", hint="leave out --budget and --delta"
        )
    total_text = _BUDGET  # the whole budget, as it stands in the message
    if budget is not None:
        total_text = str(budget)
    if delta is not None:
        epsilon = parse_epsilon(total_text, MAX_BUDGET, "--budget") / MICRO
        rho = sums.rho_of(epsilon, sums.parse_delta(delta))
        total_text = f"rho {rho / MICRO:g}"
        limits = _in_rho(largest, rho)
    elif budget_rho is not None:
        total_text = budget_rho
        limits = _in_rho(largest, parse_epsilon(budget_rho, MAX_BUDGET, "--budget-rho"))
    else:
        limits = _in_epsilon(largest, total_text)
    if limits.largest > limits.budget:
        raise UsageError(
            f"--largest must be at most --budget, the device's budget for life ({total_text}), "
            f"not {largest}",
            hint="--budget = --largest x the number of reports pays for that many",
        )
    return limits


def _in_rho(largest: str | None, rho: int) -> Policy:
    """Return the limits of a device that counts rho. rho: its budget, in millionths.

    largest: of a report; None for the whole budget. Raises UsageError.
    """
    largest_rho = rho
    if largest:
        largest_rho = parse_epsilon(largest, MAX_BUDGET, "--largest")
    return Policy(largest_rho, rho, RHO)


def _in_epsilon(largest: str | None, budget: str) -> Policy:
    """Return the limits of a device that counts epsilon. Raises UsageError.

    largest: of a report; None for the default. budget: for life.
    """
    largest_epsilon = parse_epsilon(largest or _LARGEST, option="--largest")
    limits = Policy(largest_epsilon, parse_epsilon(budget, MAX_BUDGET, "--budget"))
    was_rounded = Decimal(budget.strip()) * MICRO != limits.budget
    if was_rounded:
        raise UsageError(
            f"--budget must be a whole number of millionths, not {budget!r}", hint="such as 100"
        )
    return limits
