"""A link and a fleet for tests: this interpreter runs the device library on files made by tern."""

from report_frames import answers_of

from tern.boards.emulated import Board
from tern.client import Client
from ternhost.reach.fleet import KINDS
from ternhost.reach.links import SCHEMES, Link, hello_request
from ternhost.reach.ports.fleet import BoardFleet, Ports


class InProcessLink(Link):
    """A Client of the device library on the files of a directory.

    It answers at once, in the caller's thread.
    """

    def __init__(self, port, events):
        """port: inprocess:DIRECTORY."""
        super().__init__(port, events)
        self._client = Client(Board(port.partition(":")[2]))

    def ask_hello(self):
        nonce, request = hello_request()
        self.heard(answers_of(self._client, request))
        return nonce

    def send(self, frame):
        self.heard(answers_of(self._client, frame))

    def close(self):
        """Close the client's files, which on a device stay open for ever."""
        self._client.close()


class InProcess(BoardFleet):
    form, about = "inprocess:N", "N boards in this process"
    provisions, knows_records, most_clients = True, True, 40

    def __init__(self, text):
        super().__init__(text)
        self.count = self.number("boards", 100)

    def boards(self, directories, modules=(), whole=False):
        return Ports([f"inprocess:{directory}" for directory in directories])


SCHEMES.register("inprocess", InProcessLink)
KINDS.register("inprocess", InProcess)
