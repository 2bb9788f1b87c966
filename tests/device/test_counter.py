"""The counter of a chip: no order of restored copies and power cuts makes a board answer a round
twice.
"""

import io
import os
import sys

import ledger_vectors
import scratch
import small_board
from checks import modules, raises, replaced
from scratch import read, write
from small_board import THREE, ask, error_of, round_frame

from tern import counter, host_frames, ledger, rom, storage, wire
from tern.client import Client
from tern.compat import MICROPYTHON
from tern.counter import ChipCounter
from tern.frames import FrameError
from tern.ledger import Ledger, LedgerError

with modules(
    {"machine": object(), "tern.boards.rp2": None}
):  # which takes the machine that it finds
    from tern.boards import esp32, rp2

NEEDS = {"test_no_order_of_copies_and_power_cuts_gets_two_reports_for_a_round": "endurance"}
PATH = "board/ledger/00000007"
COST = 5
# (round, question, reports paid for at once), one after the other: what a host asks between two
# power cuts
QUESTIONS = [[(number, question, 1)] for number in (1, 2) for question in (1, 2)]
QUESTIONS += [[(1, 1, 2)], [(2, 1, 2)], [(1, 1, 1), (2, 2, 1)], [(1, 1, 2), (2, 2, 2)]]


class PowerCut(Exception):
    pass


class Medium:
    """A board: its ledger and its fuses in RAM. The power fails before step `left` of writing and
    sending.
    """

    def __init__(self, image=b"", burnt=bytes(32), left=-1):
        self.files = {PATH: image, "fuses": burnt}
        self.left = left
        self.count = len(burnt)

    def step(self):
        if not self.left:
            raise PowerCut
        self.left -= 1

    def put(self, path, data, held=None):
        self.step()
        self.files[path] = bytes(data)
        return self.files[path]

    def open(self, path, mode):
        return io.BytesIO(self.files[path])

    def fuses(self):
        return self

    def is_burnt(self, n):
        return self.files["fuses"][n]

    def burn(self, n):
        burnt = self.files["fuses"]
        self.put("fuses", burnt[:n] + b"\1" + burnt[n + 1 :])


def start(state, image, questions, medium):
    """Start a board with the flash `image`, and ask it, until its power fails.

    Return the state after.
    """
    images, current, _, released, honest = (
        state  # copies of the flash, the last one, fuses, reports, no restoring
    )
    honest = honest and image == current
    released = dict(released)
    book = Ledger(board=medium)
    try:
        for number, question, ahead in questions:
            if not book.path:
                book.load(PATH)
            assert book.spent >= COST * len(released), "released, but not paid for"
            report = bytes((wire.REPORT, question, len(images)) + 15 * (0,))
            event = {"round": number, "cost": COST, "ahead": ahead}
            event["question"] = "%02x" % question * 32
            event["report"] = "".join("%02x" % byte for byte in report)
            answer = ledger_vectors.ask(book, event)
            if answer == "refused":
                raise LedgerError
            if answer in ("paid", "again"):
                medium.step()  # it is sent
                report = bytes(book.report)
                assert released.get(number, report) == report, "two reports for a round"
                released[number] = report
    except PowerCut:
        pass
    except (LedgerError, FrameError):
        assert not honest, "an honest board refuses"
    current = medium.files[PATH]
    images = images if current in images else images + (current,)
    return images, current, medium.files["fuses"], tuple(sorted(released.items())), honest


def explore(starts, step=1):
    """Follow every order of restored copies, questions and power cuts over some starts; return how
    many there are.
    """
    medium = Medium()
    with replaced(ledger, replace=medium.put, exchange=medium.put):
        ledger.create(PATH, 10**6, 0, step)
    image = medium.files[PATH]
    states = [((image,), image, bytes(32), (), True)]
    seen = set(states)
    followed = 0
    for _ in range(starts):
        before = states
        states = []
        for state in before:
            for image in state[0]:
                for questions in QUESTIONS:
                    cut = 0
                    medium.left = 0
                    while not medium.left:
                        medium = Medium(image, state[2], cut)
                        with replaced(
                            ledger, open=medium.open, replace=medium.put, exchange=medium.put
                        ):
                            after = start(state, image, questions, medium)
                        cut += 1
                        followed += 1
                        if after not in seen:
                            seen.add(after)
                            states.append(after)
    return followed


