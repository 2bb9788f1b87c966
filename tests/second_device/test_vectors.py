"""Tests of the second device (device.c) by every vector file but rounds.json (test_agreement.py),
and as a board.
"""

import itertools
import json
import struct
import subprocess
from pathlib import Path

import pytest
from known_board import ALIKE, put
from spec import frames as spec
from spec.boards import FIELDS, Board, Round
from spec.cards import THREE
from spec.files import key_of
from spec.frames import cobs, features, hello_request, int16s, sealed, tag, uncobs

from tern import host_frames

HERE = Path(__file__).parent
VECTORS = HERE.parent.parent / "shared_specs" / "vectors"


def u32(value):
    return value.to_bytes(4, "little")


def i32(value):
    return value.to_bytes(4, "little", signed=True)


def ask(device, questions):
    """The answers of `device --check` to lines (name, bytes ...), each split into words."""
    lines = [
        " ".join([name, *(a.hex() or "-" for a in arguments)]) for name, *arguments in questions
    ]
    run = subprocess.run(
        [device, "--check"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [line.split() for line in run.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


def answered(device, tests, question):
    """Pairs of a case and the answer to question(case), a line (name, bytes ...)."""
    return zip(tests, ask(device, [question(case) for case in tests]), strict=True)


def require_answers(device, tests, question, expected):
    """The device answers question(case), a line (name, bytes ...), with the words of expected(case)."""
    for case, answer in answered(device, tests, question):
        assert answer == [str(word) for word in expected(case)], case["comment"]


def drawn(case):
    """The number of bytes that a draw takes, and its symbols."""
    return case["bytes_used"], *case["symbols"]


def text(data):
    return data or "-"


def cases(name, group="tests"):
    tests = json.loads((VECTORS / name).read_text())[group]
    assert tests
    return tests


def h(name, case):
    return bytes.fromhex(case[name])


def test_cards(device):
    tests = cases("cards.json")
    results = answered(device, tests, lambda c: ("card", h("card", c)))
    for case, (decodes, certified, symbols, digest) in results:
        assert (decodes == "1", certified == "1") == (case["decodes"], case["certified"]), case[
            "comment"
        ]
        if case["result"] == "valid":
            assert (int(symbols), digest) == (case["symbols"], case["hash"])
    for case in tests:
        if "too_small" in case:  # for 0 the claim is no epsilon, and refused as well
            card, most = h("card", case), case["too_small"]
            claims = [card[:1] + u32(epsilon) + card[5:] for epsilon in (most, most + 1)]
            answers = ask(device, [("card", claim) for claim in claims])
            assert [certified for _, certified, *_ in answers] == ["0", "1"], case["comment"]


def test_exp_lower(device):
    def question(case):
        return "exp_lower", u32(case["epsilon"])

    tests = cases("cards.json", "exp_lower")
    require_answers(device, tests, question, lambda case: [case["exp_lower"]])


@pytest.mark.parametrize("group", ["gradients", "local", "inference", "collection"])
def test_arithmetic(device, group):
    # A batch of 33 counts as one of 32, though a ROUND cannot have it.
    tests, lines = cases("arithmetic.json", group), []
    for case in tests:
        if "asked" in case:
            question = features([j for j, bit in enumerate(case["asked"]) if bit], case["d"])
        else:
            question = int16s(case["parameters"])
        fields = {
            "device": 7,
            "classes": 1,
            "k": 1,
            **dict.fromkeys(("range", "exponent", *FIELDS[8:]), 0),
        }
        fields |= {name: case[name] for name in FIELDS if name in case}
        fields["batch"] = min(fields["batch"], 32)
        card = h("card", case) if "card" in case else THREE
        frame = sealed(key_of(7), Round(**fields, question=question, card=card).body())
        lines.append(("values", frame, u32(case["d"]), b"".join(map(int16s, case["records"]))))
    for case, answer in zip(tests, ask(device, lines), strict=True):
        assert list(map(int, answer)) == case["values"], case["comment"]


def test_choice_of_records(device):
    def question(case):
        return "choice", *[u32(case[name]) for name in ("round", "batch", "count")]

    for case, answer in answered(device, cases("arithmetic.json", "choice"), question):
        first, n = map(int, answer)
        chosen = [(first + i) % case["count"] for i in range(n)]
        assert chosen == case["records"], case["comment"]


def test_sampler(device):
    def question(case):
        return "draw", h("card", case), int16s(case["xs"]), h("stream", case)

    require_answers(device, cases("sampler.json"), question, drawn)


def test_draws_of_sums(device):
    def question(case):
        return "draw", h("card", case), b"".join(map(i32, case["sums"])), h("stream", case)

    require_answers(device, cases("sampler.json", "sums"), question, drawn)


def test_vectors_of_units(device):
    def question(case):
        bounds = [i32(case[name]) for name in ("norm", "R", "r")]
        return "unit", *bounds, b"".join(map(i32, case["totals"]))

    def expected(case):
        return int(case["clipped"]), *case["vector"]

    require_answers(device, cases("arithmetic.json", "units"), question, expected)


def test_projections(device):
    def question(case):
        data = [h(name, case) for name in ("card", "stream", "question")]
        return "projection", *data, int16s(case["values"]), u32(len(case["symbols"]))

    require_answers(device, cases("sampler.json", "projections"), question, drawn)


def test_cobs(device):
    tests = cases("cobs.json")
    for case, answer in answered(device, tests, lambda c: ("decode", h("coded", c)[:-1])):
        expected = ["refused"] if case["result"] == "invalid" else [text(case["frame"])]
        assert answer == expected, case["comment"]
    tests = [c for c in tests if c["result"] == "valid" and "decode only" not in c["flags"]]
    for case, answer in answered(device, tests, lambda c: ("encode", h("frame", c))):
        assert answer == [case["coded"][:-2]], case["comment"]


def test_packing(device):
    """A device only packs; the invalid cases are for hosts."""

    def question(case):
        return "pack", u32(case["base"]), b"".join(map(u32, case["symbols"]))

    tests = [case for case in cases("packing.json") if case["result"] == "valid"]
    require_answers(device, tests, question, lambda case: [case["packed"]])


def test_coordinates(device):
    def question(case):
        return "coordinates", h("question", case), u32(case["d"]), u32(case["k"])

    tests = cases("coordinates.json")
    require_answers(device, tests, question, lambda case: case["coordinates"])


def test_schema_and_tags(device):
    (schema,) = cases("frames.json", "schema")
    assert ask(device, [("hash", b"", schema["text"].encode())])[0][0][:16] == schema["hash"]
    tests = cases("frames.json", "tags")
    for case, answer in answered(device, tests, lambda c: ("hash", h("key", c), h("data", c))):
        assert (answer[0][:16] == case["tag"]) == (case["result"] == "valid"), case["comment"]


def test_questions(device):
    line = lambda c: ("question", h("key", c), u32(c["device"]), h("frame", c))  # noqa: E731
    for case, answer in answered(device, cases("frames.json", "questions"), line):
        assert answer == [case["question"]], case["comment"]
        assert answer[0][16:48] == case["answer_key"]


def test_rounds(device):
    tests = [c for c in cases("frames.json", "frames") if c["kind"] == "round"]
    for case, answer in answered(device, tests, lambda c: ("round", h("key", c), h("frame", c))):
        if case["result"] == "invalid":
            assert answer == [str(case["error"])], case["comment"]
            continue
        fields = case["fields"]
        assert list(map(int, answer[1:13])) == [fields[name] for name in FIELDS], case["comment"]
        question = bytes.fromhex(answer[14])
        parameters = fields["parameters"]
        if fields["model"] in (8, 9):  # a bit for each feature
            assert [question[j // 8] >> j % 8 & 1 for j in range(len(parameters))] == parameters
        else:
            assert question == int16s(parameters)
        assert answer[15] == fields["card"]


def test_fleet_keys(device):
    tests = [
        c
        for c in cases("frames.json", "frames")
        if c["kind"] == "fleet_key" and c["result"] == "valid"
    ]
    for case, answer in answered(device, tests, lambda c: ("unhide", h("key", c), h("frame", c))):
        assert answer == [case["fields"]["fleet_key"]], case["comment"]


def test_ledgers(device):
    tests = cases("ledger.json", "files")
    for case, answer in answered(device, tests, lambda c: ("ledger", h("ledger", c))):
        if case["result"] == "invalid":
            assert answer == ["refused"], case["comment"]
        else:
            numbers = [case[name] for name in ("budget", "spent", "last", "state", "measure")]
            assert list(map(int, answer[:5])) == numbers, case["comment"]
            assert answer[5:] == [case["question"], text(case["report"])]


def test_payments(device):
    for case in cases("ledger.json", "transitions"):
        file, lines, expected = case["ledger"], [("ledger", h("ledger", case))], []
        for event in case["events"]:
            if "restart" in event:
                lines.append(("ledger", bytes.fromhex(file)))
                expected.append(None)
                continue
            question, report = h("question", event), h("report", event)
            number, cost, ahead = (u32(event[name]) for name in ("round", "cost", "ahead"))
            lines.append(("pay", number, question, cost, report, ahead))
            expected.append([event["answer"], str(event["spent"]), text(event["file"])])
            file = event["file"] or file
        for answer, wanted in zip(ask(device, lines)[1:], expected, strict=True):
            assert wanted is None or answer[:3] == wanted, case["comment"]


def test_health(device):
    tests = cases("entropy.json", "health")
    for case, answer in answered(device, tests, lambda c: ("health", h("raw", c))):
        assert answer == ["never" if case["fails_at"] is None else str(case["fails_at"])], case[
            "comment"
        ]


def test_generator(device):
    """The device has no AES, and therefore Hash_DRBG alone."""

    def line(c):
        reports = b"".join(map(u32, itertools.chain(*c["reports"])))
        return "generator", c["raw_of"].encode(), h("also", c), u32(c["portion"]), reports

    tests = [c for c in cases("entropy.json", "generators") if c["generator"] == "Hash_DRBG"]
    for case, answer in answered(device, tests, line):
        assert answer[0].endswith(case["last_drawn"]), case["comment"]


# ---- Conversations with the board ----


def provision(directory, **fields):
    """Write the files of a Board of these fields."""
    put(str(directory), Board(**fields).image())
    return directory


def talk(device, directory, *frames, random=b"", raw=b""):
    """The answers of a board to these frames, without its credits. raw: bytes before the frames."""
    extra = []
    if random is not None:
        (directory / "random").write_bytes(random)
        extra = ["--random", str(directory / "random")]
    run = subprocess.run(
        [device, str(directory), *extra],
        input=raw + b"".join(map(cobs, frames)),
        capture_output=True,
        check=True,
    )
    return [uncobs(part) for part in run.stdout.split(b"\0") if part]


def error(frame, request=None):
    """(device, round, code, detail) of an ERROR whose tag verifies. request: the ROUND that it
    answers.
    """
    kind, device, number, code, detail = struct.unpack("<BIIBI", frame[:-8])
    assert kind == 0x84
    key = spec.answer_key(spec.question(key_of(device), device, request[5:-8])) if device else b""
    assert frame[-8:] == tag(key, frame[:-8])
    return device, number, code, detail


def test_hello(device, tmp_path):
    board = provision(tmp_path, first=5, clients=2, budget=1000, fleet=(60, 0, 1, 3, 256, 9))
    hello = host_frames.Hello(talk(device, board, hello_request(99))[0])
    assert hello.schema.hex() == cases("frames.json", "schema")[0]["hash"]
    assert [getattr(hello, name) for name in ALIKE] == [
        99,
        2,
        5,
        2,
        2560,
        128,
        1000,
        0,
        3,
        256,
        0,
        9,
    ]


def test_credits_count_the_bytes_that_the_board_takes(device, tmp_path):
    board = provision(tmp_path)
    line = bytes(1000) + cobs(hello_request(1)) + bytes(128)
    run = subprocess.run([device, str(board)], input=line, capture_output=True, check=True)
    assert run.stdout.startswith(bytes(7))
    assert run.stdout[7]
    assert run.stdout.endswith(b"\0\0")


def test_a_lone_ctrl_c_brings_the_console_back(device, tmp_path):
    board = provision(tmp_path)
    assert talk(device, board, hello_request(1), raw=b"\r\3\0") == []
    assert (
        len(talk(device, board, hello_request(1), raw=b"\3\0")) == 2
    )  # a lone 0x03 is half a frame


def test_two_processes_do_not_pay_from_one_ledger(device, tmp_path):
    board = provision(tmp_path, fleet=(0, 0, 3, 1, 0))
    with subprocess.Popen(
        [device, str(board)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        first.stdin.write(cobs(Round(round=1).frame()))
        first.stdin.flush()
        while first.stdout.read(1) != b"\0":
            pass
        assert talk(device, board, Round(round=9).frame(), random=None)[0][0] == 0x82
        answers, _ = first.communicate(
            cobs(Round(round=10).frame()) + cobs(Round(round=10).frame())
        )
    frames = [uncobs(part) for part in answers.split(b"\0") if part]
    # The other process has written the ledger: refused, and loaded again.
    assert error(frames[0], Round(round=10).frame())[2:] == (10, 0)
    assert error(frames[1], Round(round=10).frame())[2:] == (4, 11)


def test_slot(device, tmp_path):
    # records * (66 + 128) >> 8 for d = 2, 0 for the card: 24 for a batch of 32, 23 for one of 31
    board = provision(tmp_path, fleet=(0, 263, 1, 1, 0))
    assert len(THREE) < 64
    frame = Round().frame()
    assert error(talk(device, board, frame)[0], frame)[2:] == (16, 0)
    assert len(talk(device, board, Round(batch=31).frame(), random=bytes(99))[0]) == 18
