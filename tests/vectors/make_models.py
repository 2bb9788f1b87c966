"""Compute the expected predictions and unusual features of shared_specs/vectors/models.json.

Its inputs are in the file already.

    PYTHONPATH=tests python tests/vectors/make_models.py

spec.arithmetic computes them, without the library.
"""

from make_arithmetic import rows_of
from parts import VECTORS, computed, write
from spec.arithmetic import (
    INFERENCE,
    LINEAR,
    LOGISTIC,
    ONE,
    clamp,
    prediction,
    probabilities,
    sigmoid,
)


def predicted(case):
    model, exponent, rows = case["model"], case["exponent"], case["rows"]
    parameters = rows_of({"d": len(rows[0]), **case})
    scores = [[prediction(of_class, exponent, x) for of_class in parameters] for x in rows]
    if model == INFERENCE:
        return {
            "scores": scores,
            "probabilities": [probabilities(parameters, exponent, x, 14) for x in rows],
            "predictions": [of_row.index(max(of_row)) for of_row in scores],
        }
    if model == LINEAR:
        return {"scores": scores, "predictions": [clamp(score, ONE) for (score,) in scores]}
    labels = [ONE if score > 0 else -ONE for (score,) in scores]
    if model != LOGISTIC:
        return {"scores": scores, "predictions": labels}
    likely = [[sigmoid(-score)] for (score,) in scores]
    return {"scores": scores, "predictions": labels, "probabilities": likely}


def unusual(case):
    """For each row, the first feature above its limit; -1 if none is."""
    found = []
    for row in case["rows"]:
        above = [j for j, limit in enumerate(case["limits"]) if row[j] > limit]
        found.append(above[0] if above else -1)
    return {"unusual": found}


def main():
    write(
        VECTORS / "models.json",
        **computed("models.json", predictions=predicted, limits=unusual),
    )


if __name__ == "__main__":
    main()
