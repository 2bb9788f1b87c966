"""The statement of a guarantee says what was certified: of every kind of report and span, in words
and in JSON.
"""

import json
import math
from dataclasses import replace
from decimal import Decimal

import pytest

from tern import card as cards
from ternhost.privacy import gaussian_curve, sums
from ternhost.privacy.base import MICRO
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import Bounds, Guarantee, Span, believed, rounded
from ternhost.privacy.mechanisms import NAMES, design

DELTA = 1e-6
SUM = {"radius": 0.5, "clipped": 24, "kept": -8, "units": 500, "values": 6}


def of_sum(unit, norm, cost=200_000):
    """A report of sums over runs of so many records (0: all); norm 1: Laplace, 2: Gaussian."""
    plan = sums.SumPlan(cost=cost, norm=norm, unit=unit, **SUM)
    return ReportKind.of(cards.decode(sums.design(plan).card))


def card_of(name):
    levels = {"levels": 3} if name == "grr" else {}
    return cards.decode(design(name, epsilon_micro=2 * MICRO, **levels).card)


VALUES = [name for name in NAMES if name not in ("auto", "projection")]


@pytest.mark.parametrize("name", VALUES)
def test_a_report_of_values_protects_the_device_with_the_epsilon_of_its_card(name):
    card = card_of(name)
    found = Guarantee.of(Span.REPORT, {ReportKind.of(card): 1}, DELTA)
    assert cards.certify(card)
    assert found.bounds.pure == card.epsilon / MICRO
    assert found.protects == "a device with all of its records"


@pytest.mark.parametrize("unit", [1, 60])
def test_laplace_sums_protect_a_run_with_their_epsilon_and_what_it_says_with_twice_that(unit):
    guarantee = Guarantee.of(Span.RUN, {of_sum(unit, norm=1): 5}, DELTA)
    presence = guarantee.bounds.pure
    assert presence == pytest.approx(5 * 0.2, rel=1e-3)
    assert guarantee.content.pure == pytest.approx(2 * presence), "a run is removed, another added"
    assert guarantee.event.pure == pytest.approx(4 * presence), "an event may lie in two runs"


@pytest.mark.parametrize("unit", [1, 60])
def test_gaussian_sums_protect_a_run_with_their_rho_and_what_it_says_with_four_times_that(unit):
    """A device reports sums over its records with Gaussian noise, which hide one record or a run of
    60. That a run is there moves a sum by one step, that it says something else by two, and an
    event in two runs by four; rho grows with the square of that. The statement has an epsilon for
    each.
    """
    report = of_sum(unit, norm=2)
    guarantee = Guarantee.of(Span.RUN, {report: 5}, DELTA)  # five such reports in one training run

    def epsilon_of_steps(steps):
        """By the curve of the normal distribution."""
        return gaussian_curve.epsilon_of(5 * steps**2 * report.normal, DELTA)

    assert guarantee.bounds.epsilon == epsilon_of_steps(1)
    assert guarantee.content.epsilon == epsilon_of_steps(2)
    assert guarantee.event.epsilon == epsilon_of_steps(4)
    assert guarantee.bounds.pure is None, "no epsilon without a delta"


@pytest.mark.parametrize("norm", [1, 2])
def test_sums_over_a_device_protect_it_once(norm):
    report = of_sum(0, norm)
    found = Guarantee.of(Span.RUN, {report: 1}, DELTA)
    assert (found.unit, found.content, found.event) == (0, None, None)
    assert found.protects == "a device with all of its records"


def test_beside_sums_over_records_reports_about_the_device_protect_records_only():
    reports = {of_sum(unit=1, norm=2): 3, ReportKind.of(card_of("three-outputs")): 1}
    guarantee = Guarantee.of(Span.LIFE, reports, DELTA)
    assert guarantee.unit == 1
    assert guarantee.bounds.epsilon > 1.9, "the report about the device alone costs 2, about"
    assert "protect one record of a device with epsilon" in guarantee.words()


