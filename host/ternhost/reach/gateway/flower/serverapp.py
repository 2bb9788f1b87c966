"""The ServerApp: passes questions from the host's socket to the sites, and their answers back. Each frame follows its
length (4 bytes). The host sends a node (8 bytes), a number (8 bytes) and a question; the ServerApp first the number of
the run (8 bytes), then the number of a question, a byte (0: the answer, 1: the text of an error) and the rest.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from ternhost.reach.gateway.post import LARGEST, connected, receive_frame, send_frame
from ternhost.reach.links import drain

ASKED = struct.Struct(">QQ")
ANSWERED = struct.Struct(">QB")
RUN = struct.Struct(">Q")
MOST = LARGEST + (2 << 20)  # bytes of a frame: the most that the guard accepts from a site, and a header

_RECORD, _FIELD = "tern", "bytes"
_POLL = 0.2  # seconds between two looks for answers
_TTL = 3600.0  # seconds that a question waits for its site, and for the answer
_CONNECT = 10.0  # seconds

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Pass on until the host closes its socket."""
    with connected(str(context.run_config["socket"]), _CONNECT) as host:
        host.settimeout(None)
        host.sendall(RUN.pack(context.run_id))
        questions: queue.SimpleQueue[tuple[int, int, bytes] | None] = queue.SimpleQueue()
        threading.Thread(target=_hear, args=(host, questions), daemon=True).start()
        under_way: dict[str, int] = {}
        while True:
            for item in drain(questions, _POLL if under_way else None):
                if item is None:
                    return
                _ask(grid, host, under_way, *item)
            if under_way:
                _look(grid, host, under_way)


def content(data: bytes) -> RecordDict:
    """The content of a message of Flower's that carries `data`."""
    return RecordDict({_RECORD: ConfigRecord({_FIELD: data})})


def carried(message: Message) -> bytes | None:
    """The data in a message; None if it is not one of ours."""
    records: Any = message.content.config_records
    data = records.get(_RECORD, {}).get(_FIELD)
    return data if isinstance(data, bytes) else None


def _hear(host: socket.socket, questions: queue.SimpleQueue[tuple[int, int, bytes] | None]) -> None:
    """Put the host's questions on the queue, and None once it has closed the socket."""
    try:
        while True:
            data = receive_frame(host, most=MOST)
            node, number = ASKED.unpack_from(data)
            questions.put((node, number, data[ASKED.size :]))
    except (OSError, EOFError):
        questions.put(None)


def _ask(
    grid: Grid, host: socket.socket, under_way: dict[str, int], node: int, number: int, question: bytes
) -> None:
    message = Message(content(question), node, "query", ttl=_TTL, group_id=str(number))
    sent = list(grid.push_messages([message]))
    if sent and sent[0]:
        under_way[sent[0]] = number
    else:
        _tell(host, number, 1, b"the SuperLink does not accept the question")


def _look(grid: Grid, host: socket.socket, under_way: dict[str, int]) -> None:
    for message in grid.pull_messages(list(under_way)):
        number = under_way.pop(message.metadata.reply_to_message_id, None)
        if number is None:
            continue
        if message.has_error():
            _tell(host, number, 1, str(message.error.reason).encode())
        else:
            _tell(host, number, 0, carried(message) or b"")


def _tell(host: socket.socket, number: int, failed: int, data: bytes) -> None:
    send_frame(host, ANSWERED.pack(number, failed) + data)
