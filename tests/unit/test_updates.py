"""Updates of boards: how long a host waits for a board, and which updates it refuses."""

import asyncio
import struct

import pytest

from tern import frames, wire
from ternhost.errors import USAGE
from ternhost.provision import keys
from ternhost.store import sleepers
from terntools.boards import mpy, update

KEY = bytes(range(32))
PACKAGE = bytes(5000)


class AnsweringBoard:
    """A post with one board.

    `state_of(frame)` is its answer to an UPDATE: the next byte to send, and its state.
    """

    def __init__(self, state_of):
        self.state_of, self.requests = state_of, 0

    async def ask(self, device, frame):
        self.requests += 1
        self.frame = frame

    async def answer(self, device, timeout):
        await asyncio.sleep(0)
        wanted, state = self.state_of(self.frame)
        answer = bytearray(64)
        answer[0] = wire.UPDATED
        struct.pack_into(wire.UPDATED_FIELDS, answer, 1, device, 3, wanted, state)
        key = frames.answer_key(frames.digest(KEY, self.frame[: -wire.TAG_BYTES]))
        return bytes(answer[: frames.seal(key, answer, frames.end_of(wire.UPDATED_FIELDS))])

    async def greet(self):
        pass


class SilentBoard(AnsweringBoard):
    """A post whose board never answers."""

    def __init__(self):
        super().__init__(state_of=None)

    async def answer(self, device, timeout):
        await asyncio.sleep(timeout)


def bring(post, patience=0.3, tell=lambda *_: None):
    transfer = update.Transfer(1, KEY, 3, PACKAGE)
    return asyncio.run(update.bring(post, transfer, patience, 5.0, tell))


def test_a_silent_board_is_waited_for_within_a_limit_that_is_told(monkeypatch):
    monkeypatch.setattr(update, "ANSWER", 0.1)
    told = []
    result = bring(SilentBoard(), 0.3, lambda _, *how: told.append(how))
    assert result is None
    assert len(told) >= 3
    assert not any(answered for answered, _seconds_left in told)
    assert all(seconds_left < 0.3 for _answered, seconds_left in told)


def test_a_board_that_answers_without_progress_is_given_up():
    for wanted in (0, 70, len(PACKAGE)):
        post = AnsweringBoard(lambda _, wanted=wanted: (wanted, wire.RECEIVING))
        assert bring(post) is None
        assert post.requests > 1


def test_a_host_waits_for_a_board_that_works_for_long():
    """A board that has all bytes of an update still has to check and write them. It answers
    RECEIVING at the end of the package meanwhile: the host asks 500 times, though its patience with
    a board that makes no progress is 0.1 s.
    """
    count = 0

    def work(_):
        nonlocal count
        count += 1
        # The next byte that it wants (none: it has all), and its state.
        return (len(PACKAGE), wire.RECEIVING) if count < 500 else (0, wire.CONFIRMED)

    assert bring(AnsweringBoard(work), 0.1) == wire.CONFIRMED


# Updates that are refused before any board is asked


@pytest.fixture
def store(store):
    keys.add(store, [1, 2])
    sleepers.set_wake(store, 2, 3600)
    return store.path


def refused(tern, *arguments):
    words = (
        "board",
        "update",
        *map(str, arguments),
        "--machine",
        "emulated",
        "--board",
        "/dev/none",
    )
    return tern(*words, code=USAGE).err


def test_a_program_that_cannot_be_updated_again_is_refused(store, tern):
    message = refused(tern, 1, "--store", store, "--main", mpy.MAIN)
    assert "does not import tern.update" in message


def test_a_sleeping_board_is_not_updated(store, tmp_path, tern):
    program = tmp_path / "product.py"
    program.write_text("import tern.update\n")
    message = refused(tern, 1, 2, "--store", store, "--main", program)
    assert "the board of device 2 sleeps (--wake-s 3600)" in message
    assert "tern board deploy BOARD --main FILE" in message
