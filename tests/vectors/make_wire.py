"""Compute the expected bytes of shared_specs/vectors/cobs.json and packing.json, for the inputs in them.

    PYTHONPATH=tests python tests/vectors/make_wire.py

spec.frames computes them in wide integers, without the device library, so that the two can disagree.
What must be refused, or is only decoded, is an input itself. make_frames.py makes the frames.
"""

from parts import VECTORS, computed, write
from spec.frames import cobs, packed


def coded(case):
    if case["result"] == "invalid" or "decode only" in case["flags"]:
        return {}
    return {"coded": cobs(bytes.fromhex(case["frame"]))}


def packing(case):
    if case["result"] == "invalid":
        return {}
    return {"packed": packed(case["symbols"], case["base"])}


def main():
    write(VECTORS / "cobs.json", **computed("cobs.json", tests=coded))
    write(VECTORS / "packing.json", **computed("packing.json", tests=packing))


if __name__ == "__main__":
    main()
