"""From the same files, random bytes and frames, the second device and the library give equal
answers and ledgers.
"""

import random
from collections import Counter

import pytest
from asking import Host, some_board
from known_board import put
from spec.frames import cobs, hello_request
from talking import Library, Second, comparable, files_of
from test_rounds import check
from vectors import cases

FRAMES = 1000  # of a seed
HELLO_REQUEST = cobs(hello_request())


def talk(program, folder, draw, most):
    """Send two devices up to `most` frames, with restarts in between; return counts of answers, by
    type and code.
    """
    board = some_board(draw)
    for name in ("library", "second"):
        (folder / name).mkdir(parents=True)
        put(str(folder / name), board.files)
    host = Host(draw, board)
    seen = Counter()
    while seen["frames"] < most:
        noise = draw.randbytes(draw.choice((70_000, 70_000, 70_000, 40, 0)))
        library, second = (
            Library(folder / "library", noise),
            Second(program, folder / "second", noise),
        )
        sent = []
        try:
            for _ in range(draw.choice((1, 5, 20, 60))):
                coded = host.frame() if draw.randrange(8) else HELLO_REQUEST
                sent.append(coded)
                expected, answers = library.ask(coded), second.ask(coded)
                assert comparable(expected) == comparable(answers), (board, sent)
                assert files_of(folder / "library") == files_of(folder / "second"), (board, sent)
                seen["frames"] += 1
                for answer in expected:
                    seen[f"{answer[0]:02x}" + (f" {answer[9]}" if answer[0] == 0x84 else "")] += 1
        finally:
            library.close()
            second.close()
    return seen


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(110))
def test_the_second_device_and_the_library_agree(device, tmp_path, seed):
    draw = random.Random(seed)
    seen = Counter()
    while seen["frames"] < FRAMES:
        seen += talk(device, tmp_path / str(seen["frames"]), draw, 60)
    assert seen["82"] + seen["85"] > 10, seen  # reports
    assert len(seen) > 12, seen  # and most of the refusals


def test_vectors_of_rounds(device):
    """The second device, a board written in C from the specification alone, answers whole
    sequences of frames, and keeps its files, as rounds.json says. tests/device/test_rounds.py
    gives the same to the library.
    """
    (usual,) = cases("rounds.json", "board")
    for case in cases("rounds.json", "rounds"):
        check(
            usual["files"],
            case,
            lambda folder, random: Second(device, folder, random),
            lambda second, frame: second.ask(cobs(frame)),
            comparable,
        )