def ledger_first(book, board, write):
    """A simpler counter, with burn_after: one fuse for a write, which burns after it.

    Each ledger of the next step is taken.
    """
    state, book.state = book.state, ledger.IDLE
    bound = ChipCounter(book, board, write)
    book.state = state
    return bound


def burn_after(fuses, step, done):
    if done:
        burn_both(fuses, step)


def burn_both(fuses, step, _=0):
    """Burn the fuses of a step as if they were one."""
    fuses.burn(2 * step - 2)
    fuses.burn(2 * step - 1)


def test_no_order_of_copies_and_power_cuts_gets_two_reports_for_a_round():
    """Every order of restored copies, questions and power cuts, over three starts of a board."""
    if MICROPYTHON:  # which has no memory for more
        explore(2)
        return
    assert explore(3) > 10000


def test_the_search_finds_what_goes_wrong_without_a_counter():
    if not MICROPYTHON:
        assert "not paid for" in str(raises(AssertionError, explore, 2, 0))


def test_the_search_finds_what_goes_wrong_with_one_fuse_for_a_write():
    if MICROPYTHON:
        return
    with replaced(counter, ChipCounter=ledger_first, mark=burn_after):
        assert "two reports for a round" in str(raises(AssertionError, explore, 3))
    with replaced(counter, mark=burn_both):  # before the write
        assert "an honest board refuses" in str(raises(AssertionError, explore, 2))


class Counting:
    """A board of one client, bound to the counter of these fuses, whose ledger is copied before each
    round.
    """

    def __init__(self, fuses, ahead):
        self.folder = scratch.folder() + "/board"
        os.mkdir(self.folder)
        self.board = small_board.provision(self.folder, fuses=fuses)
        small_board.put_fleet(self.folder, ahead=ahead)
        self.ledger = self.folder + "/" + storage.ledger_name(7)
        self.copies = []

    def answer(self, rounds):
        client = Client(self.board)
        for number in range(1, rounds + 1):
            self.copies.append(read(self.ledger))
            assert ask(client, round_frame(number, THREE))[0] == wire.REPORT, number
        return client

    def refusal(self):
        """The (code, detail) with which the board refuses after a restart."""
        client = Client(self.board)
        code = error_of(ask(client, round_frame(9, THREE)))
        hello = host_frames.Hello(bytes(client.reply[: client.hello(0)]))
        assert hello.budget == 0
        return code


def test_a_client_answers_until_its_counter_is_used_up():
    # Two fuses a write; the last pair is not used for a report.
    for fuses, ahead, reports in ((2, 1, 0), (8, 1, 3), (9, 2, 6)):
        counting = Counting(fuses, ahead)
        client = counting.answer(reports)
        assert error_of(ask(client, round_frame(reports + 1, THREE)))[0] == wire.ERR_BUDGET
        assert counting.refusal()[0] == wire.ERR_BUDGET


def test_a_client_refuses_every_copy_of_its_ledger_but_the_last():
    # The ledger, a file, holds the privacy budget that is spent; restoring an old copy would
    # refund it. Fuses in the chip, which can only ever be burnt, count the writes: 8 fuses here,
    # with 2 rounds paid for at each write. Each older copy must be refused.
    counting = Counting(8, 2)
    counting.answer(6)
    last = read(counting.ledger)
    for copy in counting.copies:
        if copy != last:
            write(counting.ledger, copy)
            assert counting.refusal() == (wire.ERR_LEDGER, wire.OLD_LEDGER)


