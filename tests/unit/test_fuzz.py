"""Each decoder accepts altered inputs or refuses them with its documented error.

The soak checks the same properties of the same targets (tests/harness/targets.py and
host_targets.py).
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import fuzzing, seeds, verdicts
from spec import answers

from tern import card as cards
from tern import (
    client,
    frames,
    host_frames,
    lease,
    ledger,
    projection,
    recorder,
    sampler,
    storage,
    update,
)
from ternhost.count import batches

ROOT = Path(__file__).parents[2]
SLOW = ("aggregate", "ahead", "client", "cobs", "ledger", "package", "packed", "storage")


def python(*words, stderr=None):
    """Run Python in a process with the modules of the tests."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), *sys.path))}
    command = [sys.executable, *words]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


@pytest.fixture(params=fuzzing.TARGETS)
def target(request, tmp_path):
    """The name of a target of the fuzzing, and the function that checks an input."""
    with fuzzing.target(request.param, tmp_path) as check:
        yield request.param, check


def test_a_target_withstands_the_kept_inputs(target):
    name, check = target
    for data in seeds.corpus(name):
        check(data)


def test_a_target_withstands_altered_inputs(target, pytestconfig):
    name, check = target
    count = (60 if name in SLOW else 300) * (10 if pytestconfig.getoption("exhaustive") else 1)
    for data in itertools.islice(seeds.blindly(seeds.of(name), 1), count):
        check(data)


@pytest.mark.slow
def test_micropython_judges_as_cpython_does(tmp_path, pytestconfig):
    """A 32-bit MicroPython judges frames, streams, cards, a board's files and whole conversations."""
    count = 100 if pytestconfig.getoption("exhaustive") else 25
    inputs = [(name, data) for name in verdicts.NAMES for data in seeds.of(name)]
    for name in verdicts.NAMES:
        inputs += [
            (name, data) for data in itertools.islice(seeds.blindly(seeds.of(name), 1), count)
        ]
    assert fuzzing.differences(inputs, tmp_path) == []


@pytest.mark.slow
def test_a_host_accepts_no_hostile_frame_and_keeps_no_memory_of_it(tmp_path):
    """Tens of thousands of frames have every kind of damage.

    The host is a separate process, to measure its memory alone, and has no huge pages, since one
    has 2 MB.
    """
    code = (
        "import ctypes, json, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); from harness.hostile import assault; "
        "print(json.dumps(assault(sys.argv[1], 50_000)))"
    )
    ended = python("-c", code, tmp_path / "hostile.sqlite")
    assert ended.returncode == 0
    result = json.loads(ended.stdout)
    assert (result["accepted"], result["frames"]) == (0, 50_000)
    assert result["reports"] == result["refused"] > 125_000
    assert result["grown_bytes"] < 1_500_000


def error_of(name, folder, data):
    """The error that a target raises for an input, or None."""
    with fuzzing.target(name, folder) as check:
        try:
            check(data)
        except Exception as error:
            return error


def test_the_targets_detect_likely_bugs_with_their_seeds_alone(tmp_path, monkeypatch):
    some = dict(seeds.some_cards())
    card = some[cards.TABLE]
    claiming_least = some[cards.PROJECTION][:1] + bytes((1, 0, 0, 0)) + some[cards.PROJECTION][5:]
    forged = seeds.round_frame(verdicts.DEVICES[0], 1, verdicts.KEY, card) + bytes(8)
    forged = verdicts.message(verdicts.RAW, forged)
    talk = seeds.client_inputs()[1]
    bugs = [
        ("client", forged, client, "difference", lambda a, start, b, n: 0),
        ("client", talk, ledger.Ledger, "pay", lambda *arguments: None),
        ("client", talk, frames, "answer_key", lambda question: question[:16]),
        (
            "card",
            card,
            sampler,
            "sample",
            lambda card, stream, xs, out, n: out.__setitem__(0, card.symbols),
        ),
        ("card", some[cards.PROJECTION], projection, "find", lambda vector, n, wanted, top: 2 * n),
        ("card", claiming_least, projection.Projection, "keeps", lambda card, epsilon: True),
        ("boot", seeds.of("boot")[-1], update, "crc32", lambda data: 0),
        ("lease", seeds.of("lease")[-1], lease.Lease, "forget", lambda self: None),
        ("model", seeds.of("model")[1], frames, "verify", lambda key, frame: key),
        ("segments", seeds.of("segments")[1], recorder.Recorder, "flush", lambda self: None),
        (
            "storage",
            bytes(range(50)) + bytes(2),
            storage.Clients,
            "find",
            lambda self, device: True,
        ),
        ("cobs", b"\3\1\1\0", frames.Receiver, "next", lambda self: frames.MORE),
        (
            "frames",
            answers.board_error(1, 1)[:-8],
            host_frames,
            "decode_error",
            lambda frame, key: (0, 1, 1, 1),
        ),
        (
            "aggregate",
            seeds.batches()[0],
            batches,
            "verify",
            lambda q, n, d, p, tags: tags[:, 0] < 0,
        ),
        ("aggregate", forged, batches, "verify", lambda q, n, d, p, tags: tags[:, 0] >= 0),
    ]
    for i, (name, data, place, attribute, bug) in enumerate(bugs):
        folder = tmp_path / str(i)
        folder.mkdir()
        if name == "aggregate" and data is forged:
            data = verdicts.message(verdicts.EMPTY, seeds.batches()[0][3:])
        assert error_of(name, folder, data) is None
        with monkeypatch.context() as patch:
            patch.setattr(place, attribute, bug)
            assert error_of(name, folder, data) is not None, (i, name, attribute)
