"""The device's look-up of names, on MicroPython over real sockets, with good, hostile and silent name servers."""

import json
import os
import socket
import subprocess
import threading

import pytest

from terntools.emulators.micropython import device_command
from terntools.testing.device_tests import FIRMWARE

_PROGRAM = """
import json, sys, time
from tern import dns, tcp
name_server, broker = int(sys.argv[1]), int(sys.argv[2])
longest = 0
line = tcp.Connection("broker.example", broker, None, None, dns.Query("broker.example", "127.0.0.1", name_server))
start = time.ticks_ms()
end = None
try:
    while time.ticks_diff(time.ticks_ms(), start) < 20000:
        before = time.ticks_us()
        taken = line.write(b"hello")
        longest = max(longest, time.ticks_diff(time.ticks_us(), before))
        if taken:
            end = line.host
            break
        time.sleep_ms(5)
except tcp.Lost as error:
    end = str(error)
line.close()
print(json.dumps({"end": end, "longest_us": longest, "ms": time.ticks_diff(time.ticks_ms(), start)}))
"""
_ADDRESS = bytes.fromhex("c00c00010001000000050004") + bytes((127, 0, 0, 1))
_ALIAS = bytes.fromhex("c00c00050001000000050008") + b"\x05other\xc0\x13"


def answer(question, records=_ALIAS + _ADDRESS, count=2, flags=b"\x81\x80"):
    return question[:2] + flags + b"\x00\x01" + count.to_bytes(2) + bytes(4) + question[12:] + records


class NameServer:
    """Answers each question with the datagrams of `behave(question, earlier questions)`; None: from another port."""

    def __init__(self, behave):
        self._behave = behave
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # seems to be another server
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.questions = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while True:
            question, source = self._socket.recvfrom(512)
            if not question:
                return
            for data in self._behave(question, len(self.questions)):
                if data is None:
                    self._other.sendto(answer(question), source)
                else:
                    self._socket.sendto(data, source)
            self.questions.append(question)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._other.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(10)
        self._socket.close()
        self._other.close()


def look_up(micropython, directory, behave):
    (directory / "client.py").write_text(_PROGRAM)
    with NameServer(behave) as server, socket.create_server(("127.0.0.1", 0)) as broker:
        ended = subprocess.run(
            device_command(
                micropython, directory / "client.py", str(server.port), str(broker.getsockname()[1])
            ),
            env={"MICROPYPATH": str(FIRMWARE)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stderr
        result = json.loads(ended.stdout)
        return result["end"], server.questions


def hostile(question, _):
    """Answers of another server and to other questions, and noise; then the right one."""
    wrong = bytes((question[0] ^ 255,)) + question[1:]
    yield None
    yield answer(wrong)
    yield question
    yield b""
    yield os.urandom(512)
    yield answer(question.replace(b"broker", b"broken"))
    yield answer(question)


@pytest.mark.parametrize(
    ("behave", "least"),
    [
        (lambda question, _: [answer(question)], 1),
        (lambda question, before: [answer(question)] if before else [], 2),  # the first is lost
        (hostile, 1),
    ],
    ids=["good", "lost", "hostile"],
)
def test_the_address_is_found(micropython, tmp_path, behave, least):
    end, questions = look_up(micropython, tmp_path, behave)
    assert end == "127.0.0.1"
    assert len(questions) >= least
    assert len(set(questions)) == 1


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        (lambda *_: [], "no name server tells broker.example"),
        (lambda question, _: [answer(question, b"", 0, b"\x81\x83")], "no address of broker.example"),
        (lambda question, _: [answer(question, _ALIAS, 1)], "no address of broker.example"),
        (lambda question, _: [answer(question, os.urandom(300), 65535)], "no address of broker.example"),
    ],
    ids=["silent", "unknown", "alias", "noise"],
)
def test_without_an_address_the_connection_is_lost(micropython, tmp_path, behave, message):
    end, questions = look_up(micropython, tmp_path, behave)
    assert end == message
    assert len(questions) in (1, 4)
