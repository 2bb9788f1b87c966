"""What a device allows, from the words of a command line: the largest cost of a report, and a
budget for life.
"""

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
    """The limits of a device, which counts rho if `delta` or `budget_rho` is named, else epsilon.

    Raises UsageError.

    largest: None for epsilon 2, or for a whole budget in rho.
    """
    if budget_rho is not None and (budget is not None or delta is not None):
        raise UsageError(
            "--budget-rho is a budget by itself", hint="leave out --budget and --delta"
        )
    total = str(_BUDGET if budget is None else budget)
    rho = None
    if delta is not None:
        epsilon = parse_epsilon(total, MAX_BUDGET, "--budget") / MICRO
        rho = sums.rho_of(epsilon, sums.parse_delta(delta))
        total = f"rho {rho / MICRO:g}"
    elif budget_rho is not None:
        rho = parse_epsilon(budget_rho, MAX_BUDGET, "--budget-rho")
        total = budget_rho
    if rho is not None:
        parsed = Policy(
            parse_epsilon(largest, MAX_BUDGET, "--largest") if largest else rho, rho, RHO
        )
    else:
        allowed = parse_epsilon(largest or _LARGEST, option="--largest")
        parsed = Policy(allowed, parse_epsilon(total, MAX_BUDGET, "--budget"))
        if Decimal(total.strip()) * MICRO != parsed.budget:
            text = f"--budget must be a whole number of millionths, not {total!r}"
            raise UsageError(text, hint="such as 100")
    if parsed.largest > parsed.budget:
        raise UsageError(
            f"--largest must be at most --budget, the device's budget for life ({total}), not {largest}",
            hint="--budget = --largest x the number of reports pays for that many",
        )
    return parsed
