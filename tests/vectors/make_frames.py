"""Write the vectors of wire.md's frames: tags, questions, and every frame, good and hostile.

    PYTHONPATH=tests python tests/vectors/make_frames.py

Written from the text with Python's own hashlib and struct, without the device library (but for the
schema, which is by definition what wire.py builds), so that the two can disagree.
"""

import random
import struct

from parts import KEY, KEY_B, VECTORS, case, write
from spec import answers, frames
from spec.boards import FIELDS, Round
from spec.frames import FLEET, sealed

from tern.wire import SCHEMA, schema_text

words = random.Random(20261122)

CARD = bytes.fromhex(
    "11 80841e00 00 02 ff 01 ffffff0f 000000e0"
)  # decoders of frames do not decode it
SUM = b"\x16\0"  # nor this one, whose shape counts
ERR_FRAME, ERR_TAG = 1, 2
LIMITS = 255  # in place of the kind of a model
NO_LIMIT = 32767
IDS = (1, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 2)  # where a 31-bit small integer ends


def tag_vectors():
    tests = []
    for comment, key, data in (
        ("empty key and data", b"", b""),
        ("empty key", b"", b"abc"),
        ("a client's key", KEY, bytes(range(100))),
        ("an answer key", KEY[:16], b"x" * 64),
        ("key and data fill a block", KEY, bytes(32)),
    ):
        good = frames.tag(key, data)
        tests.append(case(comment, "valid", key=key, data=data, tag=good))
        for bit in (0, 37, 63):
            bad = (int.from_bytes(good, "big") ^ 1 << bit).to_bytes(8, "big")
            tests.append(
                case(f"bit {bit} flipped", "invalid", ["hostile"], key=key, data=data, tag=bad)
            )
    return tests


ROUND = dict.fromkeys(FIELDS, 0)
ROUND.update(device=7, round=9, model=2, exponent=-14, classes=1, d=4, k=1, batch=1)
ROUND["parameters"] = [1, -1, 32767, -32768]
SOFTMAX = dict(ROUND, model=4, classes=2, d=2, k=2, batch=0)
LOCAL = dict(ROUND, model=6, epochs=3, rate=2, tau=0x123456)
COLLECT = dict(ROUND, model=8, exponent=0, batch=0, d=4, k=2, parameters=[1, 0, 1, 1])
COUNTS = dict(COLLECT, model=9, classes=5)
BINS = dict(COLLECT, model=9, exponent=6)
COUNTED_BINS = dict(COUNTS, exponent=3, classes=8)
REGRESSION = dict(ROUND, model=10, classes=2, d=2, k=3, batch=4)
CLASSES = dict(LOCAL, model=11, classes=2, d=2, k=3)


def round_body(f, card=None):
    card = f.get("card", CARD) if card is None else card
    values = f["parameters"]
    if f["model"] in frames.COLLECTIONS:
        question = frames.features([j for j, bit in enumerate(values) if bit], len(values))
    else:
        question = frames.int16s(values)
    return Round(*(f[name] for name in FIELDS), question, card, f.get("length")).body()


def frame_case(kind, comment, data, key=b"", **fields):
    return case(comment, "valid", kind=kind, key=key, frame=data, fields=fields)


def bad_frame(kind, comment, data, key=b"", error=ERR_FRAME):
    return case(comment, "invalid", ["hostile"], kind=kind, key=key, frame=data, error=error)


def many(n):
    return [words.randrange(-32768, 32768) for _ in range(n)]


