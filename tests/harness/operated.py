"""A fleet that is operated with the commands of docs/guides/operate.md."""

import os
import signal
from pathlib import Path

from harness.guide import commands
from harness.terminals import run
from harness.waiting import wait_for
from ternhost.store.store import Store

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operate.md"
DEVICES, BOARDS = 20, 2
COST = 500_000  # micro-epsilon of a report, as in the guide's command
LISTENS, IS_ON_BROKER = "the broker listens", "on the broker of my-broker"
SERVES = "each client spends"  # what a new run says first
GOES_ON = "round "

BROKER, HOURLY = commands(GUIDE, "A program was killed")
SERVE = HOURLY.replace("--every 1h", "--every 1s")
_SAVE, _INSTALL_BESIDE, TRY_BESIDE, _REPLACE, UPDATE_BOARDS = commands(GUIDE, "Upgrade")
TRY_RELEASE = TRY_BESIDE.replace("/opt/tern-new/bin/", "")  # this release is the new one
(SAVE,) = commands(GUIDE, "Back up")
(RESTORE,) = commands(GUIDE, "Restore")
(REVOKE,) = commands(GUIDE, "A lost board")


class Operated:
    """The programs of a fleet, each in a terminal of its own, and the files of the host."""

    def __init__(self, folder, terminals):
        self.folder = folder
        self.terminals = terminals
        self.store = folder / "my-broker" / "store.sqlite"
        self.broker = terminals.start(BROKER, LISTENS)
        fleet = f"tern fleet emulate {BOARDS} --clients {DEVICES} --dir boards --broker my-broker"
        terminals.start(fleet, IS_ON_BROKER)
        self.boards = sorted(path.parent for path in folder.glob("boards/**/clients.bin"))
        self.host = terminals.start(SERVE, SERVES)

    def tried(self, code):
        """Run commands of the guide, which must succeed; return what they said."""
        ended, said = run(["sh", "-ec", code], self.folder, 120)
        assert ended == 0, code + said
        return said

    # What the store has

    def value(self, statement):
        with Store(self.store, create=False, beside=True) as store:
            return store.value(statement)

    def ended_rounds(self):
        return self.value("SELECT count(*) FROM round WHERE ended IS NOT NULL")

    def reports_of_open_round(self):
        """How many reports the open round has; 0 without one."""
        return self.value(
            "SELECT coalesce(sum(reports), 0) FROM batch WHERE round IN"
            " (SELECT number FROM round WHERE ended IS NULL)"
        )

    def wait_for_rounds(self, count):
        """Wait until so many more rounds have ended."""
        end = self.ended_rounds() + count
        wait_for(lambda: self.ended_rounds() >= end, 120)

    def rounds(self):
        """(number, devices asked, reports) of every round."""
        with Store(self.store, create=False, beside=True) as store:
            return [
                (
                    round_.number,
                    sum(len(cohort.devices) for cohort in round_.cohorts),
                    store.report_count(round_.number),
                )
                for round_ in store.rounds()
            ]

    # Accidents

    def halt_a_board(self):
        """Stop the last board as by SIGSTOP, once it is idle; return its process id."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if arguments[-2:-1] == [os.fsencode(self.boards[-1])]:
                pid = int(process.name)
                os.kill(pid, signal.SIGSTOP)
                return pid
        raise AssertionError("no such board")

    def in_the_middle_of_a_round(self, deed):
        """Do a deed while one board has answered the open round, and the other has not."""
        board = self.halt_a_board()
        try:
            wait_for(lambda: 0 < self.reports_of_open_round() < DEVICES, 60)
            deed()
        finally:
            os.kill(board, signal.SIGCONT)

    def kill_host(self):
        self.terminals.stop(self.host, signal.SIGKILL)

    def kill_broker(self):
        self.terminals.stop(self.broker, signal.SIGKILL)
