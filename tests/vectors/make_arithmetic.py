"""Compute the expected values of shared_specs/vectors/arithmetic.json, for the inputs in it.

    PYTHONPATH=tests python tests/vectors/make_arithmetic.py

spec.arithmetic and spec.sums compute them, without the library. The inputs are chosen for the ends
and ties of every rounding; others are random.
"""

import struct

from parts import VECTORS, computed, write
from spec import arithmetic as spec
from spec import sums


def rows_of(case):
    """The parameters of each class."""
    d, parameters = case["d"], case["parameters"]
    return [parameters[start : start + d] for start in range(0, len(parameters), d)]


def record_of(case):
    """The features of the one record that answers in the case's round."""
    records = case["records"]
    return records[(case["round"] - 1) % len(records)][:-1]


def gradient(case):
    records, exponent, range_ = case["records"], case["exponent"], case["range"]
    used = [records[i] for i in spec.chosen(len(records), case["batch"], case["round"])]
    if case["model"] == spec.SOFTMAX:
        return {"values": spec.softmax_gradient(rows_of(case), exponent, used, range_)}
    return {"values": spec.mean_gradient(case["model"], case["parameters"], exponent, used, range_)}


def local(case):
    model = case["model"]
    gradients = spec.SOFTMAX if model == spec.LOCAL_SOFTMAX else model - spec.LOCAL
    names = ("parameters", "exponent", "records", "epochs", "batch", "rate", "tau", "classes")
    return {"values": spec.local_training(gradients, *(case[name] for name in names))}


def inference(case):
    """The probabilities of all classes on the grid of a Laplace card, or the likeliest class."""
    card = bytes.fromhex(case["card"])
    rows, exponent = rows_of(case), case["exponent"]
    is_label = card[0] == 0x12  # a window card
    if is_label:
        likely = spec.probabilities(rows, exponent, record_of(case), 14)
        return {"values": [likely.index(max(likely))]}
    grid_bits = card[5]
    return {"values": spec.probabilities(rows, exponent, record_of(case), grid_bits)}


def collection(case):
    (symbols,) = struct.unpack_from("<H", bytes.fromhex(case["card"]), 5)
    values = spec.collected(
        case["model"],
        case["asked"],
        record_of(case),
        case["range"],
        symbols,
        device=case.get("device", 7),
        number=case["round"],
        e=case.get("exponent", 0),  # above 0 for bins of numbers
    )
    return {"values": values}


def choice(case):
    return {"records": spec.chosen(case["count"], case["batch"], case["round"])}


def unit(case):
    vector, clipped = sums.unit_vector(case["totals"], case["norm"], case["R"], case["r"])
    return {"vector": vector, "clipped": clipped}


def main():
    vectors = computed(
        "arithmetic.json",
        gradients=gradient,
        local=local,
        inference=inference,
        collection=collection,
        choice=choice,
        units=unit,
    )
    write(VECTORS / "arithmetic.json", **vectors)


if __name__ == "__main__":
    main()
