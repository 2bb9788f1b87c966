"""The published vectors and the device tests find small mistakes in the device library."""

import mutation
import pytest

# Of each module: the files of tests/device that find its mistakes, and the share of mutants that
# they must find, in per cent. It is a little less than what they found of 24 mutants.
MODULES = {
    "card": (["test_card.py", "test_sampler.py", "test_rounds.py"], 85),
    "client": (["test_rounds.py", "test_client.py", "test_fleet_round.py"], 75),
    "collect": (["test_rounds.py", "test_features.py"], 80),
    "coordinates": (["test_coordinates.py"], 85),
    "counter": (["test_counter.py", "test_ledger.py"], 90),
    "entropy": (["test_entropy.py", "test_sampler.py"], 90),
    "fill": (["test_entropy.py"], 90),
    "fixed": (["test_fixed.py", "test_card.py"], 85),
    "frames": (["test_frames.py", "test_rounds.py"], 80),
    "gradient": (["test_arithmetic.py", "test_gradient.py", "test_rounds.py"], 80),
    "hash_drbg": (["test_entropy.py"], 90),
    "inference": (["test_inference.py", "test_rounds.py"], 85),
    "ledger": (
        ["test_ledger.py", "test_between_reports.py", "test_reserve.py", "test_counter.py"],
        85,
    ),
    "lhp": (["test_lhp.py", "test_card.py", "test_sampler.py", "test_rounds.py"], 70),
    "local": (["test_arithmetic.py", "test_local.py", "test_rounds.py"], 85),
    "many": (["test_fleet_round.py", "test_rounds.py", "test_slot.py"], 60),
    "model": (["test_model.py", "test_frames.py"], 85),
    "noise": (["test_sums.py"], 80),
    "octets": (["test_octets.py", "test_frames.py", "test_rounds.py"], 90),
    "policy": (["test_rounds.py", "test_client.py", "test_slot.py", "test_fleet_round.py"], 70),
    "projection": (["test_projection.py", "test_card.py", "test_rounds.py"], 85),
    "recorder": (["test_recorder.py"], 85),
    "report": (["test_rounds.py", "test_client.py"], 75),
    "rotation": (["test_projection.py"], 90),
    "sampler": (["test_sampler.py", "test_rounds.py"], 85),
    "session": (["test_rounds.py", "test_client.py"], 65),
    "softmax": (["test_arithmetic.py", "test_gradient.py", "test_rounds.py"], 75),
    "storage": (["test_rounds.py", "test_client.py", "test_slot.py"], 80),
    "sums": (["test_sums.py", "test_card.py", "test_rounds.py"], 80),
    "table": (["test_sampler.py"], 90),
    "update": (["test_update.py"], 75),
}

# Mutants that compute the same as the library, by module. They do not count.
EQUIVALENT = {
    "coordinates": {"swap of k > 1"},  # of one coordinate, the order is not needed but does no harm
    "fixed": {
        "swap of value > ONE",  # the bound itself becomes the bound
        "swap of value < -ONE",
        "one more of 20",  # a guard bit more
    },
    "card": {"swap of most << EXP_BITS > bound * least"},  # the bound of exp is irrational
    "collect": {"swap of MAX_DIMENSION + 1", "one more of 0"},  # room, and its first content
    "noise": {"swap of n > 1"},  # an integer below 1 is 0, without a random byte
    "sampler": {"swap of draw < 0", "swap of comparison < 0"},  # neither is 0 there
    "gradient": {"drop of self.result = None"},
    "storage": {"drop of self.close()"},  # of a file that nobody uses
    "local": {"swap of moved < 0"},
}

_ALL = 24  # mutants of a module with --exhaustive,
_FEW = 4  # and without


def chosen(module, number):
    """The same mutants of a module every time, from all of its source."""
    source = (mutation.LIBRARY / f"{module}.py").read_text()
    skipped = EQUIVALENT.get(module, set())
    return [
        (what, text)
        for what, text in mutation.mutants(source, number)
        if what.partition(": ")[2] not in skipped
    ]


@pytest.mark.slow
@pytest.mark.sampled(7)
@pytest.mark.parametrize("module", MODULES)
def test_device_tests_find_small_mistakes_of_a_module(module, pytestconfig):
    """Mutation testing: a small mistake, such as < for <=, is put into a module of the device
    library, and its tests are run. They must fail for the share of mistakes that MODULES states in
    percent.
    """
    test_files, least_percent = MODULES[module]
    few = not pytestconfig.getoption("exhaustive")
    tried = chosen(module, _FEW if few else _ALL)

    survivors = [what for what, text in tried if not mutation.is_caught(module, text, test_files)]

    # Of four mutants, one survivor would already be less than most shares.
    allowed = max(1, len(tried) * (100 - least_percent) // 100)
    assert len(survivors) <= allowed, survivors


def test_the_library_as_it_is_passes():
    source = (mutation.LIBRARY / "table.py").read_text()
    assert not mutation.is_caught("table", source, MODULES["table"][0])
