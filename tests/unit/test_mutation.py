"""The published vectors and the device tests find small mistakes in the device library."""

# Of each module: the files of tests/device that find its mistakes, and the least share that they
# must find. Most of the others change nothing that can be seen (`mutation.py MODULE` lists them):
# they save work or memory, guard against what cannot happen, or shift a bound that nothing reaches.
MODULES = {
    "card": (["test_card.py", "test_rounds.py", "test_sampler.py"], 0.8),
    "client": (["test_rounds.py", "test_client.py", "test_slot.py", "test_reserve.py"], 0.8),
    "collect": (["test_rounds.py", "test_features.py"], 0.8),
    "coordinates": (["test_coordinates.py"], 0.8),
    "counter": (["test_counter.py", "test_ledger.py"], 0.8),
    "entropy": (["test_entropy.py", "test_sampler.py"], 0.8),
    "fixed": (["test_fixed.py", "test_card.py"], 0.8),
    "frames": (["test_frames.py", "test_rounds.py"], 0.8),
    "gradient": (["test_arithmetic.py", "test_gradient.py", "test_rounds.py"], 0.8),
    "hash_drbg": (["test_entropy.py"], 0.8),
    "inference": (["test_inference.py", "test_rounds.py"], 0.8),
    "ledger": (["test_ledger.py", "test_reserve.py", "test_counter.py"], 0.8),
    "lhp": (["test_lhp.py", "test_sampler.py", "test_rounds.py"], 0.8),
    "local": (["test_arithmetic.py", "test_local.py", "test_rounds.py"], 0.8),
    "many": (["test_fleet_round.py", "test_rounds.py", "test_slot.py"], 0.8),
    "model": (["test_model.py", "test_frames.py"], 0.8),
    "noise": (["test_sums.py"], 0.8),
    "projection": (["test_projection.py", "test_rounds.py"], 0.8),
    "recorder": (["test_recorder.py"], 0.8),
    "rotation": (["test_projection.py"], 0.8),
    "sampler": (["test_sampler.py", "test_rounds.py"], 0.8),
    "softmax": (["test_arithmetic.py", "test_gradient.py", "test_rounds.py"], 0.8),
    "storage": (["test_rounds.py", "test_client.py", "test_slot.py"], 0.8),
    "sums": (["test_sums.py", "test_rounds.py"], 0.8),
    "table": (["test_sampler.py"], 0.8),
    "update": (["test_update.py"], 0.8),
}