@pytest.mark.parametrize("norm", [1, 2], ids=["Laplace", "Gaussian"])
@pytest.mark.parametrize(
    ("shorter", "longer", "steps"),
    [
        (30, 60, 2),  # a run of 30 records lies in one run of 60
        (60, 90, 4),  # in a run of 60 records, one of 90 may end and another begin
    ],
)
def test_reports_about_runs_of_two_lengths_protect_the_shorter_run(norm, shorter, longer, steps):
    """A device's noisy sums hide any run of so many consecutive records. If it reports sums for
    runs of two lengths, the guarantee is about the shorter one. A short run changes at most `steps`
    steps of the sums over longer ones, so that these cost what so many steps cost.
    """
    of_shorter, of_longer = of_sum(shorter, norm), of_sum(longer, norm)

    guarantee = Guarantee.of(Span.RUN, {of_shorter: 1, of_longer: 1}, DELTA)

    assert guarantee.unit == shorter
    longer_changed = replace(of_longer.for_steps(steps), unit=shorter)
    assert guarantee.bounds == Bounds.of({of_shorter: 1, longer_changed: 1}, DELTA)


A_TENTH = ReportKind.of(cards.decode(design("three-outputs", epsilon_micro=100_000).card))
A_YEAR = {A_TENTH: 365}  # of one report of epsilon .1 a day


def test_numbers_at_delta_of_reports_that_were_not_fixed_before_have_a_condition():
    condition = "if no run was chosen by the results of earlier ones"
    assert condition not in Guarantee.of(Span.RUN, A_YEAR, DELTA).words()
    assert Guarantee.of(Span.RUN, A_YEAR, DELTA, fixed=False).words().endswith(condition)
    assert Guarantee.of(Span.LIFE, A_YEAR, DELTA).words().endswith(condition)


@pytest.mark.parametrize(
    "reports",
    [{of_sum(60, 1): 3}, {of_sum(0, 2): 1, ReportKind(MICRO): 1}],
    ids=["runs", "device"],
)
def test_json_keeps_the_exact_numbers(reports):
    found = Guarantee.of(Span.RUN, reports, DELTA, share=0.25)
    assert Guarantee.from_json(json.loads(json.dumps(found.as_json()))) == found


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (3.99999, "4"),
        (4.0, "4"),
        (0.927374, "0.928"),
        (0.0, "0"),
        (4.000001, "4.01"),
        (1234567.8, "1,234,568"),
    ],
)
def test_people_read_numbers_that_are_rounded_up(number, words):
    assert rounded(number) == words
    assert Decimal(words.replace(",", "")) >= Decimal(repr(number))


def test_odds_beyond_epsilon_are_less_likely_than_is_told():
    """A guarantee at a delta also states how likely the odds of a guess about a device grow or
    shrink by more than exp(epsilon). Compared with the exact probability for a normal report, whose
    log odds are normal themselves: their mean is half of shift**2, their deviation is shift =
    sqrt(2 rho).
    """
    rho = sums.rho_of(1, DELTA)
    report = ReportKind(rho, gaussian=True, alone=True, unit=1, normal=rho)
    bounds = Guarantee.of(Span.RUN, {report: 1}, DELTA).bounds

    shift = math.sqrt(2 * rho / MICRO)
    odds_grow = 0.5 * math.erfc((bounds.epsilon / shift - shift / 2) / math.sqrt(2))
    odds_shrink = 0.5 * math.erfc((bounds.epsilon / shift + shift / 2) / math.sqrt(2))
    exact = odds_grow + odds_shrink
    assert exact <= bounds.exceeded < 3 * exact


def test_odds_beyond_a_pure_epsilon_never_happen():
    guarantee = Guarantee.of(Span.REPORT, {ReportKind(MICRO): 1}, DELTA)
    assert guarantee.bounds.exceeded == 0


def test_what_is_believed_follows_from_the_odds():
    assert believed(0.5, math.log(3)) == pytest.approx(0.75)
    assert believed(0.01, 0.0) == pytest.approx(0.01)
