"""Boards of several clients: their answers to a ROUND for the whole fleet, with the reports
together in REPORTS.
"""

import struct

from tern import wire
from tern.compat import const

_REPORT_BYTES = const(17)  # a REPORT without its packed symbols
_ROWS_AT = const(7)  # where the rows of a REPORTS begin
_MOST_BYTES = const(600)  # the longest one that a link keeps until it is acknowledged


def respond(client, frame, first, count, send):
    """Answer `frame`, a ROUND for the whole fleet, verified, for the clients first .. first + count
    - 1.
    """
    reports = bytearray(_MOST_BYTES)
    reply = memoryview(client.reply)
    end = size = 0
    for i in range(count):  # not over ids, which may be beyond small integers
        n = client.answer(frame, first + i)
        if reply[0] != wire.REPORT or client.policy.slot_ms:  # a slot has room for the work of one
            send(client.reply, n)
            continue
        if end and (n != size or end + n > _MOST_BYTES):
            send(reports, end)
            end = 0
        if not end:
            size = n
            reports[0] = wire.REPORTS
            reports[1:5] = reply[5:9]
            struct.pack_into("<H", reports, 5, n - _REPORT_BYTES)
            end = _ROWS_AT
        reports[end : end + 4] = reply[1:5]
        reports[end + 4 : end + n - 5] = reply[9:n]
        end += n - 5
    if end:
        send(reports, end)
