"""The device's look-up of names, on MicroPython over real sockets, with good, hostile and silent
name servers.
"""

import os
import socket
import threading
from contextlib import contextmanager

import rig

_PROGRAM = """
import json, sys, time
from tern import dns, tcp
name_server, broker = int(sys.argv[1]), int(sys.argv[2])
line = tcp.Connection("broker.example", broker, None, None, dns.Query("broker.example", "127.0.0.1", name_server))
start = time.ticks_ms()
end = None
try:
    while time.ticks_diff(time.ticks_ms(), start) < 20000:
        if line.write(b"hello"):
            end = line.host
            break
        time.sleep_ms(5)
except tcp.Lost as error:
    end = str(error)
line.close()
print(json.dumps({"end": end}))
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

    behave(question) -> datagrams; None: a right answer that comes from another port. Yields its
    port.
    """

    def run():
        while True:
            question, source = own.recvfrom(512)
            if not question:
                return
            for data in behave(question):
                if data is None:
                    other.sendto(answer(question), source)
                else:
                    own.sendto(data, source)

    with (
        socket.socket(type=socket.SOCK_DGRAM) as own,
        socket.socket(type=socket.SOCK_DGRAM) as other,
    ):
        own.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield own.getsockname()[1]
        finally:
            other.sendto(b"", own.getsockname())
            thread.join(10)


def hostile(question):
    """Answers of another server and to other questions, and noise; then the right one."""
    wrong = bytes((question[0] ^ 255,)) + question[1:]
    yield None
    yield answer(wrong)
    yield question
    yield b""
    yield os.urandom(512)
    yield answer(question.replace(b"broker", b"broken"))
    yield answer(question)


def test_the_address_is_found_among_wrong_answers(micropython):
    with name_server(hostile) as port, socket.create_server(("127.0.0.1", 0)) as broker:
        result = rig.run_program(micropython, "-c", _PROGRAM, port, broker.getsockname()[1])
    assert result["end"] == "127.0.0.1"
