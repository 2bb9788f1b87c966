"""The device's look-up of names, on MicroPython over real sockets, with good, hostile and silent
name servers.
"""

import os
import socket
import threading
from contextlib import contextmanager

import pytest
import rig

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
    return (
        question[:2] + flags + b"\x00\x01" + count.to_bytes(2) + bytes(4) + question[12:] + records
    )


@contextmanager
def name_server(behave):
    """Run a server that answers each question with the datagrams of `behave(question, earlier
    questions)`; None: from another port. Yield its own port, and the questions.
    """
    questions = []

    def run():
        while True:
            question, source = own.recvfrom(512)
            if not question:
                return
            for data in behave(question, len(questions)):
                if data is None:
                    other.sendto(answer(question), source)
                else:
                    own.sendto(data, source)
            questions.append(question)

    with (
        socket.socket(type=socket.SOCK_DGRAM) as own,
        socket.socket(type=socket.SOCK_DGRAM) as other,
    ):
        own.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield own.getsockname()[1], questions
        finally:
            other.sendto(b"", own.getsockname())
            thread.join(10)


def look_up(micropython, behave):
    with name_server(behave) as (port, questions), socket.create_server(("127.0.0.1", 0)) as broker:
        end = rig.run_program(micropython, "-c", _PROGRAM, port, broker.getsockname()[1])["end"]
        return end, questions


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


def good(question, _):
    yield answer(question)


def silent_at_first(question, earlier):
    if earlier:
        yield answer(question)


@pytest.mark.parametrize("behave", [good, silent_at_first, hostile])
def test_the_address_is_found(micropython, behave):
    end, questions = look_up(micropython, behave)
    assert end == "127.0.0.1"
    assert len(set(questions)) == 1


def test_without_an_address_the_connection_is_lost(micropython):
    end, _ = look_up(micropython, lambda question, _: [answer(question, _ALIAS, 1)])
    assert end == "no address of broker.example"