def round_vectors():
    tests = []
    biggest = dict(ROUND, device=2**32 - 2, round=2**30 - 1, model=3, range=12, exponent=-12)
    biggest.update(k=128, batch=32, d=128, parameters=many(128))
    widest = dict(REGRESSION, classes=8, d=128, k=1024, range=12, parameters=many(1024))
    of_most = {"epochs": 255, "rate": 16, "tau": 1 << 23}
    most = dict(LOCAL, model=7, exponent=-12, **of_most)
    most_classes = dict(
        CLASSES, exponent=-16, classes=128, d=8, k=1024, batch=32, parameters=widest["parameters"]
    )
    for comment, fields, card in (
        ("one of four coordinates", ROUND, CARD),
        ("smallest", dict(ROUND, model=1, exponent=-30, batch=0, d=1, parameters=[0]), b"\x11"),
        ("largest card", biggest, bytes(i % 251 for i in range(2048))),
        ("for the whole fleet", dict(ROUND, device=FLEET), CARD),
        ("inference of two classes", SOFTMAX, CARD),
        ("inference of a label", dict(SOFTMAX, k=1), CARD),
        (
            "most classes",
            dict(SOFTMAX, classes=128, d=8, k=128, parameters=list(range(-512, 512))),
            CARD,
        ),
        ("most features of a class", dict(SOFTMAX, d=128, parameters=list(range(256))), CARD),
        ("local training", LOCAL, CARD),
        (
            "the least local training",
            dict(LOCAL, model=5, exponent=-16, epochs=1, rate=0, tau=1),
            CARD,
        ),
        ("the most local training", most, CARD),
        ("values of two of three features", COLLECT, CARD),
        ("values, scaled", dict(COLLECT, range=12), CARD),
        ("categories, hashed", dict(COLLECT, model=9, range=1), CARD),
        ("bins of numbers", BINS, CARD),
        ("bins of numbers, hashed", dict(BINS, range=1), CARD),
        ("fewest bins", dict(BINS, exponent=1), CARD),
        ("most bins", dict(BINS, exponent=12), CARD),
        ("categories of one feature", dict(COLLECT, model=9, k=1, parameters=[0, 0, 0, 1]), CARD),
        ("values of 128 features", dict(COLLECT, d=128, k=128, parameters=[1] * 128), CARD),
        (
            "values of the ninth of nine features",
            dict(COLLECT, d=9, k=1, parameters=[0] * 8 + [1]),
            CARD,
        ),
        ("softmax regression", REGRESSION, CARD),
        ("local training of softmax regression", CLASSES, CARD),
        ("the most local training of softmax regression", dict(most_classes, **of_most), CARD),
        ("four sums and the tally", dict(ROUND, k=5), SUM),
        ("sums of three features and the tally", dict(COLLECT, k=4), SUM),
        ("the tally alone", dict(COLLECT, k=1, parameters=[0] * 4), SUM),
        ("counts of 5 categories of three features, and the tally", dict(COUNTS, k=16), SUM),
        ("counts of 8 bins of three numbers, and the tally", dict(COUNTED_BINS, k=25), SUM),
        (
            "most counts",
            dict(COUNTS, d=128, classes=128, k=1025, parameters=[1] * 8 + [0] * 120),
            SUM,
        ),
        ("sums of softmax regression and the tally", dict(REGRESSION, k=5), SUM),
        ("most sums", dict(widest, k=1025), SUM),
        ("a sum of probabilities, which no client computes", SOFTMAX, SUM),
        ("most parameters", widest, CARD),
        *((f"device {device}", dict(ROUND, device=device), CARD) for device in IDS),
    ):
        data = sealed(KEY, round_body(fields, card))
        tests.append(frame_case("round", comment, data, KEY, card=card.hex(), **fields))
    for comment, base, change in (
        ("device 0", ROUND, {"device": 0}),
        ("round 0", ROUND, {"round": 0}),
        ("round 2**30", ROUND, {"round": 2**30}),
        ("round 2**32 - 1", ROUND, {"round": 2**32 - 1}),
        ("model 0", ROUND, {"model": 0}),
        ("model 12", ROUND, {"model": 12}),
        ("range 13", ROUND, {"range": 13}),
        ("a range of probabilities", SOFTMAX, {"range": 1}),
        ("a range of local training", LOCAL, {"range": 1}),
        ("a range of 2 of categories", dict(COLLECT, model=9), {"range": 2}),
        ("a range of 13 of values", COLLECT, {"range": 13}),
        ("two classes of a gradient", ROUND, {"classes": 2, "d": 2}),
        ("no class", ROUND, {"classes": 0, "d": 4}),
        ("one class of softmax regression", REGRESSION, {"classes": 1, "d": 4}),
        ("local training of one class", CLASSES, {"classes": 1, "d": 4}),
        (
            "local training of 129 classes",
            CLASSES,
            {"classes": 129, "d": 1, "parameters": [0] * 129},
        ),
        (
            "1,025 parameters of local training",
            CLASSES,
            {"classes": 25, "d": 41, "parameters": [0] * 1025},
        ),
        ("local training of classes without an epoch", CLASSES, {"epochs": 0}),
        ("local training of classes with a range", CLASSES, {"range": 1}),
        ("exponent -17 in local training of classes", CLASSES, {"exponent": -17}),
        ("129 classes", REGRESSION, {"classes": 129, "d": 1, "parameters": [0] * 129}),
        ("1,025 parameters", REGRESSION, {"classes": 25, "d": 41, "parameters": [0] * 1025}),
        ("values of fewer features than k", COLLECT, {"k": 2, "parameters": [0, 0, 1, 0]}),
        ("values of no feature", COLLECT, {"k": 1, "parameters": [0] * 4}),
        ("values of a feature beyond d", COLLECT, {"parameters": [1, 1, 1, 1, 1]}),
        ("values with an exponent", COLLECT, {"exponent": -14}),
        ("values in bins", COLLECT, {"exponent": 1}),
        ("categories with a negative exponent", BINS, {"exponent": -1}),
        ("more bins than 2**12", BINS, {"exponent": 13}),
        ("counts of more bins than 2**12", dict(COUNTED_BINS, card=SUM), {"exponent": 13}),
        ("values with a batch", COLLECT, {"batch": 1}),
        ("values with an epoch", COLLECT, {"epochs": 1}),
        ("inference with a batch", SOFTMAX, {"batch": 1}),
        ("inference of one class", SOFTMAX, {"classes": 1, "d": 4, "k": 1}),
        (
            "inference of fewer probabilities than classes",
            SOFTMAX,
            {"classes": 3, "parameters": [1] * 6},
        ),
        ("inference of more probabilities than classes", SOFTMAX, {"k": 3}),
        ("a gradient with an epoch", ROUND, {"epochs": 1}),
        ("a gradient with a rate", ROUND, {"rate": 1}),
        ("a gradient with a tau", ROUND, {"tau": 1}),
        ("no epoch", LOCAL, {"epochs": 0}),
        ("rate 17", LOCAL, {"rate": 17}),
        ("tau 0", LOCAL, {"tau": 0}),
        ("tau above 2**23", LOCAL, {"tau": (1 << 23) + 1}),
        ("exponent -17 in local training", LOCAL, {"exponent": -17}),
        *(
            (f"sums of {n} categories", dict(COUNTS, card=SUM), {"classes": n, "k": 1})
            for n in (0, 1, 129)
        ),
        (
            "more than 1,025 counts",
            dict(COUNTS, card=SUM),
            {"d": 128, "classes": 128, "parameters": [1] * 9 + [0] * 119},
        ),
        ("counts with a range", dict(COUNTS, card=SUM), {"range": 1}),
        ("five categories without a sum", COUNTS, {}),
        ("exponent -31", ROUND, {"exponent": -31}),
        ("exponent -11", ROUND, {"exponent": -11}),
        ("k 0", ROUND, {"k": 0}),
        ("k larger than d", ROUND, {"k": 5}),
        ("k larger than classes times d", REGRESSION, {"k": 5}),
        ("batch 33", ROUND, {"batch": 33}),
        ("d 0", ROUND, {"d": 0, "parameters": []}),
        ("d 129", ROUND, {"d": 129, "parameters": [0] * 129}),
        ("d larger than what follows", ROUND, {"d": 5}),
        ("d far larger than the frame", ROUND, {"d": 65535}),
        ("d smaller than what follows", ROUND, {"d": 3}),
        ("card longer than what follows", ROUND, {"length": len(CARD) + 1}),
        ("card shorter than what follows", ROUND, {"length": len(CARD) - 1}),
    ):
        tests.append(
            bad_frame("round", comment, sealed(KEY, round_body(dict(base, **change))), KEY)
        )
    for base, k in (
        (ROUND, 6),
        (COLLECT, 5),
        (COUNTS, 17),
        (REGRESSION, 6),
        (CLASSES, 6),
        (widest, 1026),
        (SOFTMAX, 3),
    ):
        comment = f"{k} sums of model {base['model']}"
        tests.append(
            bad_frame("round", comment, sealed(KEY, round_body(dict(base, k=k), SUM)), KEY)
        )
    tests.append(bad_frame("round", "no card", sealed(KEY, round_body(ROUND, b"")), KEY))
    tests.append(
        bad_frame("round", "card of 2049 bytes", sealed(KEY, round_body(ROUND, bytes(2049))), KEY)
    )
    longest = round_body(widest, bytes(2561 - 8 - 26 - 2048))
    tests.append(bad_frame("round", "2561 bytes", sealed(KEY, longest), KEY))
    good = sealed(KEY, round_body(ROUND))
    for n in (0, 1, 8, 9, 17, 20, 29, len(good) - 9, len(good) - 1):
        tests.append(
            bad_frame("round", f"cut to {n} bytes", good[:n], KEY, ERR_TAG if n > 16 else ERR_FRAME)
        )
    for bit in (8, 13, 40, 100, 8 * len(good) - 70, 8 * len(good) - 1):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        tests.append(bad_frame("round", f"bit {bit} flipped", bytes(flipped), KEY, ERR_TAG))
    tests.append(
        bad_frame("round", "key of another client", sealed(KEY_B, round_body(ROUND)), KEY, ERR_TAG)
    )
    tests.append(bad_frame("round", "a byte behind the tag", good + b"\0", KEY, ERR_TAG))
    return tests


