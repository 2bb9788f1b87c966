"""Sequential composition of a client's reports, and what a run says of it."""

import pytest

from tern import ledger, sums
from ternhost.errors import RefusedError
from ternhost.privacy.accounting import PrivacyAccount, Release
from ternhost.privacy.sums import epsilon_of


def test_a_plan_beyond_the_budget_is_refused_before_it_starts():
    """An account of privacy adds up what a plan will release about a person: epsilon, values and
    times. A plan that costs more than the budget must not begin.
    """
    weights = Release("weight", 100_000, values=10, times=3)  # millionths of epsilon
    results = Release("inference result", 1_000_000, times=2)
    plan, cost = (weights, results), 10 * 3 * 100_000 + 2 * 1_000_000
    assert PrivacyAccount(plan).user_level == cost
    assert PrivacyAccount(plan, cost).user_level == cost, "all of the budget"
    with pytest.raises(RefusedError, match=r"spend epsilon 5, .*has 4.9 left: 3 reports of 10"):
        PrivacyAccount(plan, 4_900_000)


SUM = Release("sum", 25_650, times=60, measure=ledger.RHO, gaussian=True)


def test_a_ledger_in_rho_counts_gaussian_sums_as_they_are_and_prices_pure_reports():
    pure = Release("coordinate", 1_000_000, 2, measure=ledger.RHO)
    account = PrivacyAccount((SUM, pure), 3_000_000)
    assert account.user_level == 60 * 25_650 + 2 * sums.rho(1_000_000)
    assert account.summary()["epsilon_user_level"] == epsilon_of(account.user_level, 1e-6)


def test_an_account_in_rho_beyond_its_budget_is_refused():
    with pytest.raises(RefusedError, match="would spend rho"):
        PrivacyAccount((SUM,), 1_500_000)


def test_a_ledger_in_epsilon_does_not_count_gaussian_sums():
    with pytest.raises(RefusedError, match="count epsilon"):
        Release("sum", 1, gaussian=True)
    with pytest.raises(ValueError, match="count epsilon"):
        PrivacyAccount((SUM, Release("coordinate", 1)))
