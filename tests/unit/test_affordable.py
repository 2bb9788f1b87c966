"""A run that most devices cannot pay for does not begin, and its message says what would be
possible.
"""

from pathlib import Path

import numpy as np
import pytest
from harness import in_process  # noqa: F401, registers inprocess:N

from tern.ledger import EPSILON, RHO
from ternhost import datasets, errors
from ternhost.count.disclosures import Disclosures
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.learn.designs import class_of
from ternhost.privacy import sums
from ternhost.privacy.accounting import Policy
from ternhost.privacy.composing import ReportKind
from ternhost.provision import boards as provision
from ternhost.reach.driver import BoardBudget
from ternhost.run.affordable import Funds
from ternhost.store.store import Store

pytestmark = pytest.mark.usefixtures("here")
QUIET = ["--no-report", "--quiet"]
LIFE = sums.rho_of(1.2, 1e-6)  # micro-rho


def provisioned(budgets, *, measure=EPSILON, records=1, unit=0):
    """The options of a command for a board of one device for each of these budgets, in millionths.

    Each device has so many records of iris.
    """
    rows = datasets.load("iris").records(range(len(budgets) * records))
    policies = [Policy(max(budgets), budget, measure) for budget in budgets]
    boards = [Path(f"board-{i}").absolute() for i in range(len(budgets))]
    with Store("keys.sqlite") as store:
        provision.provision_fleet(store, boards, rows, policies, records, unit)
    ports = ",".join(f"inprocess:{board}" for board in boards)
    return ["--fleet", f"port:{ports}", "--store", "keys.sqlite", "--data", "iris", *QUIET]


def nothing_was_asked():
    with Store("keys.sqlite") as store:
        return not store.last_round() and not store.runs() and not Path("runs").exists()


# The rule


def budget_of(devices, left, spent=0):
    """What a board with these devices says of the ledger of the first one, in micro-epsilon."""
    return BoardBudget(devices, len(devices), EPSILON, left, spent, first=devices[0])


def funds(members, budgets, told=None):
    """The funds of a run of FedSGD on the devices `members`, whose boards have said `budgets`."""
    learner = ALGORITHMS["fedsgd"](ALGORITHMS["fedsgd"].Options(reports=10), Population(devices=10))
    return Funds.of(learner, np.array(members), budgets, told or Disclosures())


def test_a_device_is_able_to_pay_what_its_board_says_is_left():
    """Each board says how much epsilon is left of the budget of its device. A report costs 3: the
    devices with 3 and 5 left can pay for it, the one with nothing left cannot.
    """
    left_by_device = {1: 3, 2: 0, 3: 5}
    budgets = [budget_of(range(i, i + 1), left) for i, left in left_by_device.items()]
    price_in_epsilon_only = [3, None]
    assert funds([1, 2, 3], budgets).can_pay([price_in_epsilon_only]).tolist() == [
        True,
        False,
        True,
    ]


def test_the_other_devices_of_a_board_differ_by_what_the_store_knows():
    # Each had 10. By the store, device 1 has paid 2, device 2 nothing, device 3 has paid 5.
    told = Disclosures().with_reports([(ReportKind(2), [1], 1), (ReportKind(5), [3], 1)])
    board = [budget_of(devices=range(1, 4), left=8, spent=2)]
    assert funds([1, 2, 3], board, told).left.tolist() == [8, 10, 5]


def test_of_two_boards_that_claim_a_device_the_larger_amount_counts():
    claims = [
        budget_of(range(1, 4), left=0, spent=9),
        budget_of(range(2, 3), left=7),
    ]
    assert funds([1, 2, 3], claims).left.tolist() == [0, 7, 0]


def test_a_site_says_how_many_of_its_devices_have_what_left():
    """A site does not say which of its ten devices have spent their budgets, only how many: eight
    have 5 left and two have nothing. So eight can pay a price of 5.
    """
    site = np.arange(1, 11)
    budgets = [
        BoardBudget(site, 8, EPSILON, left=5, spent=0),
        BoardBudget(site, 2, EPSILON, left=0, spent=5),
    ]
    found = funds(site, budgets)
    assert found.devices[found.can_pay([[5, None]])].sum() == 8


# Five rounds cost 10.
FIVE_ROUNDS = ["fedsgd", "--rounds", "5", "--json"]


def test_a_run_that_fewer_than_half_of_its_devices_can_pay_for_does_not_begin(tern):
    fleet = provisioned([10_000_000] + [4_000_000] * 3)
    tern("train", *fleet, *FIVE_ROUNDS, code=errors.REFUSED)
    assert nothing_was_asked()


def test_a_run_that_half_of_its_devices_can_pay_for_begins(tern):
    fleet = provisioned([10_000_000, 4_000_000])
    result = tern("train", *fleet, *FIVE_ROUNDS, code=errors.REFUSED).json
    assert result["refusals"] == 3, "the device with 4 pays for two reports of 2"


def ledgers():
    """The content of the ledgers of all boards, by path."""
    return {path: path.read_bytes() for path in Path().glob("board-*/ledger/*")}