def test_a_client_refuses_while_its_counter_cannot_be_read():
    # Without its fuses (the counter in the chip that shows whether the ledger is the newest) a
    # board must not answer, or removing them would refund its privacy budget.
    counting = Counting(8, 1)
    counting.answer(1)
    fuses = counting.folder + ".count"
    for other in (b"", bytes(8) + b"\1"):  # something else is in the fuses
        write(fuses, other)
        assert counting.refusal()[0] == wire.ERR_LEDGER
    os.remove(fuses)
    assert counting.refusal() == (wire.ERR_LEDGER, 0)
    with modules({"tern.counter": object()}):  # it is not deployed
        assert counting.refusal() == (wire.ERR_LEDGER, 0)


# --- Chips, as their manuals describe them


class Chip:
    """Stands in for the module `machine` and its memory.

    Its `fuses` stay when the power fails before write `left`.

    fuses: by the address that shows them; fixed: what nothing changes, by address.
    """

    step = Medium.step
    hertz = 80_000_000

    def __init__(self, fuses=(), left=-1):
        self.fuses = dict(fuses)
        self.registers = dict(fuses)
        self.fixed = dict(self.rom)
        self.left = left
        self.mem32 = self.mem16 = self

    def __getitem__(self, address):
        return self.fixed.get(address, self.registers.get(address, 0))

    def freq(self):
        return self.hertz

    def call(self, *arguments):
        """Stands in for rom.call()."""


class Esp32(Chip):
    """The eFuse controller of an ESP32."""

    board = esp32
    steps = 48
    own = (0x3FF5A080, 0x3FF5A090, 0x3FF5A094)
    rom = ((0x40001000, 0x00F01D83),)

    def __setitem__(self, address, value):
        self.step()
        code = self[0x3FF5A0FC]
        if address != 0x3FF5A104:
            self.registers[address] = value
        elif (value, code) == (2, 0x5A5A):
            assert self[0x3FF5A0F8] == 0x8050 and self[0x3FF5A118] == 100
            for written, shown, size in (
                (0x3FF5A01C, 0x3FF5A000, 28),
                (0x3FF5A098, 0x3FF5A038, 96),
            ):
                for i in range(0, size, 4):
                    self.fuses[shown + i] = self.fuses.get(shown + i, 0) | self[written + i]
        elif (value, code) == (1, 0x5AA5):
            self.registers.update(self.fuses)


class Rp2350(Chip):
    """The OTP of an RP2350 and its boot ROM, which refuses to write rows that are fixed."""

    board = rp2
    steps = 504
    own = tuple([0x40137000 + 4 * row for row in range(126)])
    rom = ((0x16, 0x1234),)
    lock = 1

    def __getitem__(self, address):
        lock = self.lock
        if address == 0x400E0814:
            self.lock = 0
            return lock
        return Chip.__getitem__(self, address)

    def __setitem__(self, address, value):
        assert (address, value) == (0x400E0814, 0)
        self.lock = 1

    def call(self, function, a, b, c):
        if function == 0x1234:
            return 0x5678 if (a, b) == (ord("O") | ord("A") << 8, 4) else 0
        assert (function, b, c >> 16) == (0x5678, 4 * len(a), 1)
        for i in range(len(a)):
            row = 0x40134000 + 4 * ((c & 0xFFFF) + i)
            if self.lock or row in self.fixed or self[row] & ~a[i]:
                return -19
            self.step()
            self.fuses[row] = self.registers[row] = a[i]
        return 0


def on(chip, function, *arguments, name="RP2350"):
    """Call count() or mark() on this chip, which has just started."""

    class system:
        class implementation:
            _machine = name

    class board:
        @staticmethod
        def fuses():
            return chip.board.Board.fuses(None)  # they are those of the chip, whatever its pins

    # MicroPython takes contexts in brackets for a tuple.
    here = modules({"machine": chip})
    with here, replaced(rp2, machine=chip, sys=system), replaced(rom, call=chip.call):
        return function(counter.fuses_of(board), *arguments)


