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
    start, pipes = CONTEXT.Event(), []
    for _ in range(3):
        near, far = CONTEXT.Pipe()
        CONTEXT.Process(target=race, args=(path, start, far), daemon=True).start()
        pipes.append(near)
    start.set()

    paid = []
    for pipe in pipes:
        assert pipe.poll(20), "another process sends nothing"
        paid += pipe.recv()
    assert len(paid) == len(set(paid)) > 0
    book = loaded(path)
    assert book.spent == PRICE * len(paid)
    assert book.round == max(paid)


def test_a_ledger_that_another_process_wrote_must_be_loaded_again(path):
    first, second = loaded(path), loaded(path)
    pay(first, number=1)
    with pytest.raises(LedgerError, match="another process has answered from this ledger"):
        pay(second, number=1, question=OTHER_QUESTION)
    with pytest.raises(LedgerError, match="not a payment"):  # it has failed, and must be loaded
        pay(second, number=2)

    second.load(path)
    assert (second.spent, second.round) == (PRICE, 1)
    pay(second, number=2)
    assert loaded(path).spent == 2 * PRICE


@pytest.mark.parametrize("left_over", [False, True])
def test_only_its_owner_reads_a_ledger(path, left_over):
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
    before = os.umask(0o022)
    try:
        path = str(tmp_path / storage.FLEET)
        Path(path).write_bytes(fleet_file(bytes(32), epoch=1))
        os.chmod(path, 0o600)
        if left_over:
            Path(path + ".new").write_bytes(b"half")
        storage.write_fleet(path, bytes(range(32)), 2)
        assert storage.read_fleet(path)[0] == bytes(range(32))
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
