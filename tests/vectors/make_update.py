"""Write the vectors of update.md: UPDATE and UPDATED frames, and packages, good and hostile.

    PYTHONPATH=tests python tests/vectors/make_update.py

Written from the text with Python's own hashlib, hmac and struct, without the device library, so
that the two can disagree.
"""

import hashlib
import hmac
import struct

from parts import KEY, KEY_B, VECTORS, case, write
from spec.frames import sealed

DAMAGED = 7
ERR_FRAME, ERR_TAG = 1, 2
TOP = 2**32 - 1
DATA = bytes(range(40))


def update(device, number, offset, total, data=b"", key=KEY):
    return sealed(key, struct.pack("<BIIII", 6, device, number, offset, total) + data)


def answer_key(request, key=KEY):
    return hashlib.sha256(key + request[:-8]).digest()[8:24]


def updated(request, wanted, state, key=None, device=None):
    target, number = struct.unpack_from("<II", request, 1)
    body = struct.pack("<BIIIB", 0x86, target if device is None else device, number, wanted, state)
    return sealed(answer_key(request) if key is None else key, body)


def frame_vectors():
    tests = []
    for comment, *fields, data in (
        ("the first bytes", 7, 1, 0, 100, DATA),
        ("the last bytes", 7, 1, 60, 100, DATA),
        ("a question", 7, 1, 100, 100, b""),
        ("the largest of all", 2**32 - 2, TOP, 2**20 - 2535, 2**20, bytes(2535)),
    ):
        named = dict(zip(("device", "number", "offset", "total"), fields, strict=True))
        frame = update(*fields, data)
        tests.append(
            case(comment, "valid", kind="update", key=KEY, frame=frame, fields=named, data=data)
        )
        for state in range(9) if data == DATA else ():
            named = {"device": fields[0], "number": fields[1], "wanted": fields[3], "state": state}
            given = {"kind": "updated", "key": answer_key(frame), "asked": frame}
            answer = updated(frame, fields[3], state)
            tests.append(
                case(f"state {state} after {comment}", "valid", **given, frame=answer, fields=named)
            )
    request = update(7, 1, 0, 100, DATA)
    for comment, frame, error in (
        ("package 0", update(7, 0, 0, 100, DATA), ERR_FRAME),
        ("no room for a code", update(7, 1, 0, 32, DATA), ERR_FRAME),
        ("larger than any package", update(7, 1, 0, 2**20 + 1, DATA), ERR_FRAME),
        ("largest length", update(7, 1, 0, TOP, DATA), ERR_FRAME),
        ("too short", sealed(KEY, request[:16]), ERR_FRAME),
        ("nothing but a type", sealed(KEY, b"\6"), ERR_FRAME),
        ("another key", update(7, 1, 0, 100, DATA, KEY_B), ERR_TAG),
        ("the empty key", update(7, 1, 0, 100, DATA, b""), ERR_TAG),
        ("the tag of a MODEL", request[:-8] + sealed(KEY, b"\4" + request[1:-8])[-8:], ERR_TAG),
        ("a byte of its data changed", request[:20] + b"\xff" + request[21:], ERR_TAG),
        ("another offset", request[:9] + b"\1" + request[10:], ERR_TAG),
    ):
        tests.append(
            case(comment, "invalid", ["hostile"], kind="update", key=KEY, frame=frame, error=error)
        )
    good = updated(request, 40, 0)
    later = update(7, 1, 40, 100, DATA)
    for comment, frame in (
        ("that of another UPDATE", updated(later, 40, 0)),
        ("under the client's key", updated(request, 40, 0, KEY)),
        ("under the empty key", updated(request, 40, 0, b"")),
        ("the UPDATE itself", request),
        ("a state that there is not", updated(request, 40, 9)),
        ("a byte too many", sealed(answer_key(request), good[:-8] + b"\0")),
        ("a byte too few", sealed(answer_key(request), good[:-9])),
    ):
        given = {"kind": "updated", "key": answer_key(request), "asked": request}
        tests.append(case(comment, "invalid", ["hostile"], **given, frame=frame))
    return tests


