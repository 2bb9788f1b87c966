"""Boards of several clients: their answers to a ROUND for the whole fleet.

The reports go together in frames REPORTS, which spare the type and the round of each.
"""

import struct

from tern import wire
from tern.compat import const

_REPORT_BYTES = const(17)  # a REPORT without its packed symbols
_ROWS_AT = const(7)  # where the rows of a REPORTS begin
_MOST_BYTES = const(600)  # the longest one that a link keeps until it is acknowledged


def respond(client, frame, first, count, send):
    """Answer a ROUND for the fleet, whose tag was verified, for each client of a board.

    client: the Client of the board. frame: the ROUND. Its clients have the ids first ..
    first + count - 1. send: a function that takes a frame and its length. Reports of one length are
    collected in a REPORTS, which is sent once it is full; errors are sent at once.
    """
    reports = bytearray(_MOST_BYTES)
    reply = memoryview(client.reply)
    # What was collected: the end of it in `reports`, 0 for nothing; the length of each report.
    end = size = 0
    for i in range(count):  # not over ids, which may be beyond small integers
        length = client.answer(frame, first + i)
        if reply[0] != wire.REPORT or client.policy.slot_ms:  # a slot has room for the work of one
            send(client.reply, length)
            continue
        # Send what was collected before a report that does not fit.
        if end and (length != size or end + length > _MOST_BYTES):
            send(reports, end)
            end = 0
        # Begin another one: type, round, and the number of bytes of packed symbols in each report.
        if not end:
            size = length
            reports[0] = wire.REPORTS
            reports[1:5] = reply[5:9]
            struct.pack_into("<H", reports, 5, length - _REPORT_BYTES)
            end = _ROWS_AT
        # A REPORT is type (byte 0), device (1 to 4), round (5 to 8), packed symbols and tag. A row
        # is the same without type and round.
        reports[end : end + 4] = reply[1:5]
        reports[end + 4 : end + length - 5] = reply[9:length]
        end += length - 5
    if end:
        send(reports, end)