def test_the_ledgers_of_a_run_that_does_not_begin_are_unchanged(tern):
    fleet = provisioned([LIFE] * 2, measure=RHO, records=20, unit=1)
    before = ledgers()
    tern(
        "train",
        *fleet,
        "--unit",
        "record",
        "--run-epsilon",
        "2",
        "--records",
        "20",
        code=errors.REFUSED,
    )
    assert ledgers() == before
    assert nothing_was_asked()


def test_the_second_run_that_would_spend_the_rest_of_a_life_does_not_begin(tern):
    fleet = provisioned([LIFE], measure=RHO, records=20, unit=1)
    words = ["train", *fleet, "--unit", "record", "--run-epsilon", "1", "--records", "20"]
    tern(*words)
    tern(*words, "--name", "second", code=errors.REFUSED)
    assert not Path("runs/second").exists()


def test_a_ledger_in_epsilon_begins_no_run_that_costs_rho(tern):
    fleet = provisioned([100_000_000], records=20)
    tern("train", *fleet, "--unit", "record", "--records", "20", code=errors.REFUSED)
    assert nothing_was_asked()


# What would be possible


LEFT = 8  # the epsilon that each of the two devices has left
# Commands that would cost each device more, and the options that the hint of their refusal names.
# A report of `train` costs an epsilon of 2 unless --epsilon says otherwise.
TOO_DEAR = [
    # Four reports of 2, or nine reports of 8 / 9 = 0.888, rounded down.
    ("train fedsgd --rounds 9", ["--rounds 4", "--epsilon 0.888"]),
    ("train fedavg --rounds 9 --share 1 --records 1", ["--rounds 4"]),
    # A collection is a single report.
    ("collect --epsilon 9", ["--epsilon 8"]),
]


@pytest.fixture
def fleet_with_little_left():
    """The options of a command for two devices with an epsilon of LEFT."""
    return provisioned([LEFT * 1_000_000] * 2)


@pytest.mark.parametrize(("words", "fitting_options"), TOO_DEAR)
def test_the_refusal_of_a_run_names_options_that_fit_the_algorithm(
    words, fitting_options, fleet_with_little_left, tern
):
    command = [*words.split(), *fleet_with_little_left, "--json"]
    hint = tern(*command, code=errors.REFUSED).json["hint"]
    for option in fitting_options:
        assert option in hint
    assert nothing_was_asked()


@pytest.mark.parametrize(("words", "fitting_options"), TOO_DEAR)
def test_devices_can_pay_for_a_run_with_the_option_that_its_refusal_names_first(
    words, fitting_options, fleet_with_little_left, tern
):
    fitting = fitting_options[0].split()  # of an option that is given twice, the last one counts
    command = [*words.split(), *fitting, *fleet_with_little_left, "--json"]
    assert tern(*command, code=errors.OK).json["refusals"] == 0


def test_a_budget_for_life_that_fits_is_named(tern):
    """The ledgers hold what an epsilon of 1.2 for life costs, rounded down: 1.19 fits."""
    fleet = provisioned([LIFE] * 2, measure=RHO, records=20, unit=1)
    words = ["collect", *fleet, "--unit", "record", "--records", "20", "--json"]
    refused = tern(*words, "--run-epsilon", "2", code=errors.REFUSED).json
    assert "--run-epsilon 1.19;" in refused["hint"]
    assert tern(*words, "--run-epsilon", "1.19", code=errors.OK).json["refusals"] == 0


# Served fleets


SERVE = ["--patience", "0.01", "--name", "mine"]


def test_a_served_fleet_of_which_nobody_can_pay_for_a_report_is_not_asked(tern):
    fleet = provisioned([1_999_999] * 2)
    tern("serve", *fleet, *SERVE, "--every", "0", code=errors.REFUSED)
    assert nothing_was_asked()


def test_a_served_fleet_of_which_one_can_pay_is_asked_until_it_has_paid(tern):
    fleet = provisioned([1_999_999, 2_000_000])
    tern("serve", *fleet, *SERVE, "--rounds", "2", code=errors.REFUSED)
    with Store("keys.sqlite") as store:
        assert store.run("mine").state["reports"] == 1


def test_the_classes_of_a_run_pay_each_for_itself():
    """Every device has 2: the half that pays 1 a report is able, and the half that pays 4 is not."""
    cls = ALGORITHMS["fedsgd"]
    learner = cls(cls.Options(epsilons="1:0.5,4:0.5", reports=200), Population(devices=200))
    devices = np.arange(1, 201)
    budgets = [budget_of(range(1, 201), left=2_000_000)]
    funds_of_run = Funds.of(learner, devices, budgets, Disclosures())
    prices_of_classes = [[1_000_000, None], [4_000_000, None]]  # in epsilon, and not in rho
    able = funds_of_run.can_pay(prices_of_classes)
    in_first_class = class_of(devices, (0.5, 0.5), 1) == 0
    assert funds_of_run.devices[able].sum() == np.count_nonzero(in_first_class)
