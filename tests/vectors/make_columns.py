"""Compute the expected values of shared_specs/vectors/columns.json, for the inputs in it.

    PYTHONPATH=tests python tests/vectors/make_columns.py

spec.columns computes them, without the library.
"""

from parts import VECTORS, computed, write
from spec import columns as spec


def bounds(case):
    names = ("first", "last", "times", "per")
    return dict(zip(names, spec.bounds(case["low"], case["high"]), strict=True))


def record(case):
    """The record of a case; none if the schema does not have one of its categories."""
    if case["result"] == "invalid":
        return {}
    return {"record": spec.record(case["schema"], case["values"])}


def main():
    vectors = computed("columns.json", bounds=bounds, records=record)
    write(VECTORS / "columns.json", **vectors)


if __name__ == "__main__":
    main()
