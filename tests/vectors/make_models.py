"""Write shared_specs/vectors/models.json.

    PYTHONPATH=tests python tests/vectors/make_models.py

spec.arithmetic computes the expected values, without the library.
"""

from itertools import chain

from make_arithmetic import Numbers
from parts import VECTORS, case, write
from spec.arithmetic import (
    INFERENCE,
    LINEAR,
    LOGISTIC,
    ONE,
    SVM,
    clamp,
    prediction,
    probabilities,
    sigmoid,
)

LARGEST = 32767


def predicted(comment, model, parameters, exponent, rows):
    """A case. parameters: a list of d mantissas for each class."""
    scores = [[prediction(mantissas, exponent, x) for mantissas in parameters] for x in rows]
    expected = {"scores": scores}
    if model == LINEAR:
        expected["predictions"] = [clamp(z, ONE) for (z,) in scores]
    elif model == INFERENCE:
        expected["probabilities"] = [probabilities(parameters, exponent, x, 14) for x in rows]
        expected["predictions"] = [z.index(max(z)) for z in scores]
    else:
        expected["predictions"] = [ONE if z > 0 else -ONE for (z,) in scores]
    if model == LOGISTIC:
        expected["probabilities"] = [[sigmoid(-z)] for (z,) in scores]
    fields = {"classes": len(parameters), "parameters": list(chain(*parameters)), "rows": rows}
    return case(comment, "valid", model=model, exponent=exponent, **fields, **expected)


def extremes(d):
    return [[end] * d for end in (0, 1, -1, ONE, -ONE, LARGEST, -LARGEST - 1)]


def cases():
    numbers = Numbers("models")
    for model in (LINEAR, LOGISTIC, SVM):
        for d, exponent in ((1, -12), (4, -13), (13, -15), (28, -12), (128, -20), (5, -30)):
            parameters = [numbers.some(d, -LARGEST - 1, LARGEST)]
            rows = [numbers.some(d, -ONE, ONE) for _ in range(4)]
            yield predicted(
                f"model {model}, d = {d}, exponent {exponent}", model, parameters, exponent, rows
            )
        for end in (LARGEST, -LARGEST - 1):
            yield predicted(
                f"model {model}, all mantissas {end}", model, [[end] * 128], -12, extremes(128)
            )
        ties = [[x] for x in (-3, -2, -1, 0, 1, 2, 3)]
        yield predicted(f"model {model}, scores that are ties", model, [[2048]], -12, ties)
        yield predicted(
            f"model {model}, ties at the smallest exponent", model, [[1]], -30, extremes(1)
        )
    steps = [
        [t]
        for t in (0, 1, 2047, 2048, 2049, ONE, LARGEST, -1, -2047, -2048, -2049, -ONE, -LARGEST - 1)
    ]
    yield predicted("the sigmoid between and at its knots", LOGISTIC, [[4096]], -12, steps)
    ends = [[x] for x in (32766, LARGEST, -32767, -LARGEST - 1)]
    yield predicted("the sigmoid's ends", LOGISTIC, [[20480]], -12, ends)
    sizes = (2, 1, -12), (3, 4, -14), (6, 13, -13), (10, 28, -18), (16, 64, -16), (128, 8, -12)
    for classes, d, exponent in sizes:
        parameters = [numbers.some(d, -9000, 9000) for _ in range(classes)]
        rows = [numbers.some(d, -ONE, ONE) for _ in range(3)]
        comment = f"{classes} classes, d = {d}, exponent {exponent}"
        yield predicted(comment, INFERENCE, parameters, exponent, rows)
    yield predicted("equal classes", INFERENCE, [[5]] * 3, -12, [[ONE]])
    yield predicted("the last two are equal", INFERENCE, [[5], [9], [9]], -12, [[ONE], [-ONE], [0]])
    comment = "scores that differ where probabilities do not"
    yield predicted(comment, INFERENCE, [[0], [1]], -13, [[2 * 2**12], [ONE]])
    yield predicted("a certain class", INFERENCE, [[LARGEST], [-LARGEST - 1]], -12, [[ONE], [-ONE]])
    eight = [[LARGEST if i % 2 else -LARGEST - 1] * 128 for i in range(8)]
    yield predicted("8 x 128 at the ends", INFERENCE, eight, -12, extremes(128))


def main():
    notes = "arithmetic.md: what a device with a MODEL of these fields predicts of rows of features"
    write(VECTORS / "models.json", notes, predictions=cases())


if __name__ == "__main__":
    main()
