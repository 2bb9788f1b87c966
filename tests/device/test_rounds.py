"""Whole rounds: how a board answers one frame after the other, and what its files then hold
(rounds.json).
"""

import gc

import scratch
from known_board import hello_of, holds, put, start
from report_frames import answers_of, one_by_one
from vectors import cases

from tern import wire


def ask(client, frame):
    return one_by_one(answers_of(client, frame))


def check(board, case, start=start, ask=ask, comparable=list):
    """Give the case to a board of these files, which `start` starts, and `ask` asks. comparable:
    what must be equal.
    """
    folder = scratch.folder()
    files = {}
    for hex_files in (board, case["files"]):
        for name in hex_files:
            files[name] = None if hex_files[name] is None else bytes.fromhex(hex_files[name])
    put(folder, files)
    running = None
    for i, step in enumerate(case["steps"]):
        where = (case["comment"], i)
        if "start" in step:
            if running:
                running.close()
            running = start(folder, bytes.fromhex(step["start"]))
            continue
        answers = ask(running, bytes.fromhex(step["frame"]))
        if "hello" in step:
            assert len(answers) == 1 and answers[0][0] == wire.HELLO, where
            assert hello_of(answers[0]) == step["hello"], where
        else:
            assert comparable(answers) == comparable(
                [bytes.fromhex(answer) for answer in step["answers"]]
            ), where
        for name in step.get("files", ()):
            files[name] = bytes.fromhex(step["files"][name])
        for name in files:
            assert holds(folder, name, files[name]), (where, name)
    running.close()
    scratch.remove(folder)


def test_vectors_of_rounds():
    # rounds.json, which other implementations share, holds whole sequences: files of a board,
    # frames that it gets, restarts, and the answers and files that must follow. "board" gives the
    # files that all cases begin with.
    count = 0
    (usual,) = cases("rounds.json", "board")
    for case in cases("rounds.json", "rounds"):
        check(usual["files"], case)
        case = None  # it takes much of a board's heap, and so does the next one
        gc.collect()
        count += 1
    assert count
