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


def cases(name, group="tests"):
    tests = json.loads((VECTORS / name).read_text())[group]
    assert tests
    return tests


def bytes_of(name, case):
    return bytes.fromhex(case[name])


def text(data):
    return data or "-"


# --- Vectors of one line each: the question, and the words of the answer


def drawn(case):
    """The number of bytes that a draw takes, and its symbols."""
    return case["bytes_used"], *case["symbols"]


def draw_of_a_card(case):
    return "draw", bytes_of("card", case), int16s(case["xs"]), bytes_of("stream", case)


def draw_of_sums(case):
    return (
        "draw",
        bytes_of("card", case),
        b"".join(map(i32, case["sums"])),
        bytes_of("stream", case),
    )


def draw_of_a_projection(case):
    data = [bytes_of(name, case) for name in ("card", "stream", "question")]
    return "projection", *data, int16s(case["values"]), u32(len(case["symbols"]))


def unit(case):
    bounds = [i32(case[name]) for name in ("norm", "R", "r")]
    return "unit", *bounds, b"".join(map(i32, case["totals"]))


def choice(case):
    return "choice", *[u32(case[name]) for name in ("round", "batch", "count")]


def coordinates(case):
    return "coordinates", bytes_of("question", case), u32(case["d"]), u32(case["k"])


def packing(case):
    return "pack", u32(case["base"]), b"".join(map(u32, case["symbols"]))


def frame_of_cobs(case):
    return ["refused"] if case["result"] == "invalid" else [text(case["frame"])]


def question_of_a_round(case):
    return "question", bytes_of("key", case), u32(case["device"]), bytes_of("frame", case)


def ledger_fields(case):
    if case["result"] == "invalid":
        return ["refused"]
    names = ("budget", "spent", "last", "state", "measure", "question")
    return [*(case[name] for name in names), text(case["report"])]


def is_valid(case):
    """A device only packs, encodes and unhides; the invalid cases are for hosts."""
    return case["result"] == "valid" and "decode only" not in case["flags"]


def is_fleet_key(case):
    return case["kind"] == "fleet_key" and is_valid(case)


# File, group, which of its cases, the question of a case, and the words that answer it.
ONE_LINE = {
    "the bound of exp": (
        *("cards.json", "exp_lower", is_valid),
        lambda c: ("exp_lower", u32(c["epsilon"])),
        lambda c: [c["exp_lower"]],
    ),
    "draws": ("sampler.json", "tests", is_valid, draw_of_a_card, drawn),
    "draws of sums": ("sampler.json", "sums", is_valid, draw_of_sums, drawn),
    "projections": ("sampler.json", "projections", is_valid, draw_of_a_projection, drawn),
    "units": (
        *("arithmetic.json", "units", is_valid, unit),
        lambda c: [int(c["clipped"]), *c["vector"]],
    ),
    "choice of records": (
        *("arithmetic.json", "choice", is_valid, choice),
        lambda c: [c["records"][0], len(c["records"])],  # the others follow in turn
    ),
    "coordinates": ("coordinates.json", "tests", is_valid, coordinates, lambda c: c["coordinates"]),
    "frames from COBS": (
        *("cobs.json", "tests", lambda c: True),
        lambda c: ("decode", bytes_of("coded", c)[:-1]),
        frame_of_cobs,
    ),
    "frames to COBS": (
        *("cobs.json", "tests", is_valid),
        lambda c: ("encode", bytes_of("frame", c)),
        lambda c: [c["coded"].removesuffix("00")],
    ),
    "packing": ("packing.json", "tests", is_valid, packing, lambda c: [c["packed"]]),
    "questions": (
        *("frames.json", "questions", is_valid, question_of_a_round),
        lambda c: [c["question"]],
    ),
    "fleet keys": (
        *("frames.json", "frames", is_fleet_key),
        lambda c: ("unhide", bytes_of("key", c), bytes_of("frame", c)),
        lambda c: [c["fields"]["fleet_key"]],
    ),
    "ledgers": (
        *("ledger.json", "files", lambda c: True),
        lambda c: ("ledger", bytes_of("ledger", c)),
        ledger_fields,
    ),
    "health tests": (
        *("entropy.json", "health", lambda c: True),
        lambda c: ("health", bytes_of("raw", c)),
        lambda c: ["never" if c["fails_at"] is None else c["fails_at"]],
    ),
}