def question(key, device, fields, card=CARD):
    return frames.question(key, device, round_body(dict(fields, device=device), card)[5:])


def question_vectors():
    """The digest and the answer key of the question in ROUNDs for one client and for the fleet."""
    tests = []
    for device in IDS:
        for key in (KEY, KEY_B):
            digest = question(key, device, ROUND)
            fields = {"question": digest, "answer_key": digest[8:24]}
            for target in (device, FLEET):
                frame = sealed(
                    key if target == device else bytes(32), round_body(dict(ROUND, device=target))
                )
                comment = f"device {device}" + (
                    " asked with the whole fleet" if target == FLEET else ""
                )
                tests.append(case(comment, "valid", key=key, device=device, frame=frame, **fields))
    return tests


def report(device, number, symbols, base, key):
    return sealed(key, struct.pack("<BII", 0x82, device, number) + frames.packed(symbols, base))


def report_vectors():
    tests = []
    for device in IDS:
        key = question(KEY, device, ROUND)[8:24]
        data = report(device, 9, [2], 3, key)
        fields = {"device": device, "round": 9, "base": 3, "symbols": [2]}
        tests.append(frame_case("report", f"of device {device}", data, key, **fields))
    key = question(KEY, 7, ROUND)[8:24]
    for base, k in ((3, 28), (65536, 128), (3, 1024), (4, 1024)):
        symbols = [words.randrange(base) for _ in range(k)]
        fields = {"device": 7, "round": 9, "base": base, "symbols": symbols}
        data = report(7, 9, symbols, base, key)
        tests.append(frame_case("report", f"{k} of base {base}", data, key, **fields))
    for comment, data in (
        ("key of the client", report(7, 9, [2], 3, KEY)),
        (
            "answer key of another question",
            report(7, 9, [2], 3, question(KEY, 7, dict(ROUND, k=2))[8:24]),
        ),
        ("answer key of another device", report(7, 9, [2], 3, question(KEY, 8, ROUND)[8:24])),
    ):
        bad = bad_frame("report", comment, data, key, ERR_TAG)
        tests.append({**bad, "fields": {"base": 3, "symbols": [2]}})
    return tests


