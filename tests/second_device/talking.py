"""Two devices with the same files and random bytes: the library in this process, and the second
device in another.
"""

import os
import struct
import subprocess

from known_board import hello_of, start
from report_frames import answers_of, one_by_one
from spec.frames import cobs, hello_request, uncobs

from tern import frames, wire

SYNC = 0xC0000000  # the first nonce that only this module uses


class Library:
    """The device library behind a serial line."""

    def __init__(self, directory, random):
        self._client = start(str(directory), random)
        self._receiver = frames.Receiver()
        self._frame = memoryview(self._receiver.frame)

    def ask(self, coded):
        """The frames that answer the bytes `coded`."""
        answers = []
        self._receiver.give(coded)
        while (n := self._receiver.next()) != frames.MORE:
            if n:  # a damaged frame is an empty one
                answers += answers_of(self._client, self._frame[: max(n, 0)])
        return answers

    def close(self):
        self._client.close()


class Second:
    """The process of the device in C."""

    def __init__(self, program, directory, random):
        path = str(directory) + ".random"
        with open(path, "wb") as file:
            file.write(random)
        command = [str(program), str(directory), "--random", path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._nonce = SYNC
        self._rest = b""

    def ask(self, coded):
        """The frames that answer the bytes `coded`; a HELLO_REQUEST behind these marks the end of
        the answers.
        """
        self._nonce += 1
        os.write(self._process.stdin.fileno(), coded + cobs(hello_request(self._nonce)))
        end = b"\x81" + struct.pack("<I", self._nonce)
        answers = []
        while not (answers and answers[-1].startswith(end)):
            *whole, self._rest = (self._rest + self._read()).split(b"\0")
            answers += [uncobs(part) for part in whole if part]  # an empty part is a credit
        return answers[:-1]

    def _read(self):
        data = os.read(self._process.stdout.fileno(), 65536)
        assert data, f"the device ended with {self._process.wait()}"
        return data

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def comparable(answers):
    """The parts of answers that are equal on all devices, frame by frame in order of devices."""
    return [_comparable(answer) for answer in one_by_one(answers)]


def _comparable(answer):
    if answer[0] == wire.HELLO:
        return hello_of(answer)
    if answer[0] == wire.ERROR and answer[9] == wire.ERR_TOO_SOON:  # their clocks differ
        (seconds,) = struct.unpack_from("<I", answer, 10)
        return answer[:10] + struct.pack("<I", (seconds + 30) // 60)
    return answer


def files_of(directory):
    """The bytes of all files of a board that a device may write, by name."""
    return {
        path.name: path.read_bytes()
        for path in [*directory.glob("ledger/*"), *directory.glob("fleet*")]
    }
