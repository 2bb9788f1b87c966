"""A host moves to another machine, by the steps of docs/guides/operate.md, and its boards stay.

The old machine, the new one and that of the boards are network namespaces with folders of their
own. The boards know only the name of the broker, which leads to the address that moves.
"""

import shlex
import shutil

import pytest
from harness import kept
from harness.guide import commands
from harness.operated import BOARDS, BROKER, COST, DEVICES, GOES_ON, GUIDE, LISTENS, SERVE, SERVES
from harness.small_network import SmallNetwork
from harness.terminals import Terminals, run
from harness.waiting import wait_for

from ternhost.errors import USAGE
from ternhost.store.store import Store

SAVE, RESTORE_AND_RUN = commands(GUIDE, "Move the host")
NAME = "broker.example"
ADDRESS = 20  # in the network
EMULATE = f"tern fleet emulate {BOARDS} --clients {DEVICES} --dir fleet --broker ../old/my-broker"


class Machine:
    """A machine of the network, with a folder of its own in which commands run."""

    def __init__(self, network, name, terminals):
        self.name = name
        self.folder = terminals.folder / name
        self.folder.mkdir()
        self.store = self.folder / "my-broker" / "store.sqlite"
        self._network = network
        self._terminals = terminals

    def _line(self, code, folder):
        inside = shlex.join(self._network.inside(self.name))
        return f"cd {folder}; exec {inside} sh -ec {shlex.quote(code)}"

    def start(self, code, expected):
        """Start a program that stays, and wait until it has printed the expected text."""
        return self._terminals.start(self._line(code, self.folder), expected)

    def run(self, code, folder=None):
        """Run commands until they end; return the exit code and what they printed."""
        line = self._line(code, folder or self.folder)
        return run(["sh", "-ec", line], self.folder, 120)

    def must_run(self, code):
        ended, said = self.run(code)
        assert ended == 0, code + said

    def rounds(self):
        """(number, its reporters, whether it has ended) of each round in the store."""
        with Store(self.store, create=False, beside=True) as store:
            ended = {number for number, _, _ in kept.ended_rounds(store)}
            return [
                (round_.number, store.reporters(round_.number), round_.number in ended)
                for round_ in store.rounds()
            ]

    def wait_for_rounds(self, more):
        wanted = sum(ended for _, _, ended in self.rounds()) + more
        wait_for(lambda: sum(ended for _, _, ended in self.rounds()) >= wanted, 120)


class Move:
    """The fleet before, during and after the move."""

    def __init__(self, network, terminals):
        boards, old, new = (Machine(network, name, terminals) for name in network.spaces)
        address = network.give_address("old", ADDRESS)
        for name in network.spaces:
            with network.hosts_file(name).open("a") as hosts:
                hosts.write(f"{address} {NAME}\n")

        old.must_run(f"tern broker config my-broker --host {NAME}")
        broker = old.start(BROKER, LISTENS)
        boards.start(EMULATE, "on the broker of")
        host = old.start(SERVE, SERVES)
        old.wait_for_rounds(3)

        terminals.stop(host)
        terminals.stop(broker)
        old.must_run(SAVE)
        shutil.move(old.folder / "fleet.backup", new.folder)
        new.start(RESTORE_AND_RUN, LISTENS)
        network.unplug("old")
        network.give_address("new", ADDRESS)
        host = new.start(SERVE, GOES_ON)
        new.wait_for_rounds(2)
        self.second_broker = new.run(BROKER, old.folder)
        self.second_host = new.run(SERVE, old.folder)
        new.wait_for_rounds(1)
        terminals.stop(host)

        self.old_rounds, self.rounds = old.rounds(), new.rounds()
        fleet = sorted(path.parent for path in boards.folder.glob("fleet/**/clients.bin"))
        self.spent = kept.spent(fleet)


@pytest.fixture(scope="module")
def move(tmp_path_factory, micropython):
    network = SmallNetwork("boards", "old", "new")
    terminals = Terminals(tmp_path_factory.mktemp("moved"))
    try:
        yield Move(network, terminals)
    finally:
        terminals.end()
        network.close()


def new_rounds(move):
    known = {number for number, _, _ in move.old_rounds}
    return [round_ for round_ in move.rounds if round_[0] not in known]


def test_every_board_answers_the_host_on_the_new_machine(move):
    reports = [len(reporters) for _, reporters, ended in new_rounds(move) if ended]
    assert len(reports) >= 3
    assert set(reports) == {DEVICES}


def test_the_new_machine_has_all_reports_of_the_old_one(move):
    assert move.rounds[: len(move.old_rounds)] == move.old_rounds


def test_no_round_number_is_used_on_both_machines(move):
    last = max(number for number, _, _ in move.old_rounds)
    assert min(number for number, _, _ in new_rounds(move)) > last


def test_each_device_has_paid_once_for_each_report(move):
    """A report to a round that is still open may be on its way."""
    open_rounds = sum(not ended for _, _, ended in move.rounds)
    for device in range(1, DEVICES + 1):
        reports = sum(device in reporters for _, reporters, _ in move.rounds)
        assert COST * reports <= move.spent[device] <= COST * (reports + open_rounds)


def test_the_old_broker_is_refused_beside_the_new_one(move):
    code, said = move.second_broker
    assert code == USAGE, said


def test_the_old_host_is_refused_beside_the_new_one(move):
    code, said = move.second_host
    assert code == USAGE, said
