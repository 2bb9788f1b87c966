"""Two devices with the same files and the same random bytes: the library in this process, the second one in another."""

import os
import struct
import subprocess

from asking import cobs, sealed, uncobs

from tern import frames, wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.entropy import EntropyError
from tern.streams import Replay

HELLO = "<IB8sIIHHIIIHHHBB3sB"
TOLD = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12)  # fields of HELLO that two devices with the same files tell alike
ENTROPY = 13  # the field that tells the generator
SYNC = 0xC0000000  # nonces from here on are ours


class Known(Replay):
    """The random bytes of a board, until they end."""

    state = wire.CTR_DRBG

    def refill(self):
        self.state = wire.FAILED
        raise EntropyError("the bytes are used up")

    def end_report(self):
        """What is left is for the next report."""


class Library:
    """The device library, from the bytes on its line to those that it answers."""

    def __init__(self, directory, random):
        board = Board(str(directory))
        board.generator = lambda: Known(random)
        self._client = Client(board)
        self._receiver = frames.Receiver()
        self._frame = memoryview(self._receiver.frame)

    def ask(self, coded):
        """Every frame that is answered to the bytes `coded`."""
        answers = []
        self._receiver.give(coded)
        while (n := self._receiver.next()) != frames.MORE:
            if n:  # a damaged frame is an empty one
                self._client.respond(self._frame[: max(n, 0)], lambda reply, n: answers.append(bytes(reply[:n])))
        return answers

    def close(self):
        self._client.close()


class Second:
    """The device in C, as a program."""

    def __init__(self, program, directory, random):
        path = str(directory) + ".random"
        with open(path, "wb") as file:
            file.write(random)
        command = [str(program), str(directory), "--random", path]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._nonce = SYNC
        self._rest = b""

    def ask(self, coded):
        """As Library's: a HELLO_REQUEST behind it tells where its answers end."""
        self._nonce += 1
        os.write(self._process.stdin.fileno(), coded + cobs(sealed(b"", b"\1" + struct.pack("<I", self._nonce))))
        end = b"\x81" + struct.pack("<I", self._nonce)
        answers = []
        while not (answers and answers[-1].startswith(end)):
            *whole, self._rest = (self._rest + self._read()).split(b"\0")
            answers += [uncobs(one) for one in whole if one]  # an empty one is a credit
        return answers[:-1]

    def _read(self):
        data = os.read(self._process.stdout.fileno(), 65536)
        assert data, f"the device ended with {self._process.wait()}"
        return data

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def told(answers):
    """What two devices answer alike: reports one by one, in order of devices, and of a HELLO what is not its own."""
    found = []
    for answer in answers:
        if answer[0] == wire.REPORTS:
            number, size = struct.unpack_from("<4sH", answer, 1)
            step = 4 + size + 8
            assert len(answer) > 7 and (len(answer) - 7) % step == 0
            rows = [answer[at : at + step] for at in range(7, len(answer), step)]
            found += [b"\x82" + row[:4] + number + row[4:] for row in rows]
        elif answer[0] == wire.HELLO:
            fields = struct.unpack_from(HELLO, answer, 1)
            found.append((wire.HELLO, *(fields[i] for i in TOLD), fields[ENTROPY] > 0))
        elif answer[0] == wire.ERROR and answer[9] == wire.ERR_TOO_SOON:  # their clocks are their own
            seconds = struct.unpack_from("<I", answer, 10)[0]
            found.append(answer[:10] + struct.pack("<I", (seconds + 30) // 60))
        else:
            found.append(answer)
    return sorted(found, key=lambda one: b"" if isinstance(one, tuple) else one[1:5][::-1])


def put(board, directory):
    """Write the files of a board."""
    (directory / "ledger").mkdir(parents=True)
    for name, data in board.files.items():
        (directory / name).write_bytes(data)


def files_of(directory):
    """All files of a board that a device may write."""
    return {path.name: path.read_bytes() for path in [*directory.glob("ledger/*"), *directory.glob("fleet*")]}
