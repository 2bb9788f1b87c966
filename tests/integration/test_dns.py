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
# Records of RFC 1035: a name, the type and the class, five seconds to live, and the data.
_NAME = bytes.fromhex("c00c")  # that of the question
_ADDRESS = _NAME + bytes.fromhex("00010001000000050004") + bytes((127, 0, 0, 1))
_ALIAS = _NAME + bytes.fromhex("00050001000000050008") + b"\x05other\xc0\x13"


def answer(question, records=(_ALIAS, _ADDRESS)):
    """An answer of RFC 1035 to a question: a header of 12 bytes, the question, the records."""
    header = question[:2] + b"\x81\x80\x00\x01" + len(records).to_bytes(2) + bytes(4)
    return header + question[12:] + b"".join(records)


@contextmanager
def name_server(behave):
    """Run a server that answers each question with the datagrams of `behave`.

    behave(question, number of earlier questions) -> datagrams; None: a right answer that comes from
    another port. Yields its port, and the questions.
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


def only_an_alias(question, _):
    yield answer(question, records=[_ALIAS])


def silent_at_first(question, earlier):
    if earlier:
        yield answer(question)


@pytest.mark.parametrize("behave", [good, silent_at_first, hostile])
def test_the_address_is_found(micropython, behave):
    end, questions = look_up(micropython, behave)
    assert end == "127.0.0.1"
    assert len(set(questions)) == 1, "the same one again"


def test_without_an_address_the_connection_is_lost(micropython):
    end, _ = look_up(micropython, only_an_alias)
    assert end == "no address of broker.example"
