"""Write shared_specs/vectors/arithmetic.json.

    PYTHONPATH=tests python tests/vectors/make_arithmetic.py

spec.arithmetic computes the expected values, without the library. Cases are chosen by hand for the
ends and ties of every rounding; the others are drawn from SHA-256 in counter mode, so that the file
can be made again byte for byte.
"""

import hashlib
from itertools import chain

from parts import VECTORS, case, write
from spec import cards, sums
from spec.arithmetic import (
    CATEGORIES,
    INFERENCE,
    LINEAR,
    LOCAL,
    LOCAL_SOFTMAX,
    LOGISTIC,
    ONE,
    SOFTMAX,
    SVM,
    VALUES,
    chosen,
    collected,
    local_training,
    mean_gradient,
    probabilities,
    softmax_gradient,
)


class Numbers:
    """Pseudorandom numbers that the label determines."""

    def __init__(self, label):
        self.label, self.count = label, 0

    def between(self, low, high):
        self.count += 1
        digest = hashlib.sha256(f"{self.label} {self.count}".encode()).digest()
        return low + int.from_bytes(digest[:8], "little") % (high - low + 1)

    def some(self, n, low, high):
        return [self.between(low, high) for _ in range(n)]

    def records(self, n, d, label):
        """n records of d features. label: a function from these numbers to the label of a record."""
        return [[*self.some(d, -ONE, ONE), label(self)] for _ in range(n)]


def sign(numbers):
    return ONE if numbers.between(0, 1) else -ONE


def any_label(numbers):
    return numbers.between(-ONE, ONE)


def gradient(
    comment, model, parameters, exponent, records, *, range_=0, batch=0, number=1, classes=1
):
    """A case. parameters: classes x d, row by row."""
    used = [records[i] for i in chosen(len(records), batch, number)]
    d = len(records[0]) - 1
    if model == SOFTMAX:
        rows = [parameters[i * d : i * d + d] for i in range(classes)]
        values = softmax_gradient(rows, exponent, used, range_)
    else:
        values = mean_gradient(model, parameters, exponent, used, range_)
    fields = {
        "round": number,
        "model": model,
        "range": range_,
        "exponent": exponent,
        "classes": classes,
        "d": d,
        "batch": batch,
        "parameters": parameters,
        "records": records,
    }
    return case(comment, "valid", **fields, values=values)


