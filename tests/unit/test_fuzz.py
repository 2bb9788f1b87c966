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
    frames,
    host_frames,
    lease,
    ledger,
    projection,
    recorder,
    sampler,
    session,
    wire,
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
    """The device library runs on both: for frames, streams, cards, a board's files and whole
    conversations, whole and damaged at random, a 32-bit MicroPython accepts and refuses the same.
    """
    damaged_of_each = 100 if pytestconfig.getoption("exhaustive") else 10
    inputs = [(name, data) for name in verdicts.NAMES for data in seeds.of(name)]
    for name in verdicts.NAMES:
        damaged = itertools.islice(seeds.blindly(seeds.of(name), 1), damaged_of_each)
        inputs += [(name, data) for data in damaged]

    assert fuzzing.differences(inputs, tmp_path) == []


@pytest.mark.slow
def test_a_host_accepts_no_hostile_frame_and_keeps_no_memory_of_it(tmp_path):
    """A host gets 50,000 frames with every kind of damage, many of which hold several reports. It
    is a process of its own, to measure its memory alone.
    """
    code = (
        "import ctypes, json, sys; "
        "ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); "  # no huge pages, since one has 2 MB
        "from harness.hostile import assault; "
        "print(json.dumps(assault(sys.argv[1], 50_000)))"
    )

    ended = python("-c", code, tmp_path / "hostile.sqlite")
    assert ended.returncode == 0

    result = json.loads(ended.stdout)
    assert result["frames"] == 50_000
    assert result["accepted"] == 0
    # Frames hold 2.5 reports and more on average.
    assert result["reports"] == result["refused"] > 125_000
    assert result["grown_bytes"] < 1_500_000  # 30 a frame


def error_of(name, folder, data):
    """The error that a target raises for an input, or None."""
    with fuzzing.target(name, folder) as check:
        try:
            check(data)
        except Exception as error:
            return error


CARD_OF_SHAPE = dict(seeds.some_cards())
TABLE_CARD, PROJECTION_CARD = (CARD_OF_SHAPE[shape] for shape in (cards.TABLE, cards.PROJECTION))
CLAIMS_A_MILLIONTH = PROJECTION_CARD[:1] + bytes((1, 0, 0, 0)) + PROJECTION_CARD[5:]
UNTAGGED_ROUND = seeds.round_frame(verdicts.DEVICES[0], 1, verdicts.KEY, TABLE_CARD)
FORGED_ROUND = verdicts.message(verdicts.RAW, UNTAGGED_ROUND + bytes(8))
CONVERSATION = seeds.client_inputs()[1]
REPORTS = seeds.batches()[0]
FORGED_REPORTS = verdicts.message(verdicts.EMPTY, REPORTS[3:])


def first_output_out_of_range(card, stream, inputs, symbols, count):
    symbols[0] = card.symbols


# By what goes wrong: the target, an input, and a function of the library with its replacement.
BUGS = {
    "forged rounds": ("client", FORGED_ROUND, session, "difference", lambda *frames: 0),
    "unpaid reports": ("client", CONVERSATION, ledger.Ledger, "pay", lambda *payment: None),
    "symbols out of range": ("card", TABLE_CARD, sampler, "sample", first_output_out_of_range),
    "broken promises": (
        "card",
        CLAIMS_A_MILLIONTH,
        projection.Projection,
        "keeps",
        lambda card, epsilon: True,
    ),
    "old leases": ("lease", seeds.of("lease")[-1], lease.Lease, "forget", lambda self: None),
    "forged models": ("model", seeds.of("model")[1], frames, "verify", lambda key, frame: key),
    "lost records": (
        "segments",
        seeds.of("segments")[1],
        recorder.Recorder,
        "flush",
        lambda self: None,
    ),
    "untagged errors": (
        "frames",
        answers.board_error(1, 1)[: -wire.TAG_BYTES],
        host_frames,
        "decode_error",
        lambda frame, key: (0, 1, 1, 1),
    ),
    "forged reports": (
        "aggregate",
        FORGED_REPORTS,
        batches,
        "verify",
        lambda q, n, d, p, tags: tags[:, 0] >= 0,
    ),
}


@pytest.mark.parametrize(("name", "data", "place", "attribute", "bug"), BUGS.values(), ids=BUGS)
def test_a_target_detects_a_likely_bug(tmp_path, monkeypatch, name, data, place, attribute, bug):
    assert error_of(name, tmp_path, data) is None
    monkeypatch.setattr(place, attribute, bug)
    assert error_of(name, tmp_path, data) is not None
