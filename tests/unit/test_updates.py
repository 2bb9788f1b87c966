"""How packages are brought to boards: what a host waits for, and what it refuses."""

import asyncio
import struct

from tern import frames, wire
from terntools.boards import updates

KEY = bytes(range(32))
PACKAGE = bytes(5000)


class AnsweringBoard:
    """A post with one board, which answers each UPDATE with what `state_of` makes of its data."""

    def __init__(self, state_of):
        self.state_of = state_of
        self.asked = 0

    async def ask(self, device, frame):
        self.asked += 1
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


def bring(post, patience=0.3):
    transfer = updates.Transfer(1, KEY, 3, PACKAGE)
    return asyncio.run(updates.bring(post, transfer, patience, 5.0, lambda _: None))


def test_a_board_that_answers_without_progress_is_given_up():
    for wanted in (0, 70, len(PACKAGE)):
        post = AnsweringBoard(lambda _, wanted=wanted: (wanted, wire.RECEIVING))
        assert bring(post) is None
        assert post.asked > 1


def test_a_board_that_works_for_long_is_waited_for():
    count = 0

    def work(_):
        nonlocal count
        count += 1
        return (len(PACKAGE), wire.RECEIVING) if count < 500 else (0, wire.CONFIRMED)

    assert bring(AnsweringBoard(work), 0.1) == wire.CONFIRMED