@pytest.mark.parametrize("what", ONE_LINE)
def test_the_second_device_passes_the_vectors(device, what):
    """The second device is a board written in C from the specification alone.

    Asked for a case of each file of shared test vectors, it gives the answer that the file states.
    """
    file, group, is_meant, question, expected = ONE_LINE[what]
    tests = [case for case in cases(file, group) if is_meant(case)]
    for case, answer in answered(device, tests, question):
        assert answer == [str(word) for word in expected(case)], case["comment"]


# --- Vectors of several lines, or whose answer says more


def test_cards(device):
    """The second device, written in C from the specification alone, judges each card of
    cards.json, a table to draw noise from, as stated: whether it decodes, and whether it keeps its
    privacy ("certified"); and it finds the number of symbols and the hash.
    """
    tests = cases("cards.json")
    results = answered(device, tests, lambda c: ("card", bytes_of("card", c)))
    for case, (decodes, certified, symbols, digest) in results:
        verdict = (decodes == "1", certified == "1")
        assert verdict == (case["decodes"], case["certified"]), case["comment"]
        if case["result"] == "valid":
            assert (int(symbols), digest) == (case["symbols"], case["hash"])


def test_cards_are_certified_down_to_the_smallest_epsilon_that_they_keep(device):
    for case in cases("cards.json"):
        if "too_small" in case:  # for 0 the claim is no epsilon, and refused as well
            card, most = bytes_of("card", case), case["too_small"]
            claims = [card[:1] + u32(epsilon) + card[5:] for epsilon in (most, most + 1)]
            answers = ask(device, [("card", claim) for claim in claims])
            assert [certified for _, certified, *_ in answers] == ["0", "1"], case["comment"]


@pytest.mark.parametrize("group", ["gradients", "local", "inference", "collection"])
def test_arithmetic(device, group):
    """The second device, written in C from the specification alone, computes the values that
    arithmetic.json states, in exact integers, for a ROUND (a host's question) with the fields of
    the case and the device's records.
    """
    # A batch of 33 counts as one of 32, though a ROUND cannot have it.
    tests, lines = cases("arithmetic.json", group), []
    for case in tests:
        if "asked" in case:
            question = features([j for j, bit in enumerate(case["asked"]) if bit], case["d"])
        else:
            question = int16s(case["parameters"])
        zeros = dict.fromkeys(("range", "exponent", "batch", "epochs", "rate", "tau"), 0)
        fields = {"device": 7, "classes": 1, "k": 1, **zeros}
        fields |= {name: case[name] for name in FIELDS if name in case}
        fields["batch"] = min(fields["batch"], 32)
        card = bytes_of("card", case) if "card" in case else THREE
        frame = sealed(key_of(7), Round(**fields, question=question, card=card).body())
        lines.append(("values", frame, u32(case["d"]), b"".join(map(int16s, case["records"]))))
    for case, answer in zip(tests, ask(device, lines), strict=True):
        assert list(map(int, answer)) == case["values"], case["comment"]


def test_schema_and_tags(device):
    """Another implementation hashes the schema, the text that lays out all frames, and computes
    the tags that authenticate frames, as frames.json states. Both are the first 16 hexadecimal
    digits of a hash.
    """
    (schema,) = cases("frames.json", "schema")
    assert ask(device, [("hash", b"", schema["text"].encode())])[0][0][:16] == schema["hash"]
    tests = cases("frames.json", "tags")
    for case, answer in answered(
        device, tests, lambda c: ("hash", bytes_of("key", c), bytes_of("data", c))
    ):
        assert (answer[0][:16] == case["tag"]) == (case["result"] == "valid"), case["comment"]


