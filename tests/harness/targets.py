"""Targets of the fuzzing: each gives any bytes to a board, and raises an exception if its answers
are wrong.

What only decodes is in verdicts.py. The seeds of a target are seeds.of(its name).
"""

import hashlib
import struct
from pathlib import Path

import report_frames
from spec import answers

from harness import verdicts
from tern import storage, wire


class OnBoard:
    """Targets that need the files of a board, which are in `folder`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._board = verdicts.provision(str(self.folder))

    def client(self, data):
        """A board reports to valid ROUNDs alone; it pays once for a report, and nothing for a
        refusal.
        """
        board = verdicts.provision(str(self.folder))
        book = {device: self._account(device) for device in verdicts.DEVICES}
        for client, frame, replies in verdicts.talk(board, data):
            after = {device: self._account(device) for device in verdicts.DEVICES}
            reports = [report for reply in replies for report in _reports_in(reply)]
            for device in verdicts.DEVICES:
                self._balances(device, frame, book[device], after[device], reports)
            book = after
            if reports:
                again = report_frames.answers_of(client, frame)
                assert [report for reply in again for report in _reports_in(reply)] == reports
                assert book == {device: self._account(device) for device in verdicts.DEVICES}

    def ahead(self, data):
        """A board that pays ahead has paid for every report that it released, whenever its power is
        cut.
        """
        board = verdicts.provision(str(self.folder), verdicts.AHEAD)
        device, released, spent = verdicts.DEVICES[0], {}, 0
        for _, frame, replies in verdicts.talk(board, data):
            reports = [report for reply in replies for report in _reports_in(reply)]
            assert len(reports) <= 1
            for report in reports:
                (number,) = struct.unpack_from("<I", report, 5)
                digest = answers.question(verdicts.key_of(device), device, frame[5:-8])
                assert answers.sealed(digest, report[:-8]) == report
                assert released.get(number, report) == report
                if number not in released:
                    assert number > max(released, default=0)
                    released[number] = report
                    spent += _cost(frame)
            budget, paid, last = struct.unpack_from("<III", self._account(device), 4)
            assert spent <= paid <= budget == verdicts.BUDGET
            assert max(released, default=0) <= last

    def _account(self, device):
        return (self.folder / storage.ledger_name(device)).read_bytes()

    @staticmethod
    def _balances(device, frame, before, after, reports):
        # By the layouts of ledger.md and wire.md alone.
        reports = [report for report in reports if struct.unpack_from("<I", report, 1)[0] == device]
        digest = None
        if frame[:1] == bytes((wire.ROUND,)) and len(frame) > 17:
            digest = answers.question(verdicts.key_of(device), device, frame[5:-8])
            to = struct.unpack_from("<I", frame, 1)[0]
            fleet_tag = hashlib.sha256(verdicts.FLEET_KEY + frame[:-8]).digest()[:8]
            if frame[-8:] != {wire.FLEET: fleet_tag, device: digest[:8]}.get(to):
                digest = None
        if digest is None:
            assert not reports
            assert after == before
            return
        assert len(reports) <= 1
        for report in reports:
            assert answers.sealed(digest, report[:-8]) == report
            assert after[54:-4] == report
            assert after[16:48] == digest
        budget, spent, last = struct.unpack_from("<III", after, 4)
        old_budget, old_spent, old_last = struct.unpack_from("<III", before, 4)
        assert spent <= budget == old_budget == verdicts.BUDGET
        if after == before:
            return
        assert reports
        assert last == struct.unpack_from("<I", frame, 5)[0] > old_last
        assert spent - old_spent == _cost(frame) <= verdicts.LARGEST


def _cost(frame):
    # The micro-epsilon of a report to this ROUND, by its layout (wire.md).
    k, length = struct.unpack_from("<H", frame, 15)[0], struct.unpack_from("<H", frame, 24)[0]
    (epsilon,) = struct.unpack_from("<I", frame, len(frame) - 8 - length + 1)
    return epsilon if frame[9] == wire.SOFTMAX else k * epsilon


def _reports_in(reply):
    assert len(reply) <= wire.MAX_FRAME
    if reply[0] == wire.REPORTS:
        return report_frames.reports_of(reply)
    assert reply[0] in (wire.REPORT, wire.ERROR, wire.HELLO)
    if reply[0] == wire.ERROR:
        assert 1 <= reply[9] <= len(wire.ERRORS)
    return [reply] if reply[0] == wire.REPORT else []
