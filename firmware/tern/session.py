"""The frame under way: its address, the question of a ROUND, and the key of its answer.

See shared_specs/wire.md.
"""

from struct import unpack_from

from tern import frames, wire
from tern.compat import const
from tern.frames import FrameError, difference
from tern.octets import digest_into

_ADDRESS_END = const(16)  # an address and a tag are in longer frames only


class Session:
    """The frame under way, and what its answer says of itself.

    A ROUND asks a question. Of the frame: `address`, its (device, round), or None; `round`, the
    decoded frames.Round; `question`, the digest of the question under the client's key, which
    identifies it.

    Of the answer: its `key`, `device` and `number` (of the round). Until the tag of a ROUND is
    verified, the board itself answers, not a client: with the empty key and device 0.
    """

    def __init__(self):
        """Allocate the buffers. The key of answers is a view of the question's digest."""
        self.round = frames.Round()
        self.question = bytearray(wire.KEY_BYTES)
        self.address = None
        self.key = b""
        self.device = wire.BOARD
        self.number = 0
        self._answer_key = frames.answer_key(memoryview(self.question))
        self._frame = None  # the last ROUND,
        self._asked = None  # and the part of it that is the same for each client

    def take(self, frame):
        """Take the address of `frame`, before anything else is done about it."""
        self.key = b""
        self.device = wire.BOARD
        self.number = 0
        self.address = unpack_from("<II", frame, 1) if len(frame) > _ADDRESS_END else None

    def open(self, frame, client, verified):
        """Verify and decode `frame`, a ROUND, for a client. Raises FrameError.

        frame: a memoryview. client: the storage.Clients, whose current client is meant. verified:
        whether the frame has a tag by the fleet's key, which was verified already; otherwise its
        tag is by the client's key, and is verified here.
        """
        # A link gives the same view for frames of the same length, so that nothing is allocated.
        if frame is not self._frame:
            self._asked = frame[frames.QUESTION_AT : -wire.TAG_BYTES]
            self._frame = frame
        # As frames.question(). The digest does not count before its tag is verified below.
        digest_into(client.prefix, self._asked, self.question)
        end = len(frame) - wire.TAG_BYTES
        if not verified and difference(frame, end, self.question, wire.TAG_BYTES):
            raise FrameError(wire.ERR_TAG, "tag does not verify")
        self.key = self._answer_key
        self.device = client.device
        self.round.decode(frame, self.address)