def test_rounds(device):
    """The second device, written in C from the specification alone, reads every field of the ROUND
    frames in frames.json, and refuses invalid ones with the stated error.
    """
    tests = [c for c in cases("frames.json", "frames") if c["kind"] == "round"]
    for case, answer in answered(
        device, tests, lambda c: ("round", bytes_of("key", c), bytes_of("frame", c))
    ):
        if case["result"] == "invalid":
            assert answer == [str(case["error"])], case["comment"]
            continue
        fields = case["fields"]
        assert list(map(int, answer[1:13])) == [fields[name] for name in FIELDS], case["comment"]
        question = bytes.fromhex(answer[14])
        parameters = fields["parameters"]
        if fields["model"] in spec.COLLECTIONS:  # a bit for each feature
            assert [question[j // 8] >> j % 8 & 1 for j in range(len(parameters))] == parameters
        else:
            assert question == int16s(parameters)
        assert answer[15] == fields["card"]


def test_payments(device):
    """A ledger is a board's file of spent privacy budget. ledger.json holds sequences of payments
    and restarts: after each payment, the second device, written in C from the specification alone,
    gives the stated answer, budget spent and bytes of the file.
    """
    for case in cases("ledger.json", "transitions"):
        file, lines, expected = case["ledger"], [("ledger", bytes_of("ledger", case))], []
        for event in case["events"]:
            if "restart" in event:
                lines.append(("ledger", bytes.fromhex(file)))
                expected.append(None)
                continue
            question, report = bytes_of("question", event), bytes_of("report", event)
            number, cost, ahead = (u32(event[name]) for name in ("round", "cost", "ahead"))
            lines.append(("pay", number, question, cost, report, ahead))
            expected.append([event["answer"], str(event["spent"]), text(event["file"])])
            file = event["file"] or file

        # The first line only loads the ledger; a restart has no answer of interest.
        for answer, wanted in zip(ask(device, lines)[1:], expected, strict=True):
            assert wanted is None or answer[:3] == wanted, case["comment"]


def test_generator(device):
    """The second device draws the random bytes that entropy.json states from given raw noise.

    It has no AES, and therefore Hash_DRBG alone.
    """

    def line(c):
        reports = b"".join(map(u32, itertools.chain(*c["reports"])))
        return "generator", c["raw_of"].encode(), bytes_of("also", c), u32(c["portion"]), reports

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
    """In its HELLO, a board of the second device tells its configuration and state.

    The fleet's fields are pause 60 s, slot 0, one report paid for at once, epoch 3, at most 256
    records, and a unit of 9.
    """
    board = provision(tmp_path, first=5, clients=2, budget=1000, fleet=(60, 0, 1, 3, 256, 9))
    hello = host_frames.Hello(talk(device, board, hello_request(99))[0])
    assert hello.schema.hex() == cases("frames.json", "schema")[0]["hash"]
    assert {name: getattr(hello, name) for name in ALIKE} == {
        "nonce": 99,
        "version": 2,
        "first": 5,
        "clients": 2,
        "largest": 2560,
        "credit": 128,
        "budget": 1000,
        "spent": 0,
        "epoch": 3,
        "records": 256,
        "measure": 0,
        "unit": 9,
    }


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
    """Two processes on one board would each think that the other had spent nothing.

    The first answers round 1; then another process answers round 9. Round 10 must be refused by
    the first, until it has loaded the ledger again, the file of spent privacy budget.
    """
    board = provision(tmp_path, fleet=(0, 0, 3, 1, 0))
    with subprocess.Popen(
        [device, str(board)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        first.stdin.write(cobs(Round(round=1).frame()))
        first.stdin.flush()
        while first.stdout.read(1) != b"\0":
            pass
        # 0x82: a REPORT, of another process.
        assert talk(device, board, Round(round=9).frame(), random=None)[0][0] == 0x82
        answers, _ = first.communicate(
            cobs(Round(round=10).frame()) + cobs(Round(round=10).frame())
        )

    frames = [uncobs(part) for part in answers.split(b"\0") if part]
    # (error code, detail): first LEDGER, as the other process has written it. Then it is loaded
    # again, and tells that its reports are paid for up to round 11, three with the one of round 9.
    assert error(frames[0], Round(round=10).frame())[2:] == (10, 0)
    assert error(frames[1], Round(round=10).frame())[2:] == (4, 11)


def test_slot(device, tmp_path):
    # records * (66 + 128) >> 8 for d = 2, 0 for the card: 24 for a batch of 32, 23 for one of 31
    board = provision(tmp_path, fleet=(0, 263, 1, 1, 0))
    assert len(THREE) < 64
    frame = Round(batch=32).frame()
    assert error(talk(device, board, frame)[0], frame)[2:] == (16, 0)
    assert len(talk(device, board, Round(batch=31).frame(), random=bytes(99))[0]) == 18


@pytest.mark.parametrize(("most_records", "is_answered"), [(31, True), (32, False), (0, False)])
def test_a_gradient_of_all_records_may_take_as_long_as_the_most_records_do(
    device, tmp_path, most_records, is_answered
):
    """The slot has room for 31 records. A board that may have more, or any number of them, refuses
    a question about all its records.
    """
    board = provision(tmp_path, fleet=(0, 263, 1, 1, most_records))
    frame = Round(batch=0).frame()
    answer = talk(device, board, frame, random=bytes(99))[0]
    if is_answered:
        assert len(answer) == 18
    else:
        assert error(answer, frame)[2:] == (16, 0)