def entry(path, data, size=None):
    path = path if isinstance(path, bytes) else path.encode()
    return (
        bytes((len(path),)) + path + struct.pack("<I", len(data) if size is None else size) + data
    )


def package(number, content, key=KEY, label=b"tern update", coded=None):
    head = struct.pack("<II", number if coded is None else coded, len(content) + 32)
    return (
        content + hmac.new(hashlib.sha256(key + label).digest(), head + content, "sha256").digest()
    )


MAIN = entry("main.py", b"print(1)\n")


def package_vectors():
    tests = []
    several = {
        "tern/wire.mpy": bytes(range(256)) * 5,
        "a-b_C.9.json": b"",
        "drivers/x/y.py": b"pass\n",
    }
    for comment, files in (
        ("a program alone", {}),
        ("a library", several),
        ("files of whole pieces", {"one.py": bytes(512), "two.mpy": bytes(1024)}),
        ("the longest name", {"d" * 252 + ".py": b"x"}),
    ):
        content = b"".join(entry(path, data) for path, data in files.items()) + MAIN
        named = {path: data.hex() for path, data in files.items()} | {
            "main.py": b"print(1)\n".hex()
        }
        tests.append(
            case(comment, "valid", key=KEY, number=5, package=package(5, content), files=named)
        )
    good = package(5, MAIN)
    hostile = [
        ("a bit of its content changed", good[:9] + bytes((good[9] ^ 1,)) + good[10:]),
        ("a bit of its code changed", good[:-1] + bytes((good[-1] ^ 1,))),
        ("another device's", package(5, MAIN, KEY_B)),
        (
            "under the key itself",
            MAIN + hmac.new(KEY, struct.pack("<II", 5, 48) + MAIN, "sha256").digest(),
        ),
        ("under another label", package(5, MAIN, label=b"tern mqtt 1")),
        ("the code of another number", package(5, MAIN, coded=4)),
        ("no program", package(5, entry("a.py", b"x"))),
        ("a program that is not last", package(5, MAIN + entry("a.py", b"x"))),
        ("a program twice", package(5, MAIN + MAIN)),
        ("a file that is longer than the package", package(5, entry("a.py", b"x", 2**20) + MAIN)),
        ("a file of the largest size", package(5, entry("a.py", b"x", TOP) + MAIN)),
        ("a program that reaches into the code", package(5, entry("main.py", b"x", 2))),
        ("a byte behind the program", package(5, MAIN + b"\0")),
    ]
    for path in (
        "/boot.py",
        "../boot.py",
        "a/../../boot.py",
        "..",
        ".",
        "",
        "a//b.py",
        "a/.hidden.py",
        "./a.py",
        ".py",
        "a/.py",
        "a.bin",
        "clients",
        "a.pyc",
        "a py.py",
        "a\\b.py",
        "a:b.py",
        "a.py\0",
        "tern/",
        "a.py/",
        "ledger/00000007",
        "py",
        "mpy",
        "json",
        "a/py",
        "apy",
    ):
        hostile.append((f"a file {path!r}", package(5, entry(path, b"x") + MAIN)))
    hostile.append(("a name that is not UTF-8", package(5, entry(b"\xff.py", b"x") + MAIN)))
    hostile.append(("a name of other letters", package(5, entry("é.py", b"x") + MAIN)))
    given = {"flags": ["hostile"], "key": KEY, "number": 5}
    for comment, data in hostile:
        tests.append(case(comment, "invalid", **given, package=data, state=DAMAGED))
    return tests


def main():
    write(
        VECTORS / "update.json",
        "update.md. A frame is given with its tag. error: the code of the ERROR that answers an UPDATE (1 frame, 2 "
        "tag). The key of an UPDATED is the answer key of the UPDATE `asked`. state: that of a package which is no "
        "good, once all of it is there",
        frames=frame_vectors(),
        packages=package_vectors(),
    )


if __name__ == "__main__":
    main()
