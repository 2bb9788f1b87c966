"""The frame under way: its address, the question of a ROUND, and the key of its answer.

See shared_specs/wire.md.
"""

from struct import pack_into, unpack_from

from tern import frames, wire
from tern.compat import const
from tern.frames import FrameError, difference

_ADDRESS_END = const(16)  # an address and a tag are in longer frames only


class Session:
    """The frame under way, and what its answer says of itself.

    round: the decoded frames.Round; question: its digest under the client's key; address: the
    frame's (device, round), or None; key, device, number: key, device and round of the answer.
    Until the tag of a ROUND is verified, the board itself answers: with the empty key and device 0.
    """

    def __init__(self):
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
        """Verify and decode `frame`, a ROUND, for `client`.

        client: storage.Clients, with its device found; verified: whether the fleet's tag was
        verified. Raises FrameError.
        """
        if frame is not self._frame:  # a link's next one is the same view as a rule
            self._asked = memoryview(frame)[frames.QUESTION_AT : -wire.TAG_BYTES]
            self._frame = frame
        question = frames.question(client.key, client.address, self._asked)
        end = len(frame) - wire.TAG_BYTES
        if not verified and difference(frame, end, question, wire.TAG_BYTES):
            raise FrameError(wire.ERR_TAG, "tag does not verify")
        pack_into("32s", self.question, 0, question)
        self.key = self._answer_key
        self.device = client.device
        self.round.decode(frame, self.address)