def reports_vectors():
    rows = [
        report(device, 9, [device % 3], 3, question(KEY, device, ROUND)[8:24]) for device in IDS
    ]
    wide = [report(7, 9, [1] * 1024, 3, question(KEY, 7, ROUND)[8:24])] * 2
    most = [report(i + 1, 9, [i % 3], 3, KEY[:16]) for i in range((2560 - 7) // 13)]
    good = ("of six clients", rows), ("of one", rows[:1]), ("wide", wide), ("as many as fit", most)
    tests = [
        frame_case(
            "reports", comment, answers.reports(*reports), reports=[row.hex() for row in reports]
        )
        for comment, reports in good
    ]
    for comment, data in (
        ("without a row", answers.reports(rows[0])[:7]),
        ("half a row", answers.reports(*rows)[:-1]),
        ("size 0", struct.pack("<BIH", 0x85, 9, 0) + bytes(12)),
        ("size 257", struct.pack("<BIH", 0x85, 9, 257) + bytes(269)),
        ("one row more than fits", answers.reports(*most, most[0])),
    ):
        tests.append(bad_frame("reports", comment, data))
    return tests


def model_body(f):
    values = [f[name] for name in ("device", "round", "model", "exponent", "classes", "d")]
    return struct.pack("<BIIBbBH", 4, *values) + frames.int16s(f["parameters"])


def model_vectors():
    model = {"device": FLEET, "round": 9, "model": 2, "exponent": -14, "classes": 1, "d": 4}
    model["parameters"] = many(4)
    softmax = dict(model, model=4, classes=8, d=128, parameters=many(1024))
    ends = dict(model, device=1, round=2**30 - 1, model=1, exponent=-30, d=1, parameters=[5])
    limits = dict(model, model=LIMITS, parameters=[NO_LIMIT, 16384, 0, -16384])
    good = (
        ("logistic", model),
        ("softmax", softmax),
        ("of one client", dict(model, device=7)),
        ("the ends of fields", ends),
        ("128 classes", dict(softmax, round=1, exponent=-12, classes=128, d=8)),
        ("limits", limits),
        ("limits of the most features", dict(limits, d=128, parameters=list(range(128)))),
        ("limits of one feature", dict(limits, device=7, d=1, parameters=[-32768])),
    )
    tests = [
        frame_case("model", comment, sealed(KEY, model_body(f)), KEY, **f) for comment, f in good
    ]
    for comment, change in (
        ("model 0", {"model": 0}),
        ("model 5", {"model": 5}),
        ("round 2**30", {"round": 2**30}),
        ("129 classes", {"model": 4, "classes": 129, "d": 4, "parameters": many(516)}),
        ("1,025 parameters", {"model": 4, "classes": 25, "d": 41, "parameters": many(1025)}),
        ("exponent -31", {"exponent": -31}),
        ("device 0", {"device": 0}),
        ("round 0", {"round": 0}),
        ("two classes of a logistic model", {"classes": 2, "d": 2}),
        ("one class of softmax", {"model": 4}),
        ("no feature", {"d": 0, "parameters": []}),
        ("129 features", {"d": 129, "parameters": many(129)}),
        ("exponent -11", {"exponent": -11}),
        ("a parameter too few", {"parameters": many(3)}),
        ("a parameter too many", {"parameters": many(5)}),
    ):
        tests.append(
            bad_frame("model", comment, sealed(KEY, model_body(dict(model, **change))), KEY)
        )
    tests.append(bad_frame("model", "another key", sealed(KEY_B, model_body(model)), KEY, ERR_TAG))
    for comment, change in (
        ("limits of another exponent", {"exponent": -13}),
        ("limits of two classes", {"classes": 2, "d": 2}),
        ("limits of no class", {"classes": 0}),
        ("limits of no feature", {"d": 0, "parameters": []}),
        ("limits of 129 features", {"d": 129, "parameters": [0] * 129}),
        ("a limit too few", {"parameters": [0] * 3}),
        ("a limit too many", {"parameters": [0] * 5}),
        ("the number before that of limits", {"model": LIMITS - 1}),
    ):
        tests.append(
            bad_frame("model", comment, sealed(KEY, model_body(dict(limits, **change))), KEY)
        )
    return tests


def fleet_key_vectors():
    tests = []
    for device in IDS:
        for epoch in (1, 2**30 - 1):
            data = sealed(KEY, frames.fleet_key_body(KEY, device, epoch, KEY_B))
            fields = {"device": device, "epoch": epoch, "fleet_key": KEY_B.hex()}
            tests.append(
                frame_case("fleet_key", f"epoch {epoch} for device {device}", data, KEY, **fields)
            )
    tests.append(bad_frame("fleet_key", "another key", sealed(KEY_B, data[:-8]), KEY, ERR_TAG))
    tests.append(bad_frame("fleet_key", "a byte too many", sealed(KEY, data[:-8] + b"\0"), KEY))
    tests.append(bad_frame("fleet_key", "a byte too few", sealed(KEY, data[:-9]), KEY))
    return tests


HELLO = {
    "nonce": 0xFFFFFFFF,
    "first": 1,
    "clients": 2500,
    "budget": 10**9,
    "spent": 2**30 - 1,
    "epoch": 3,
    "heap": 81104,
    "records": 256,
    "exceptions": 2,
    "restarts": 65535,
    "entropy": 1,
    "assessed": 1,
    "measure": 1,
    "unit": 513,
    "release": [0, 2, 17],
    "text": "emulated; micropython 1.25.0; tern 0.2.17",
}


def hello_body(f, n=None, schema=SCHEMA):
    data = f["text"].encode()
    head = (
        0x81,
        f["nonce"],
        2,
        schema,
        f["first"],
        f["clients"],
        2560,
        128,
        f["budget"],
        f["spent"],
        f["epoch"],
        f["heap"],
        f["records"],
        f["exceptions"],
        f["restarts"],
        f["entropy"],
        f["assessed"],
        f["measure"],
        f["unit"],
        bytes(f["release"]),
    )
    return struct.pack("<BIB8sIIHHIIIIHHHBBBH3sB", *head, len(data) if n is None else n) + data


def error_frame(key, fields):
    return sealed(key, struct.pack("<BIIBI", 0x84, *fields.values()))


def small_vectors():
    last = {**HELLO, "first": 2**32 - 2, "clients": 1, "text": ""}
    spent = {"device": 7, "round": 9, "code": 9, "detail": 123}
    of_board = {"device": 0, "round": 0, "code": 1, "detail": 0}
    tests = [
        frame_case("hello_request", "nonce 0", frames.hello_request(0), nonce=0),
        frame_case(
            "hello_request", "largest nonce", frames.hello_request(2**32 - 1), nonce=2**32 - 1
        ),
        frame_case("hello", "an emulated board", sealed(b"", hello_body(HELLO)), **HELLO),
        frame_case("hello", "no text, last id", sealed(b"", hello_body(last)), **last),
        frame_case("error", "budget spent", error_frame(KEY[:16], spent), KEY[:16], **spent),
        frame_case("error", "of the board", error_frame(b"", of_board), **of_board),
    ]
    hostile = [
        ("hello_request", "a byte too many", sealed(b"", struct.pack("<BIB", 1, 0, 0)), ERR_FRAME),
        ("hello_request", "a byte too few", sealed(b"", bytes(4)), ERR_FRAME),
        ("hello_request", "tag of a client", sealed(KEY, struct.pack("<BI", 1, 0)), ERR_TAG),
        ("hello_request", "another type", sealed(b"", struct.pack("<BI", 2, 0)), ERR_FRAME),
        ("hello", "text longer than what follows", sealed(b"", hello_body(HELLO, 200)), ERR_FRAME),
        ("hello", "text shorter than what follows", sealed(b"", hello_body(HELLO, 3)), ERR_FRAME),
        (
            "hello",
            "text is not UTF-8",
            sealed(b"", hello_body(dict(HELLO, text=""), 1) + b"\xff"),
            ERR_FRAME,
        ),
    ]
    return tests + [
        bad_frame(kind, comment, data, error=error) for kind, comment, data, error in hostile
    ]


def main():
    groups = (
        round_vectors,
        report_vectors,
        reports_vectors,
        model_vectors,
        fleet_key_vectors,
        small_vectors,
    )
    write(
        VECTORS / "frames.json",
        "wire.md. A frame is given with its tag. error: the code of the ERROR that answers it (1 frame, 2 tag); the "
        "tag is looked at first in a ROUND and last in the others. questions: what a client's key and id make of "
        "a ROUND",
        schema=[case("the text that is hashed", "valid", text=schema_text(), hash=SCHEMA)],
        tags=tag_vectors(),
        questions=question_vectors(),
        frames=[test for group in groups for test in group()],
    )


if __name__ == "__main__":
    main()
