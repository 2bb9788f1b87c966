"""A ledger on a computer: several processes that pay from it, and the permissions of its file."""

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from tern import ledger, storage
from tern.ledger import Ledger, LedgerError
from ternhost.provision.boards import fleet_file

QUESTION = bytes(range(32))
OTHER_QUESTION = bytes(range(1, 33))
REPORT = bytes(range(18))
PRICE = 10
CONTEXT = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "ledger")
    ledger.create(path, 1000)  # its budget
    return path


def loaded(path):
    book = Ledger()
    book.load(path)
    return book


def pay(book, number, question=QUESTION):
    """Pay for the report of this round."""
    book.pay(number, question, PRICE, REPORT)


def race(path, start, pipe):
    """Pay for every round from 1 to 40 that no other process has paid for; send their numbers."""
    start.wait()
    paid, book = [], Ledger()
    for number in range(1, 41):
        try:
            book.load(path)
            pay(book, number)
            paid.append(number)
        except LedgerError:  # another process has paid
            pass
    pipe.send(paid)


def test_only_one_of_several_processes_answers_each_round(path):
    """A ledger keeps what a device has spent. Two processes that answer from it for one round would
    each disclose a report, for one payment. Three try at the same time, for rounds 1 to 40: each
    round is paid at most once, and the ledger has all payments.
    """
    start, pipes = CONTEXT.Event(), []  # `start` lets all of them begin together
    for _ in range(3):
        near, far = CONTEXT.Pipe()
        CONTEXT.Process(target=race, args=(path, start, far), daemon=True).start()
        pipes.append(near)
    start.set()

    paid = []
    for pipe in pipes:
        assert pipe.poll(20), "another process sends nothing"
        paid += pipe.recv()
    assert len(paid) == len(set(paid)) > 0, "no round twice"

    book = loaded(path)
    assert book.spent == PRICE * len(paid)
    assert book.round == max(paid)


def test_a_ledger_that_another_process_wrote_must_be_loaded_again(path):
    """Two programs have loaded the ledger. After one has paid from it, the other's copy is out of
    date: it can pay for nothing until it has loaded the ledger again.
    """
    first, second = loaded(path), loaded(path)

    pay(first, number=1)
    with pytest.raises(LedgerError, match="another process has answered from this ledger"):
        pay(second, number=1, question=OTHER_QUESTION)
    with pytest.raises(LedgerError, match="not a payment"):  # of a ledger that has failed
        pay(second, number=2)

    second.load(path)
    assert (second.spent, second.round) == (PRICE, 1)
    pay(second, number=2)
    assert loaded(path).spent == 2 * PRICE


@pytest.mark.parametrize("left_over", [False, True])
def test_only_its_owner_reads_a_ledger(path, left_over):
    """The file's mode stays 600 when a payment writes it anew, even if a file that others may read
    is left over from a write that was cut off, or if another program has changed the mode.
    """
    assert mode(path) == 0o600
    if left_over:
        Path(path + ".new").write_bytes(b"half")
        os.chmod(path + ".new", 0o644)

    book = loaded(path)
    pay(book, number=1)
    assert mode(path) == 0o600

    os.chmod(path, 0o644)  # as other programs may leave it
    book.load(path)
    pay(book, number=2)
    assert mode(path) == 0o600


@pytest.mark.parametrize("left_over", [False, True])
def test_only_its_owner_reads_a_fleets_new_key(tmp_path, left_over):
    """A board keeps the fleet's key in a file. When a new key replaces it, the file's mode stays
    600, even if one that others may read is left over from a write that was cut off.
    """
    before = os.umask(0o022)  # by which others may read new files
    try:
        path = str(tmp_path / storage.FLEET)
        Path(path).write_bytes(fleet_file(bytes(32), epoch=1))
        os.chmod(path, 0o600)
        if left_over:
            Path(path + ".new").write_bytes(b"half")

        new_key = bytes(range(32))
        storage.write_fleet(path, new_key, 2)  # the epoch of the new key

        key, *_ = storage.read_fleet(path)
        assert key == new_key
        assert mode(path) == 0o600
    finally:
        os.umask(before)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_ledger_removed_is_not_made_again(path):
    book = loaded(path)
    os.remove(path)
    with pytest.raises(LedgerError):
        pay(book, number=1)
    assert not os.path.exists(path)