def local(comment, model, parameters, exponent, records, epochs, batch, rate, tau, classes=1):
    """A case of local training by the gradients of `model`. parameters: classes x d, row by row."""
    values = local_training(model, parameters, exponent, records, epochs, batch, rate, tau, classes)
    fields = {
        "round": 1,
        "model": LOCAL_SOFTMAX if model == SOFTMAX else LOCAL + model,
        "exponent": exponent,
    }
    fields.update(classes=classes, d=len(parameters) // classes, batch=batch)
    fields.update(epochs=epochs, rate=rate, tau=tau, parameters=parameters, records=records)
    return case(comment, "valid", **fields, values=values)


def inference_fields(rows, exponent, records, number, k, card):
    return {
        "round": number,
        "model": INFERENCE,
        "exponent": exponent,
        "classes": len(rows),
        "d": len(rows[0]),
        "k": k,
        "parameters": list(chain(*rows)),
        "records": records,
        "card": card,
    }


def inference(comment, rows, exponent, records, q, number=1):
    """A case with the probabilities of the classes; the labels of the records are not used."""
    card = cards.laplace(2_000_000, q, 2**q, 1, -(2**q), 2**q)
    values = probabilities(rows, exponent, records[(number - 1) % len(records)][:-1], q)
    fields = inference_fields(rows, exponent, records, number, len(rows), card)
    return case(comment, "valid", **fields, values=values)


def label_of(comment, rows, records, number=1):
    """A case with the class of the largest probability, under randomised response over the classes."""
    p = probabilities(rows, -12, records[(number - 1) % len(records)][:-1], 14)
    card = cards.window(20_000_000, len(rows), 1, 2**29)
    fields = inference_fields(rows, -12, records, number, 1, card)
    return case(comment, "valid", **fields, values=[p.index(max(p))])


def collection(comment, model, asked, records, *, range_=0, number=1, symbols=2, device=7):
    card = cards.window(20_000_000, symbols, 1, 2**29)
    features = records[(number - 1) % len(records)][:-1]
    values = collected(model, asked, features, range_, symbols, device, number)
    fields = {"round": number, "model": model, "range": range_, "d": len(asked), "asked": asked}
    if model == CATEGORIES and range_:
        fields["device"] = device
    return case(comment, "valid", **fields, records=records, card=card, values=values)


def gradients():
    names = {LINEAR: "linear", LOGISTIC: "logistic", SVM: "SVM"}
    for model, name in names.items():
        numbers = Numbers(name)
        label = any_label if model == LINEAR else sign
        for exponent, n, d in ((-12, 1, 3), (-13, 4, 2), (-17, 5, 4), (-30, 2, 2)):
            most = 32767 if exponent < -13 else 3000
            records = numbers.records(n, d, label)
            parameters = numbers.some(d, -most, most)
            yield gradient(f"{name}, exponent {exponent}", model, parameters, exponent, records)
        records = numbers.records(3, 3, label)
        for range_ in (1, 5, 9, 10, 11, 12):
            small = [[x >> range_ for x in record[:-1]] + record[-1:] for record in records]
            yield gradient(
                f"{name}, range {range_}", model, [700, -900, 4000], -13, small, range_=range_
            )
        yield gradient(f"{name}, 32 records", model, [5000], -13, numbers.records(32, 1, label))
        yield gradient(
            f"{name}, 40 records, of which 32", model, [-500], -12, numbers.records(40, 1, label)
        )
        many = numbers.records(7, 1, label)
        for batch, number in ((3, 1), (3, 3), (7, 2), (9, 3), (2, 2**30 - 1)):
            comment = f"{name}, a batch of {batch} of 7 in round {number}"
            yield gradient(comment, model, [300], -12, many, batch=batch, number=number)
    wide = [32767 - j % 2 for j in range(128)]
    yield gradient("linear, d = 128, the largest", LINEAR, wide, -12, [[ONE] * 128 + [-ONE]])
    yield gradient(
        "logistic, d = 128, the smallest", LOGISTIC, [-32768] * 128, -12, [[ONE] * 128 + [ONE]]
    )
    for m, e in ((1, -15), (-1, -15), (3, -15), (-3, -15), (-(2**13), -28)):
        comment = f"a prediction that is a tie or next to it: {m} * 2**{e}"
        yield gradient(comment, LINEAR, [m], e, [[ONE, 0]])
        yield gradient(comment + ", times 2**14", LINEAR, [m, 32767], e, [[ONE, -1, 8]], range_=12)
    for y, x in ((1, 8192), (-1, 8192), (3, 8192), (-3, 8192), (3, -8192), (1, 8191)):
        yield gradient(
            f"a product that is a tie or next to it: {-y} * {x}", LINEAR, [0], -12, [[x, y]]
        )
    for y in (1, -1, 3, -3):
        comment = f"a mean of two or three that is a tie or next to it: {-y}"
        yield gradient(comment, LINEAR, [0], -12, [[ONE, y], [ONE, 0]])
        yield gradient(comment + " of 3", LINEAR, [0], -12, [[ONE, y], [ONE, 0], [ONE, 0]])
    records = [[ONE, 0], [ONE, ONE], [-ONE, 0]]
    yield gradient("clipped is the mean, not each record", LINEAR, [32767], -12, records)
    records = [[ONE, ONE, 0], [-ONE, ONE, 0]]
    yield gradient("records beyond [-1, 1] that cancel", LINEAR, [0, 32767], -12, records)
    yield gradient(
        "a range clips, too", LINEAR, [0, 0], -12, [[3, -3, ONE], [5, -5, ONE]], range_=12
    )
    for range_ in (0, 7, 8, 9, 10, 11, 12):
        for y in (0, ONE, -ONE):
            comment = f"a residual of about 8, range {range_}, y = {y}"
            yield gradient(comment, LINEAR, [32767, 0], -12, [[ONE, 1, y]], range_=range_)
            records = [[ONE, 1, y], [0, 1, 0]]
            yield gradient(comment + ", negative", LINEAR, [-32768, 0], -12, records, range_=range_)
    for m in (10 * 2048, 10 * 2048 - 1, 19456, 18432, -10 * 2048, 2049, -2049, 1000, 0):
        for y in (ONE, -ONE, 0, 1):
            comment = f"logistic at z = {m} / 2048, y = {y}"
            yield gradient(comment, LOGISTIC, [m, m], -12, [[ONE, ONE, y]], range_=1)
    for near, e in ((-1, -13), (0, -13), (1, -13), (-1, -20), (0, -20), (1, -20)):
        for y in (ONE, -ONE) if e == -20 else (ONE, -ONE, 0):
            side = 1 if y > 0 else -1
            if e == -13:
                m, x = [side * 8192, 1], [ONE, side * near]
            else:
                m, x = [side * 32767] * 32 + [side * 32, 1], [ONE] * 33 + [side * near]
            comment = f"SVM, y = {y}, y w.x = 1 and {near} in its last place, exponent {e}"
            yield gradient(comment, SVM, m, e, [[*x, y]])
    numbers = Numbers("softmax")
    for classes, d, n, range_, batch, number in (
        (2, 1, 1, 0, 0, 1),
        (3, 2, 4, 0, 3, 2),
        (3, 2, 4, 5, 0, 7),
        (4, 1, 2, 12, 1, 2),
        (10, 3, 3, 2, 2, 5),
        (2, 2, 35, 1, 0, 3),
    ):
        records = numbers.records(
            n, d, lambda source, classes=classes: source.between(0, classes - 1)
        )
        parameters = numbers.some(classes * d, -9000, 9000)
        comment = (
            f"softmax regression, {classes} classes, range {range_}, {n} records, round {number}"
        )
        options = {"range_": range_, "batch": batch, "number": number, "classes": classes}
        yield gradient(comment, SOFTMAX, parameters, -13, records, **options)
    for range_ in (10, 11, 12):
        comment = f"softmax regression of small features, range {range_}"
        small = [[1, -2, 0], [3, 1, 1]]
        yield gradient(comment, SOFTMAX, [900, -50, 7, 8], -12, small, range_=range_, classes=2)
    certain = [32767, -32768]
    yield gradient("softmax regression, certain", SOFTMAX, certain, -12, [[ONE, 0]], classes=2)
    yield gradient(
        "softmax regression, certain and wrong", SOFTMAX, certain, -12, [[ONE, 1]], classes=2
    )


def trainings():
    numbers = Numbers("local")
    for model, name in ((LINEAR, "linear"), (LOGISTIC, "logistic"), (SVM, "SVM")):
        label = any_label if model == LINEAR else sign
        for exponent, n, d, epochs, batch, rate, tau in (
            (-12, 1, 2, 1, 0, 6, ONE),
            (-12, 5, 3, 2, 2, 2, 200_000),
            (-16, 7, 2, 3, 3, 0, 2**23),
            (-14, 4, 2, 1, 9, 16, 7),
            (-13, 35, 1, 2, 0, 3, 90_001),
            (-15, 34, 1, 1, 33, 4, 50_000),
        ):
            records = numbers.records(n, d, label)
            parameters = numbers.some(d, -3000, 3000)
            comment = f"{name}, exponent {exponent}, {n} records, {epochs} epochs of batches of {batch}, rate {rate}"
            yield local(comment, model, parameters, exponent, records, epochs, batch, rate, tau)
    numbers = Numbers("local softmax")
    for classes, d, exponent, n, epochs, batch, rate, tau in (
        (2, 1, -12, 1, 1, 0, 6, ONE),
        (3, 2, -12, 5, 2, 2, 2, 200_000),
        (10, 3, -16, 7, 3, 3, 0, 2**23),
        (2, 3, -14, 4, 2, 9, 16, 7),
        (4, 1, -13, 35, 2, 0, 3, 90_001),
        (3, 2, -15, 34, 1, 33, 4, 50_000),
    ):
        records = numbers.records(
            n, d, lambda source, classes=classes: source.between(0, classes - 1)
        )
        parameters = numbers.some(classes * d, -3000, 3000)
        comment = f"softmax regression, {classes} classes, exponent {exponent}, {n} records, {epochs} epochs of "
        comment += f"batches of {batch}, rate {rate}"
        yield local(
            comment, SOFTMAX, parameters, exponent, records, epochs, batch, rate, tau, classes
        )
    for y in (0, 1):
        comment = f"weights of classes stay within +-32767: class {y}"
        yield local(comment, SOFTMAX, [32767, -32767], -16, [[ONE, y]], 9, 0, 0, 2**23, 2)
    same = [[ONE, -ONE // 3, 1]] * 2
    yield local(
        "a label that no class has",
        SOFTMAX,
        [0] * 4,
        -12,
        [[*x, 5] for *x, _ in same],
        2,
        0,
        4,
        2**20,
        2,
    )
    for y in (ONE, -ONE):
        for m in (32767, -32767, 32700):
            comment = f"weights stay within +-32767: {m}, {y}"
            yield local(comment, LINEAR, [m], -16, [[ONE // 4, y]], 2, 0, 0, 2**23)
            yield local(comment + ", SVM", SVM, [m], -16, [[ONE, y]], 6, 0, 0, 2**23)
    # One step of the gradient -y / 2**14 at the rate 16 moves by y 2**(-10-e), rounded: ties for e
    # = -12 below.
    for y in (1, -1, 3, -3, 511, 512, 513, -511, -512, -513, 1536, -1536):
        yield local(
            f"a step that is a tie or next to it: {y}", LINEAR, [0], -12, [[ONE, y]], 1, 0, 16, 64
        )
        comment = f"steps that move a mantissa by half: {y}"
        yield local(comment, LINEAR, [0], -16, [[ONE, y]] * 3, 1, 1, 4, 2**20)
    for tau in (1, 2, 3, 2**14 + 1, 2**15, 2**15 + 2, 2**16, 3 * 2**15, 2**23):
        for y in (1, -1, 16000, -16000):
            comment = f"a share of tau = {tau}, rounded away from 0 where it is a tie: {y}"
            yield local(comment, LINEAR, [0], -12, [[ONE, y]], 1, 0, 6, tau)


def inferences():
    numbers = Numbers("inference")
    label = lambda source: 0  # noqa: E731
    sizes = (2, 1, -12, 14), (3, 4, -14, 14), (10, 2, -13, 10), (16, 2, -18, 4), (5, 3, -30, 0)
    for classes, d, exponent, q in sizes:
        rows = [numbers.some(d, -9000, 9000) for _ in range(classes)]
        records = numbers.records(3, d, label)
        for number in (1, 2, 6):
            comment = f"{classes} classes, exponent {exponent}, q = {q}, round {number}"
            yield inference(comment, rows, exponent, records, q, number)
    yield inference("equal classes", [[5]] * 3, -12, [[ONE, 0]], 14)
    yield inference("equal classes on a coarse grid", [[5]] * 3, -12, [[ONE, 0]], 2)
    yield inference("a certain class", [[32767], [-32768]], -12, [[ONE, 0]], 10)
    large = (
        ONE - 1,
        ONE,
        ONE + 100,
        11 * ONE + 100,
        12 * ONE - 300,
        12 * ONE - 1,
        12 * ONE,
        12 * ONE + 1,
    )
    for t in (1, 127, 128, 129, 255, 256, 257, *large):
        rows = [[0, 0, 0], [-(t >> 3), -(t >> 3), -(t & 7)]]  # z = 0 and -t
        yield inference(f"t = {t} / 2**14", rows, -12, [[ONE, ONE, 2**12, 0]], 14)
    for classes, d in ((2, 1), (3, 4), (10, 2), (16, 2), (128, 8)):
        rows = [numbers.some(d, -9000, 9000) for _ in range(classes)]
        records = numbers.records(4, d, label)
        for number in (1, 2, 3, 8):
            yield label_of(f"the label of {classes} classes, round {number}", rows, records, number)
    yield label_of("the label where all are equal", [[5]] * 3, [[ONE, 0]])
    yield label_of("the label where the last two are equal", [[5], [9], [9]], [[ONE, 0]])
    yield label_of(
        "the label where two are equal but for less than a step", [[0, 0], [1, 0]], [[1, 0, 0]]
    )
    yield label_of("the label, by the finest grid", [[0], [4]], [[ONE, 0]])
    yield label_of("a certain label", [[-32768], [32767]], [[ONE, 0]])


def collections():
    records = [[100, -200, 5000, ONE, 3], [-ONE, 7, -1, 0, 4], [1, 2, 3, 4, 5]]
    for number in (1, 2, 3, 4, 2**30 - 1):
        yield collection(f"values of round {number}", VALUES, [1, 0, 1, 1], records, number=number)
    for range_ in (1, 5, 12):
        yield collection(f"values, range {range_}", VALUES, [1, 1, 1, 1], records, range_=range_)
        comment = f"values, range {range_}, others"
        yield collection(comment, VALUES, [1, 1, 1, 0], records, range_=range_, number=2)
    cats = [[0, 4, 5, 6, -1, 300, 0], [1, 2, 3, 4, 5, 6, 7]]
    for symbols in (2, 5, 6, 256):
        yield collection(
            f"categories, {symbols} of them", CATEGORIES, [1] * 6, cats, symbols=symbols
        )
    yield collection(
        "categories, some of them", CATEGORIES, [0, 1, 0, 0, 1, 1], cats, number=2, symbols=6
    )
    large = [[0, 1, 8189, 8190, 8191, 32767, -1, -32768, 0]]
    for symbols, device, number in (
        (2, 1, 1),
        (4, 7, 1),
        (4, 7, 2),
        (5, 2**32 - 2, 2**30 - 1),
        (56, 2**30, 77),
        (255, 12345, 3),
        (256, 8, 9),
    ):
        yield collection(
            f"categories hashed to {symbols} by device {device} in round {number}",
            CATEGORIES,
            [1] * 8,
            large,
            range_=1,
            number=number,
            symbols=symbols,
            device=device,
        )
    yield collection(
        "some hashed", CATEGORIES, [0, 1, 0, 0, 1, 1], cats, range_=1, number=2, symbols=6
    )


def choices():
    """The records that a gradient uses."""
    for c, batch, number in (
        (1, 0, 1),
        (1, 5, 9),
        (5, 0, 3),
        (5, 2, 1),
        (5, 2, 2),
        (5, 2, 3),
        (5, 5, 4),
        (5, 9, 2),
        (33, 32, 2),
        (33, 0, 2),
        (40, 0, 3),
        (300, 7, 2**30 - 1),
        (65535, 32, 2**30 - 1),
    ):
        fields = {"count": c, "batch": batch, "round": number, "records": chosen(c, batch, number)}
        comment = f"{batch or 'all'} of {c} records in round {number}"
        yield case(comment, "valid", **fields)


def units():
    """The vector of a unit of these totals."""
    numbers = Numbers("units")
    most = 2**29
    for totals, steps, reach in (
        ([0, 0], 9, 1),
        ([0] * 300, 1, 1),
        ([1], 1, 1),
        ([1], 4096, 2**30 - 1),
        ([-1, 1], 1, 1),
        ([3, 4], 5, 5),
        ([3, -4], 5, 6),
        ([3, -4], 5, 4),
        ([most, -most], 4096, 1),
        ([most] * 300, 4096, 2**30 - 1),
        ([most], 1, most),
        ([-most], 3, most - 1),
        ([8191, 8192], 77, 9000),
        ([16383, 16384], 4095, 16384),
        ([16384, -1], 2, 2**15),
        ([5] * 4, 1, 10),
        ([-5] * 4, 1, 10),
        ([32767, -32768, 0], 1000, 2**14 - 1),
        ([1, most], 16, 2**20),
        ([2**15] * 4 + [1], 3, 2**16),
        ([1] * 255, 16, 16),
        ([100, -7, 1], 64, 2**24),
        ([9, 9], 4096, 2**28),
        *(
            (numbers.some(n, -top, top), numbers.between(1, 4096), 1 << numbers.between(0, 29))
            for n in (1, 2, 5, 30)
            for top in (3, 300, 2**14, 2**21, most)
        ),
    ):
        for norm in (1, 2):
            vector, clipped = sums.unit_vector(totals, norm, steps, reach)
            fields = {
                "norm": norm,
                "R": steps,
                "r": reach,
                "totals": totals,
                "vector": vector,
                "clipped": clipped,
            }
            yield case(f"norm {norm}, R = {steps}, r = {reach}", "valid", **fields)


def main():
    write(
        VECTORS / "arithmetic.json",
        "arithmetic.md: the values that a client of these records computes for a ROUND of these fields; and the "
        "vector of a unit whose records have these totals T_j",
        gradients=gradients(),
        local=trainings(),
        inference=inferences(),
        collection=collections(),
        choice=choices(),
        units=units(),
    )


if __name__ == "__main__":
    main()
