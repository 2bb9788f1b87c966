"""Compute the expected predictions of shared_specs/vectors/models.json, for the inputs in it.

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


def main():
    write(VECTORS / "models.json", **computed("models.json", predictions=predicted))


if __name__ == "__main__":
    main()
