"""Whole rounds: how a board answers one frame after the other, and what its files then hold (rounds.json)."""

import gc

import scratch
from known_board import get, hello_of, put, start
from report_frames import answers_of, one_by_one
from vectors import cases

from tern import wire


def check(board, case):
    folder = scratch.folder()
    files = {}
    for hex_files in (board, case["files"]):
        for name in hex_files:
            files[name] = None if hex_files[name] is None else bytes.fromhex(hex_files[name])
    put(folder, files)
    client = None
    for i, step in enumerate(case["steps"]):
        where = (case["comment"], i)
        if "start" in step:
            if client:
                client.close()
            client = start(folder, bytes.fromhex(step["start"]))
            continue
        answers = answers_of(client, bytes.fromhex(step["frame"]))
        if "hello" in step:
            assert len(answers) == 1 and answers[0][0] == wire.HELLO, where
            assert hello_of(answers[0]) == step["hello"], where
        else:
            assert [answer.hex() for answer in one_by_one(answers)] == step["answers"], where
        for name in step.get("files", ()):
            files[name] = bytes.fromhex(step["files"][name])
        for name in files:
            assert get(folder, name) == files[name], (where, name)
    client.close()
    scratch.remove(folder)


def test_vectors_of_rounds():
    count = 0
    (usual,) = cases("rounds.json", "board")
    for case in cases("rounds.json", "rounds"):
        check(usual["files"], case)
        gc.collect()
        count += 1
    assert count
