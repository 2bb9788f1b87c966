"""The evidence for the sentences of a privacy statement: theorems, specifications and tests.

Paths are those of the project's repository. A test compares this table with the files there.
"""

from dataclasses import dataclass
from enum import StrEnum

from ternhost.extensions import EXTENSIONS


class Key(StrEnum):
    """The names of the pieces of evidence, by which sentences refer to them."""

    FACT = "fact"
    NEIGHBOURS = "neighbours"
    CARD = "card"
    COMPOSITION = "composition"
    GAUSSIAN = "gaussian"
    ODDS = "odds"
    GROUP = "group"
    LEDGER = "ledger"
    HOST = "host"
    PAYMENTS = "payments"
    LEAVES = "leaves"
    TIME = "time"
    FORGERY = "forgery"
    COPIES = "copies"
    LOCK = "lock"
    RANDOMNESS = "randomness"
    SEED = "seed"
    UPDATES = "updates"
    DEFINITION = "definition"


@dataclass(frozen=True)
class Evidence:
    """What stands behind a sentence: what is shown, on which pages, and which tests try to break it.

    shows: a clause without a capital letter and a full stop.
    """

    shows: str
    sources: tuple[str, ...] = ()  # pages of the repository, with anchors
    tests: tuple[str, ...] = ()  # of the repository, as "file::test" or a whole file


EVIDENCE: dict[str, Evidence] = {
    Key.FACT: Evidence(
        "a fact of this run, store or board, as tern recorded it or the board reported it"
    ),
    Key.NEIGHBOURS: Evidence(
        "the definition of neighbours: the two data sets of a device that nobody may tell apart",
        ("shared_specs/ledger.md#neighbours",),
        ("tests/unit/test_neighbours.py",),
    ),
    Key.CARD: Evidence(
        "the epsilon or rho of a report, proved from the integers of its card by the host and again by each device",
        ("shared_specs/cards.md#cards", "shared_specs/ledger.md#measure"),
        (
            "tests/unit/test_certify.py::test_the_certified_epsilon_holds_and_is_the_smallest",
            "tests/unit/test_sums_law.py::test_neighbours_are_as_close_as_the_card_claims",
            "tests/unit/test_projection_law.py::test_the_law_is_exact",
            "tests/device/test_card.py::test_vectors_are_certified_down_to_their_smallest_epsilon",
        ),
    ),
    Key.COMPOSITION: Evidence(
        "Theorems 1 to 3: what several reports tell together, by adding up, by zCDP, and exactly",
        ("docs/guides/accounting.md#sum-and-zcdp", "docs/guides/accounting.md#exact-composition"),
        (
            "tests/unit/test_losses.py",
            "tests/unit/test_guarantee.py",
            "tests/unit/test_odometer.py",
        ),
    ),
    Key.GAUSSIAN: Evidence(
        "Theorem 6: what sums with Gaussian noise tell together, and how often odds move further than epsilon",
        ("docs/guides/accounting.md#gaussian-noise",),
        ("tests/unit/test_gaussian_curve.py",),
    ),
    Key.ODDS: Evidence(
        "what an epsilon means for beliefs: by Bayes' rule, odds change by at most the factor e^epsilon",
        ("docs/guides/epsilon.md#what-one-report-tells",),
        ("tests/unit/test_guarantee.py::test_what_is_believed_follows_from_the_odds",),
    ),
    Key.GROUP: Evidence(
        "group privacy: data sets that are k neighbours apart are told apart at k epsilon, or k squared rho",
        ("shared_specs/ledger.md#neighbours", "docs/guides/unit.md#what-neighbours-are"),
        (
            "tests/unit/test_neighbours.py::test_what_a_record_says_is_told_better_than_that_it_was_there",
        ),
    ),
    Key.LEDGER: Evidence(
        "a device pays for a report in its ledger before it sends it, and refuses what its budget does not cover",
        ("shared_specs/ledger.md#order-of-events-in-a-round", "shared_specs/ledger.md#durable"),
        (
            "tests/device/test_ledger.py::test_power_cut_at_every_step_of_a_round",
            "tests/device/test_ledger.py::test_power_cut_at_every_write_of_littlefs",
            "tests/unit/test_sums_ledger.py",
        ),
    ),
    Key.HOST: Evidence(
        "whatever a host asks, each answer is paid for, and an unproved card or another unit is refused",
        (
            "shared_specs/wire.md#what-a-device-does-with-a-round",
            "shared_specs/ledger.md#neighbours",
        ),
        (
            "tests/device/test_hostile_host.py::test_every_lie_is_answered_and_the_budget_holds",
            "tests/unit/test_neighbours.py::test_a_sum_over_a_multiple_of_the_unit_is_refused_and_costs_nothing",
        ),
    ),
    Key.PAYMENTS: Evidence(
        "what boards say that they have paid, compared with the rounds of the store",
        ("docs/guides/runs.md#what-a-device-has-told-in-its-life",),
        ("tests/unit/test_payments.py",),
    ),
    Key.LEAVES: Evidence(
        "the list of everything that leaves a device, and what it may depend on",
        ("shared_specs/storage.md#what-leaves-a-device",),
        ("tests/integration/test_visible.py", "tests/unit/test_visible_table.py"),
    ),
    Key.TIME: Evidence(
        "with a slot, a device answers at moments that do not depend on its records",
        ("shared_specs/storage.md#what-leaves-a-device",),
        ("tests/integration/test_visible.py", "tests/integration/test_timing.py"),
    ),
    Key.FORGERY: Evidence(
        "questions and reports carry tags: nobody can answer for a device without its key, or ask it without its key "
        "or that of the fleet",
        ("shared_specs/wire.md#tags", "shared_specs/mqtt.md#who-may-do-what"),
        ("tests/device/test_frames.py::test_tag_vectors", "tests/device/test_hostile_host.py"),
    ),
    Key.COPIES: Evidence(
        "an old copy of a board's flash is refused only where the ledger is bound to a counter of the chip",
        ("shared_specs/ledger.md#counter",),
        ("tests/device/test_counter.py",),
    ),
    Key.LOCK: Evidence(
        "a locked board gives nobody its console; records and keys lie unencrypted in its flash",
        ("shared_specs/storage.md#lock", "docs/guides/locks.md#lock-a-board"),
        ("tests/integration/test_locked.py",),
    ),
    Key.RANDOMNESS: Evidence(
        "the noise comes from a tested generator on the device, seeded by its hardware",
        ("shared_specs/entropy.md#random-bytes",),
        ("tests/device/test_entropy.py",),
    ),
    Key.SEED: Evidence(
        "the noise of simulated clients follows from a seed",
        ("docs/guides/runs.md#what---seed-fixes",),
        ("tests/unit/test_simulated_store.py::test_the_seed_of_a_simulated_fleet_fixes_its_noise",),
    ),
    Key.UPDATES: Evidence(
        "who can install programs on a board that accepts updates",
        ("shared_specs/update.md#who-can-update-what",),
        ("tests/device/test_update.py",),
    ),
    Key.DEFINITION: Evidence(
        "a limit of the definition: differential privacy is about one device or one run of records, not about more",
        ("docs/guides/unit.md#what-neighbours-are",),
    ),
}


def find(key: str) -> Evidence:
    """Return the evidence with this key, of tern itself or of an extension. Raises KeyError."""
    if key in EVIDENCE:
        return EVIDENCE[key]
    for extension in EXTENSIONS.available():
        if key in extension.evidence:
            return extension.evidence[key]
    raise KeyError(key)
