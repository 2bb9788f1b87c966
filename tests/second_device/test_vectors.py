"""The second device (device.c) against every vector file, and a few conversations with it as a board."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VECTORS = HERE.parent.parent / "shared_specs" / "vectors"
FLAGS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror"]


@pytest.fixture(scope="session")
def device(tmp_path_factory):
    """The program, built once."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler (cc)")
    program = tmp_path_factory.mktemp("second_device") / "device"
    subprocess.run([compiler, *FLAGS, str(HERE / "device.c"), "-o", str(program)], check=True)
    return program


def u32(value):
    return value.to_bytes(4, "little")


def ask(device, questions):
    """The answers of `device --check` to lines (name, bytes ...), each split into words."""
    lines = [" ".join([name, *(a.hex() or "-" for a in arguments)]) for name, *arguments in questions]
    run = subprocess.run([device, "--check"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    answers = [line.split() for line in run.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


def text(data):
    return data or "-"


def cases(name, group="tests"):
    found = json.loads((VECTORS / name).read_text())[group]
    assert found
    return found


def h(name, case):
    return bytes.fromhex(case[name])


def refused(answer):
    return answer == ["refused"]


def test_cards(device):
    asked = cases("cards.json")
    for case, (decodes, certified, symbols, digest) in zip(asked, ask(device, [("card", h("card", c)) for c in asked])):
        assert (decodes == "1", certified == "1") == (case["decodes"], case["certified"]), case["comment"]
        if case["result"] == "valid":
            assert (int(symbols), digest) == (case["symbols"], case["hash"])
    tight = [c for c in asked if "too_small" in c]
    lines = []
    for case in tight:
        card, least = h("card", case), case["too_small"]
        lines += [("card", card[:1] + u32(epsilon) + card[5:]) for epsilon in (least, least + 1)]
    answers = ask(device, lines)
    assert [a[1] for a in answers] == ["0", "1"] * len(tight)


def test_sampler(device):
    asked = cases("sampler.json")
    lines = [("draw", h("card", c), b"".join(x.to_bytes(2, "little", signed=True) for x in c["xs"]), h("stream", c)) for c in asked]
    for case, answer in zip(asked, ask(device, lines)):
        assert list(map(int, answer)) == [case["bytes_used"], *case["symbols"]], case["comment"]


def test_cobs(device):
    asked = cases("cobs.json")
    for case, answer in zip(asked, ask(device, [("decode", h("coded", c)[:-1]) for c in asked])):
        assert refused(answer) if case["result"] == "invalid" else answer == [text(case["frame"])], case["comment"]
    asked = [c for c in asked if c["result"] == "valid" and "decode only" not in c["flags"]]
    for case, answer in zip(asked, ask(device, [("encode", h("frame", c)) for c in asked])):
        assert answer == [case["coded"][:-2]], case["comment"]


def test_packing(device):
    """A device only packs: the cases that a host must refuse are not its own."""
    asked = [c for c in cases("packing.json") if c["result"] == "valid"]
    lines = [("pack", u32(c["base"]), b"".join(map(u32, c["symbols"]))) for c in asked]
    for case, answer in zip(asked, ask(device, lines)):
        assert answer == [case["packed"]], case["comment"]


def test_coordinates(device):
    asked = cases("coordinates.json")
    lines = [("coordinates", h("question", c), u32(c["values"]), u32(c["k"])) for c in asked]
    for case, answer in zip(asked, ask(device, lines)):
        assert list(map(int, answer)) == case["coordinates"], case["comment"]


def test_schema_and_tags(device):
    schema, = cases("frames.json", "schema")
    assert ask(device, [("hash", b"", schema["text"].encode())])[0][0][:16] == schema["hash"]
    asked = cases("frames.json", "tags")
    for case, answer in zip(asked, ask(device, [("hash", h("key", c), h("data", c)) for c in asked])):
        assert (answer[0][:16] == case["tag"]) == (case["result"] == "valid"), case["comment"]


def test_questions(device):
    asked = cases("frames.json", "questions")
    for case, answer in zip(asked, ask(device, [("question", h("key", c), u32(c["device"]), h("frame", c)) for c in asked])):
        assert answer == [case["question"]], case["comment"]
        assert answer[0][16:48] == case["answer_key"]


def test_rounds(device):
    asked = [c for c in cases("frames.json", "frames") if c["kind"] == "round"]
    names = ["device", "round", "model", "range", "exponent", "classes", "d", "k", "batch", "epochs", "rate", "tau"]
    for case, answer in zip(asked, ask(device, [("round", h("key", c), h("frame", c)) for c in asked])):
        if case["result"] == "invalid":
            assert answer == [str(case["error"])], case["comment"]
            continue
        fields = case["fields"]
        assert list(map(int, answer[1:13])) == [fields[n] for n in names], case["comment"]
        question = bytes.fromhex(answer[14])
        parameters = fields["parameters"]
        if fields["model"] in (8, 9):                                       # a bit a feature
            assert [question[j // 8] >> j % 8 & 1 for j in range(8 * len(question))][:len(parameters)] == parameters
        else:
            assert question == b"".join(m.to_bytes(2, "little", signed=True) for m in parameters)
        assert answer[15] == fields["card"]


def test_fleet_keys(device):
    asked = [c for c in cases("frames.json", "frames") if c["kind"] == "fleet_key" and c["result"] == "valid"]
    for case, answer in zip(asked, ask(device, [("unhide", h("key", c), h("frame", c)) for c in asked])):
        assert answer == [case["fields"]["fleet_key"]], case["comment"]


def test_ledgers(device):
    asked = cases("ledger.json")
    for case, answer in zip(asked, ask(device, [("ledger", h("ledger", c)) for c in asked])):
        if case["result"] == "invalid":
            assert refused(answer), case["comment"]
            continue
        assert list(map(int, answer[:4])) == [case[n] for n in ("budget", "spent", "last", "state")], case["comment"]
        assert answer[4:6] == [case["mark"], text(case["report"])]
        assert case["ledger"].startswith(answer[6])
