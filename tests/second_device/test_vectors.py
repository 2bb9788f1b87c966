"""Tests of the second device (device.c) by every vector file but rounds.json (test_agreement.py), and as a board."""

import collections
import hashlib
import itertools
import json
import struct
import subprocess
from pathlib import Path

import pytest
from asking import FIELDS
from spec import frames as spec
from spec.files import client_row, fleet_file, key_of, ledger_file, records_file
from spec.frames import FLEET, cobs, features, hello_request, int16s, sealed, tag, uncobs

HERE = Path(__file__).parent
VECTORS = HERE.parent.parent / "shared_specs" / "vectors"


def u32(value):
    return value.to_bytes(4, "little")


def ask(device, questions):
    """The answers of `device --check` to lines (name, bytes ...), each split into words."""
    lines = [" ".join([name, *(a.hex() or "-" for a in arguments)]) for name, *arguments in questions]
    run = subprocess.run(
        [device, "--check"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    )
    answers = [line.split() for line in run.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


def answered(device, tests, question):
    """Pairs of a case and the answer to question(case), a line (name, bytes ...)."""
    return zip(tests, ask(device, [question(case) for case in tests]), strict=True)


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
        assert (decodes == "1", certified == "1") == (case["decodes"], case["certified"]), case["comment"]
        if case["result"] == "valid":
            assert (int(symbols), digest) == (case["symbols"], case["hash"])
    for case in tests:
        if "too_small" in case:  # for 0 the claim is no epsilon, and refused as well
            card, most = h("card", case), case["too_small"]
            claims = [card[:1] + u32(epsilon) + card[5:] for epsilon in (most, most + 1)]
            answers = ask(device, [("card", claim) for claim in claims])
            assert [certified for _, certified, *_ in answers] == ["0", "1"], case["comment"]


def test_exp_lower(device):
    tests = cases("cards.json", "exp_lower")
    for case, answer in answered(device, tests, lambda c: ("exp_lower", u32(c["epsilon"]))):
        assert answer == [case["exp_lower"]], case["comment"]


@pytest.mark.parametrize("group", ["gradients", "local", "inference", "collection"])
def test_arithmetic(device, group):
    # A batch of 33 counts as one of 32, though a ROUND cannot have it.
    tests, lines = cases("arithmetic.json", group), []
    for case in tests:
        fields = collections.defaultdict(int, case)
        if "asked" in case:
            question = features([j for j, bit in enumerate(case["asked"]) if bit], case["d"])
        else:
            question = int16s(case["parameters"])
        frame = round_frame(
            device=case.get("device", 7),
            key=KEYS[7],
            number=case["round"],
            model=case["model"],
            value_range=fields["range"],
            exponent=fields["exponent"],
            classes=case.get("classes", 1),
            d=case["d"],
            k=case.get("k", 1),
            batch=min(fields["batch"], 32),
            local=(fields["epochs"], fields["rate"], fields["tau"]),
            question=question,
            card=h("card", case) if "card" in case else CARD,
        )
        lines.append(("values", frame, u32(case["d"]), b"".join(map(int16s, case["records"]))))
    for case, answer in zip(tests, ask(device, lines), strict=True):
        assert list(map(int, answer)) == case["values"], case["comment"]


def test_choice_of_records(device):
    line = lambda c: ("choice", *(u32(c[name]) for name in ("round", "batch", "count")))  # noqa: E731
    for case, answer in answered(device, cases("arithmetic.json", "choice"), line):
        first, n = map(int, answer)
        assert [(first + i) % case["count"] for i in range(n)] == case["records"], case["comment"]


def test_sampler(device):
    line = lambda c: ("draw", h("card", c), int16s(c["xs"]), h("stream", c))  # noqa: E731
    for case, answer in answered(device, cases("sampler.json"), line):
        assert list(map(int, answer)) == [case["bytes_used"], *case["symbols"]], case["comment"]


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
    tests = [c for c in cases("packing.json") if c["result"] == "valid"]
    line = lambda c: ("pack", u32(c["base"]), b"".join(map(u32, c["symbols"])))  # noqa: E731
    for case, answer in answered(device, tests, line):
        assert answer == [case["packed"]], case["comment"]


def test_coordinates(device):
    line = lambda c: ("coordinates", h("question", c), u32(c["d"]), u32(c["k"]))  # noqa: E731
    for case, answer in answered(device, cases("coordinates.json"), line):
        assert list(map(int, answer)) == case["coordinates"], case["comment"]


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
    names = [{"number": "round"}.get(name, name) for name in FIELDS]
    for case, answer in answered(device, tests, lambda c: ("round", h("key", c), h("frame", c))):
        if case["result"] == "invalid":
            assert answer == [str(case["error"])], case["comment"]
            continue
        fields = case["fields"]
        assert list(map(int, answer[1:13])) == [fields[n] for n in names], case["comment"]
        question = bytes.fromhex(answer[14])
        parameters = fields["parameters"]
        if fields["model"] in (8, 9):  # a bit for each feature
            assert [question[j // 8] >> j % 8 & 1 for j in range(len(parameters))] == parameters
        else:
            assert question == int16s(parameters)
        assert answer[15] == fields["card"]


def test_fleet_keys(device):
    tests = [c for c in cases("frames.json", "frames") if c["kind"] == "fleet_key" and c["result"] == "valid"]
    for case, answer in answered(device, tests, lambda c: ("unhide", h("key", c), h("frame", c))):
        assert answer == [case["fields"]["fleet_key"]], case["comment"]


def test_ledgers(device):
    tests = cases("ledger.json", "files")
    for case, answer in answered(device, tests, lambda c: ("ledger", h("ledger", c))):
        if case["result"] == "invalid":
            assert answer == ["refused"], case["comment"]
        else:
            numbers = [case[name] for name in ("budget", "spent", "last", "state")]
            assert list(map(int, answer[:4])) == numbers, case["comment"]
            assert answer[4:] == [case["question"], text(case["report"])]


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
        assert answer == ["never" if case["fails_at"] is None else str(case["fails_at"])], case["comment"]


def test_generator(device):
    """The device has no AES, and therefore Hash_DRBG alone."""

    def line(c):
        reports = b"".join(map(u32, itertools.chain(*c["reports"])))
        return "generator", c["raw_of"].encode(), h("also", c), u32(c["portion"]), reports

    tests = [c for c in cases("entropy.json", "generators") if c["generator"] == "Hash_DRBG"]
    for case, answer in answered(device, tests, line):
        assert answer[0].endswith(case["last_drawn"]), case["comment"]


# ---- Conversations with the board ----

CARD = bytes.fromhex(
    "1180841e000103ff0001006b4e32c02d293980b5d706804a283940d2d6060095b10d"
)  # epsilon 2, three levels
KEYS = {device: key_of(device) for device in range(5, 9)}
FLEET_KEY = hashlib.sha256(b"fleet").digest()


def provision(directory, clients=(7,), budget=10**8, fleet=None, ledger_budget=10**9, shapes=0, most=10**8):
    """Write a board with three records of d = 2 for each client. fleet: (pause, slot, ahead, epoch, records)."""
    (directory / "ledger").mkdir(parents=True)
    rows = b""
    for i, device in enumerate(clients):
        rows += client_row(device, most, budget, 3 * i, 3, shapes)
        (directory / "ledger" / f"{device:08x}").write_bytes(ledger_file(budget=ledger_budget))
    (directory / "clients.bin").write_bytes(rows)
    values = (16384, 8192, 16384, -4096, 16384, -16384, 100, -16384, 16384) * len(clients)
    (directory / "records.bin").write_bytes(records_file(2, values))
    if fleet:
        (directory / "fleet.bin").write_bytes(fleet_file(FLEET_KEY, *fleet))
    return directory


def round_frame(
    device=7,
    number=1,
    card=CARD,
    key=None,
    model=2,
    k=2,
    parameters=(3, -5),
    exponent=-14,
    batch=0,
    local=(0, 0, 0),
    value_range=0,
    classes=1,
    d=2,
    question=None,
):
    fields = (device, number, model, value_range, exponent, classes, d, k, batch, local)
    body = spec.round_body(*fields, question or int16s(parameters), card)
    return sealed(key or (FLEET_KEY if device == FLEET else KEYS[device]), body)


def answer_key(frame, device):
    return spec.answer_key(spec.question(KEYS[device], device, frame[5:-8]))


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
    """(device, round, code, detail) of an ERROR whose tag verifies. request: the ROUND that it answers."""
    kind, device, number, code, detail = struct.unpack("<BIIBI", frame[:-8])
    assert kind == 0x84
    assert frame[-8:] == tag(answer_key(request, device) if device else b"", frame[:-8])
    return device, number, code, detail


def hello(frame):
    assert frame[0] == 0x81
    assert frame[-8:] == tag(b"", frame[:-8])
    fields = struct.unpack_from("<IB8sIIHHIIIHHHBB3sB", frame, 1)
    names = "nonce version schema first clients largest credit budget epoch heap records exceptions restarts"
    names += " entropy assessed release n"
    assert len(frame) == 1 + struct.calcsize("<IB8sIIHHIIIHHHBB3sB") + fields[-1] + 8
    return dict(zip(names.split(), fields, strict=True))


def test_hello(device, tmp_path):
    board = provision(tmp_path / "board", (5, 6), 1000, (60, 0, 1, 3, 256))
    fields = hello(talk(device, board, hello_request(99))[0])
    assert fields["schema"].hex() == cases("frames.json", "schema")[0]["hash"]
    names = ("nonce", "version", "first", "clients", "largest", "credit", "budget", "epoch", "records")
    assert [fields[name] for name in names] == [99, 2, 5, 2, 2560, 128, 1000, 3, 256]


def test_credits_count_the_bytes_that_the_board_takes(device, tmp_path):
    board = provision(tmp_path / "board")
    line = bytes(1000) + cobs(hello_request(1)) + bytes(128)
    run = subprocess.run([device, str(board)], input=line, capture_output=True, check=True)
    assert run.stdout.startswith(bytes(7))
    assert run.stdout[7]
    assert run.stdout.endswith(b"\0\0")


def test_a_lone_ctrl_c_brings_the_console_back(device, tmp_path):
    board = provision(tmp_path / "board")
    assert talk(device, board, hello_request(1), raw=b"\r\3\0") == []
    assert len(talk(device, board, hello_request(1), raw=b"\3\0")) == 2  # a lone 0x03 is half a frame


def test_two_processes_do_not_pay_from_one_ledger(device, tmp_path):
    board = provision(tmp_path / "board", fleet=(0, 0, 3, 1, 0))
    with subprocess.Popen([device, str(board)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        first.stdin.write(cobs(round_frame(number=1)))
        first.stdin.flush()
        while first.stdout.read(1) != b"\0":
            pass
        assert talk(device, board, round_frame(number=9), random=None)[0][0] == 0x82
        answers, _ = first.communicate(cobs(round_frame(number=10)) + cobs(round_frame(number=10)))
    frames = [uncobs(part) for part in answers.split(b"\0") if part]
    # The other process has written the ledger: refused, and loaded again.
    assert error(frames[0], round_frame(number=10))[2:] == (10, 0)
    assert error(frames[1], round_frame(number=10))[2:] == (4, 11)


def test_slot(device, tmp_path):
    # records * (66 + 128) >> 8 for d = 2, 0 for the card: 24 for a batch of 32, 23 for one of 31
    board = provision(tmp_path / "board", fleet=(0, 263, 1, 1, 0))
    assert len(CARD) < 64
    frame = round_frame()
    assert error(talk(device, board, frame)[0], frame)[2:] == (16, 0)
    assert len(talk(device, board, round_frame(batch=31), random=bytes(99))[0]) == 18