def test_each_fuse_burns_alone_whenever_the_power_fails():
    # Simulated ESP32 and RP2350 chips burn their fuses one by one. The power is cut before each
    # register access of each burn (in full for the first, middle and last fuses). The counts,
    # which are (first fuses, second fuses, all), are then those before or after the burn: never
    # another's.
    for kind in (Esp32, Rp2350):
        fuses = {}
        total = kind.steps
        for n in range(2 * total):  # two fuses for each step of the counter
            cut = 0 if n in (0, 1, 31, 32, 2 * total - 1) else -1
            whole = False
            while not whole:
                chip = kind(fuses, cut)  # loses its power after `cut` accesses; -1: never
                try:
                    on(chip, counter.mark, n // 2 + 1, n % 2)
                    whole = True
                except PowerCut:
                    burnt = on(kind(chip.fuses), counter.count)
                    before = ((n + 1) // 2, n // 2, total)
                    after = (n // 2 + 1, (n + 1) // 2, total)
                    assert burnt in (before, after), (n, cut)
                    cut += 1
                fuses = chip.fuses
        assert on(kind(fuses), counter.count) == (total, total, total)
        # No fuse of something else burnt, and there is no step after the last.
        assert [where for where, bits in fuses.items() if bits and where not in kind.own] == []
        raises(FrameError, on, kind(fuses), counter.mark, total + 1, 0)


def test_an_esp32_that_cannot_count_burns_nothing():
    # Fuses cannot be repaired, so that the driver first reads the registers of the chip and
    # refuses one on which a burn might fail or do harm. Each row sets a register so.
    for address, value in (
        (0x3FF5A000, 1 << 9),  # protected against writing
        (0x3FF5A000, 1 << 18),  # protected against reading
        (0x3FF5A018, 1),  # coded in groups of bits
        (0x3FF5A020, 1),  # another block would burn
        (0x40001000, 0x6921506F),  # an ESP32-C3
    ):
        chip = Esp32()
        chip.fixed[address] = value
        raises(FrameError, on, chip, counter.mark, 1, 0)
        assert chip.fuses == {}

    # The time of a burn is set for another clock.
    chip = Esp32()
    chip.hertz = 40_000_000
    raises(FrameError, on, chip, counter.mark, 1, 0)
    assert chip.fuses == {}


def test_an_rp2350_that_cannot_count_burns_nothing():
    # Fuses cannot be repaired: the driver refuses a chip whose fuses are in use, locked, or hold
    # other data, and another kind of chip.
    busy, locked = Rp2350(), Rp2350()
    busy.lock = 0
    locked.fixed[0x40137000] = 0
    for chip in (busy, locked):
        raises(FrameError, on, chip, counter.mark, 1, 0)
        assert chip.fuses == {}
    used_by_something_else = Rp2350({0x40137004: 2, 0x40137008: 2})
    raises(FrameError, on, used_by_something_else, counter.count)
    raises(FrameError, lambda: on(Rp2350(), counter.count, name="RP2040"))


def test_one_row_of_three_of_an_rp2350_is_outvoted():
    chip = Rp2350({0x40137000: 3, 0x40137100: 1 << 23})
    assert on(chip, counter.count) == (0, 0, 504)


def test_functions_of_a_boot_rom_are_called():
    # The boot ROM of a chip holds functions that burn fuses. rom.call() runs machine code at an
    # address with three arguments; where it cannot (another CPU, or CPython) it returns 0.
    if not MICROPYTHON or not 4 <= sys.implementation._mpy >> 10 & 15 <= 8:
        assert rom.call(1, 2, 3, 4) == 0
        return
    from uctypes import addressof

    code = bytearray(b"\x00\x68\x40\x18\x80\x18\x70\x47")  # the word at r0, plus r1, plus r2
    assert rom.call(addressof(code) + 1, bytearray(b"\x07\1\0\0"), 20, 3000) == 3283
    # Its own boot ROM looks up a function and counts bits.
    if "RP2040" in sys.implementation._machine:
        from machine import mem16

        count_bits = rom.call(mem16[0x18], mem16[0x14], ord("P") | ord("3") << 8, 0)
        for word, ones in ((0, 0), (0x1F00F0, 9), (0xFFFFFFFF, 32)):
            assert rom.call(count_bits, word, 0, 0) == ones
