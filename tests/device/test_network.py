"""Names, Wi-Fi and leases, step by step, with sockets, a radio and a clock of the test."""

import json
import os

import scratch
from checks import FakeClock, modules, raises, replaced
from scratch import read, write

import tern
from tern import absence, tcp
from tern.tcp import Lost

NEEDS = "sockets"
NAME = "broker.example"
QUESTION = b"\x06broker\x07example\x00\x00\x01\x00\x01"
RECORD = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04\x0a\x00\x00\x07"
CNAME = b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x0e\x10\x00\x08\x05other\xc0\x13"
SIX = b"\xc0\x0c\x00\x1c\x00\x01\x00\x00\x0e\x10\x00\x10" + bytes(16)  # AAAA


class Radio:
    """Stands in for MicroPython's `network`, with one station.

    It has joined after `after` calls of isconnected().

    chip: "ESP32" or "CYW43"; state: its status, None while it tries; associated: whether an access
    point let it in.
    """

    STA_IF = 0
    state = None
    associated = False

    def __init__(self, after=3, chip="ESP32"):
        self.esp32 = chip == "ESP32"
        self.STAT_GOT_IP = 1010 if self.esp32 else 3
        self.after = after
        self.calls = []
        self.up = False
        self.address = ("10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.3")

    def WLAN(self, interface):
        return self

    def active(self, on):
        self.calls.append("active")

    def config(self, **how):
        if not self.esp32:
            raise ValueError("unknown config param")
        self.reconnects = how["reconnects"]

    def status(self, what=None):
        if what:
            if not self.associated:
                raise OSError("Wifi Not Connected")
            return -50
        if self.state is None:
            return 1001 if self.esp32 else 1 + self.associated
        return self.state

    def connect(self, ssid, secret):
        self.calls.append((ssid, secret))
        self.looks = 0

    def disconnect(self):
        self.calls.append("disconnect")
        self.up = False

    def isconnected(self):
        if self.calls and isinstance(self.calls[-1], tuple):
            self.looks += 1
            self.up = self.looks > self.after
        return self.up

    def ifconfig(self, *address):
        if address:
            self.calls.append(list(address[0]))
        return self.address

    def ipconfig(self, **how):
        self.calls.append(how)


class Air:
    """Stands in for `socket`: keeps sent packets in `sent`, and receives each of `answers` once."""

    AF_INET = 2
    SOCK_DGRAM = SOCK_STREAM = 2

    def __init__(self):
        self.sent = []
        self.answers = []
        self.broken = self.closed = False

    def getaddrinfo(self, host, port, *_):
        return [(2, 2, 0, "", (host, port))]

    def socket(self, *_):
        if self.broken:
            raise OSError(12)  # lwIP's ENOMEM
        return self

    def setblocking(self, on):
        assert not on

    def sendto(self, data, address):
        if self.broken:
            raise OSError(5)
        self.sent.append((data, address))

    def recvfrom(self, n):
        if not self.answers:
            raise OSError(11)
        return self.answers.pop(0)

    def close(self):
        self.closed = True


class Bench:
    """The modules under test, with a radio, the air, and a clock in `ms`."""

    def __init__(self):
        from tern import dns

        self.network = dns.network
        self.radio = Radio()
        self.air = Air()
        self.dns = dns
        self.modules = modules({"network": self.radio, "tern.wifi": None})
        self.modules.__enter__()
        from tern import wifi

        self.wifi = wifi
        wifi.network = self.radio
        self.clock = FakeClock(dns, wifi)
        self.clock.__enter__()
        self.replaced = replaced(dns, socket=self.air)
        self.replaced.__enter__()

    def close(self):
        self.replaced.__exit__()
        self.clock.__exit__()
        self.modules.__exit__()
        if hasattr(tern, "wifi"):  # CPython would import it from there
            del tern.wifi

    def query(self, name=NAME):
        """(a new Query, the id of its packet)"""
        query = self.dns.Query(name, "10.0.0.3")
        assert query.step() is None
        return query, self.air.sent[-1][0][:2]

    def answer(self, data, source=("10.0.0.3", 53)):
        self.air.answers.append((data, source))


def on_the_bench(function):
    def test():
        bench = Bench()
        try:
            function(bench)
        finally:
            bench.close()

    return test


def reply(number, records, count, flags=b"\x81\x80", question=QUESTION):
    return (
        number
        + flags
        + b"\x00\x01"
        + bytes((count >> 8, count & 255))
        + bytes(4)
        + question
        + records
    )


@on_the_bench
def test_a_query_resolves_a_name(bench):
    # A DNS query for the broker's name. Answers: its address alone; after an alias (CNAME); among
    # other records (SIX is an IPv6 address); and under names that are spelled out, not references
    # to the question.
    for records, count in (
        (RECORD, 1),
        (CNAME + RECORD, 2),
        (SIX + CNAME + RECORD + RECORD, 4),
        (b"\x05other\x07example\x00" + RECORD[2:], 1),
        (b"\x00" + RECORD[2:], 1),
    ):
        query, number = bench.query()
        data, address = bench.air.sent[-1]
        assert data[2:] == b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + QUESTION
        assert address == ("10.0.0.3", 53)
        bench.answer(reply(number, records, count))
        assert query.step() == "10.0.0.7"
        query.close()
        assert bench.air.closed


@on_the_bench
def test_ids_are_random(bench):
    assert len({bytes(bench.query()[1]) for _ in range(32)}) > 20


@on_the_bench
def test_packets_that_do_not_answer_the_question_are_ignored(bench):
    # A stranger may send forged DNS packets: from another address or port, with another number, as
    # a question, about another name, cut short. Only the good answer at the end counts.
    query, number = bench.query()
    good = reply(number, RECORD, 1)
    other = bytes((number[0] ^ 1, number[1]))
    bench.answer(good, ("10.0.0.4", 53))
    bench.answer(good, ("10.0.0.3", 54))
    bench.answer(reply(other, RECORD, 1))
    bench.answer(reply(number, RECORD, 1, b"\x01\x00"))  # a question
    bench.answer(reply(number, RECORD, 1, question=QUESTION.replace(b"broker", b"broken")))
    for n in range(12 + len(QUESTION)):  # cut within the header or the question
        bench.answer(good[:n])
    while bench.air.answers:
        assert query.step() is None
    bench.answer(good)
    assert query.step() == "10.0.0.7"


@on_the_bench
def test_an_answer_without_an_address_ends_the_query(bench):
    # DNS answers without records, with records of other types or lengths, with names that refer to
    # themselves or do not end, and random ones: each ends in an error, none in a crash or an
    # endless loop.
    for records, count in (
        (RECORD, 0),  # more than the count says
        (CNAME + SIX, 2),  # an alias and an IPv6 address
        (RECORD[:11] + b"\x05" + RECORD[12:], 1),  # an address of five bytes
        (RECORD[:-1], 1),  # cut short
        (RECORD[:3] + b"\x02" + RECORD[4:], 65535),
        (b"\xff" * 300, 65535),
        (bytes(300), 65535),
        (b"\x3f" * 100, 1),  # a name of parts of 63 bytes
        (b"\xc0\x0c" * 100, 65535),  # references
        (b"", 0),  # no such name
    ):
        query, number = bench.query()
        bench.answer(reply(number, records, count, b"\x81\x80" if records else b"\x81\x83"))
        error = raises(Lost, query.step)
        assert NAME in str(error) and error.reason == absence.NO_NAME
    for i in range(500):
        query, number = bench.query()
        bench.answer(reply(number, os.urandom(i % 97), 1 + i))
        try:
            assert query.step()  # by chance
        except Lost:
            pass


@on_the_bench
def test_a_query_without_an_answer_is_sent_four_times_and_then_given_up(bench):
    # A DNS packet may be lost, so that it is repeated every 2 s.
    query, _ = bench.query()
    for ms in (2000, 2000, 2000, 1999):
        bench.clock.ms += ms
        assert query.step() is None
    bench.clock.ms += 1
    error = raises(Lost, query.step)
    assert "no name server" in str(error) and error.reason == absence.NAME_SILENT
    assert bench.air.sent == 4 * bench.air.sent[:1], "the same packet each time"


@on_the_bench
def test_a_query_that_cannot_be_sent_now_is_sent_later(bench):
    query, _ = bench.query()
    for broken, sent in ((True, 1), (False, 2)):
        bench.air.broken = broken
        bench.clock.ms += 2000
        assert query.step() is None
        assert len(bench.air.sent) == sent


@on_the_bench
def test_local_names_are_asked_for_by_multicast(bench):
    query, number = bench.query("broker.local")
    data, address = bench.air.sent[-1]
    assert address == ("224.0.0.251", 5353)
    head = number + b"\x84\x00" + b"\x00\x01\x00\x01" + bytes(4)
    bench.answer(head + data[12:] + RECORD, ("10.0.0.9", 5353))
    assert query.step() == "10.0.0.7"


@on_the_bench
def test_only_names_are_asked_for(bench):
    # An IP address needs no DNS query; nor does a board without a radio (CPython), which resolves
    # names itself. Names that DNS does not allow (a part is empty or longer than 63 bytes) are
    # refused before anything is sent.
    for radio in (None, bench.radio):
        bench.dns.network = radio
        for host in ("10.0.0.7", "127.0.0.1", "fe80::7", NAME, "7.example", "1a"):
            # The last three are names: they alone contain an "a".
            assert bool(bench.dns.query(host)) == (radio is not None and "a" in host), host
    bench.dns.network = bench.network
    for name in ("", ".", "a..b", "x" * 64, "x" * 63 + "." + "y" * 64):
        raises(Lost, bench.dns.Query, name, "10.0.0.3")
    assert not bench.air.sent


@on_the_bench
def test_a_station_waits_for_a_radio_that_joins_late(bench):
    bench.radio.after = 5
    station = bench.wifi.Station("lab", "secret")
    for _ in range(6):
        assert not station.joined()
    assert station.joined() and station.joined()
    assert bench.radio.calls == ["active", ("lab", "secret")]


@on_the_bench
def test_a_station_gives_up_a_radio_that_does_not_join(bench):
    # A radio that never joins the network "lab" is given 20 s; then it is given up, and the next
    # attempt begins anew.
    bench.radio.after = 1000000  # looks before it joins: never
    station = bench.wifi.Station("lab")
    for _ in range(2):
        assert not station.joined()
        bench.clock.ms += 20000
        assert not station.joined()
        bench.clock.ms += 1
        error = raises(Lost, station.joined)
        assert "lab" in str(error) and error.reason == absence.NOT_JOINED
    assert bench.radio.calls == 2 * ["active", ("lab", None), "disconnect"]
    assert 0 < bench.radio.reconnects < 5, "an ESP32 that never gives up does not say why"


# The states of radios that have given up: those of ESP-IDF, and of the CYW43's driver.
STATES = (
    ("ESP32", 202, absence.WIFI_KEY),
    ("ESP32", 15, absence.WIFI_KEY),
    ("ESP32", 204, absence.WIFI_KEY),
    ("ESP32", 201, absence.NO_NETWORK),
    ("ESP32", 2, absence.NOT_JOINED),
    ("ESP32", 203, absence.NOT_JOINED),
    ("ESP32", 211, absence.NOT_JOINED),
    ("CYW43", -3, absence.WIFI_KEY),
    ("CYW43", -2, absence.NO_NETWORK),
    ("CYW43", -1, absence.NOT_JOINED),
)


@on_the_bench
def test_a_station_says_at_once_why_the_radio_has_given_up(bench):
    # Chips report in states of their own that the password is wrong or that there is no such
    # network. Each becomes a reason, which a board reports and blinks.
    for chip, state, reason in STATES:
        bench.wifi.network = bench.radio = Radio(1000000, chip)
        station = bench.wifi.Station("lab", "secret")
        assert not station.joined() and not station.joined()
        bench.radio.state = state
        assert raises(Lost, station.joined).reason == reason, (chip, state)
        assert bench.radio.calls[-1] == "disconnect"
        bench.radio.state = None
        assert not station.joined() and not station.reason, "it tries again"


@on_the_bench
def test_a_station_without_a_lease_says_so_before_it_gives_up(bench):
    # The radio has joined, but no DHCP server gives it an address (a lease): after 8 s that is the
    # reason that is shown, after 20 s the board gives up.
    for chip in ("ESP32", "CYW43"):
        bench.wifi.network = bench.radio = Radio(1000000, chip)
        station = bench.wifi.Station("lab", "secret")
        assert not station.joined()
        bench.radio.associated = True
        for ms, reason in ((8000, 0), (1, absence.NO_LEASE), (11999, absence.NO_LEASE)):
            bench.clock.ms += ms
            assert not station.joined() and station.reason == reason
        bench.clock.ms += 1
        assert raises(Lost, station.joined).reason == absence.NO_LEASE


@on_the_bench
def test_a_station_without_settings_takes_the_network_as_it_is(bench):
    station = bench.wifi.Station(None)
    assert station.joined() and station.reason == absence.NO_SETTINGS
    bench.radio.up = True
    assert station.joined() and not station.reason
    assert bench.radio.calls == [], "the radio is the user's"


class Connection:
    host = "10.0.0.7"


ADDRESS = ["10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.3"]


class Board:
    """A board whose station has the lease of an earlier start."""

    def __init__(self, bench):
        from tern import lease

        self.module = lease
        self.folder = scratch.folder()
        self.path = self.folder + "/" + lease.LEASE
        self.random_byte = 255
        self.station = bench.wifi.Station("lab", "secret")
        self.replaced = replaced(lease, os=self)
        self.remove = os.remove

    def urandom(self, n):
        return bytes((self.random_byte,))

    def lease(self):
        """The lease of a new start."""
        lease = self.module.Lease(self.folder, self.station)
        lease.connection = Connection
        return lease

    def joined(self, bench):
        """A lease that is kept in the file, and a station that has joined with it."""
        self.station.joined()
        self.lease().keep()
        bench.radio.calls = []
        bench.radio.up = False
        self.station = bench.wifi.Station("lab", "secret")
        lease = self.lease()
        self.station.joined(lease)
        bench.radio.looks = bench.radio.after
        assert self.station.joined(lease)
        return lease


@on_the_bench
def test_a_lease_is_written_when_it_changes(bench):
    # To connect faster after sleep, a board keeps its address and its broker's in a file. Flash
    # wears: it is written once for equal content. `hold` is called just before a write, to hide
    # its time in a slot.
    board = Board(bench)
    before_writing = []

    def hold():
        before_writing.append(os.listdir(board.folder))

    with board.replaced:
        lease = board.lease()
        board.station.joined(lease)
        lease.keep(hold)
        assert json.loads(read(board.path)) == {"address": ADDRESS, "broker": "10.0.0.7"}
        lease.keep(hold)
        assert before_writing == [[]]


@on_the_bench
def test_the_next_start_joins_with_the_address_of_the_lease(bench):
    board = Board(bench)
    with board.replaced:
        assert board.joined(bench).broker == "10.0.0.7"
    assert bench.radio.calls == ["active", ADDRESS, ("lab", "secret")]


@on_the_bench
def test_a_lease_is_forgotten_when_the_broker_is_not_there(bench):
    # A kept address may be out of date. If the broker is not reached with it, the board leaves the
    # network, removes the file, and asks for a new address by DHCP.
    board = Board(bench)
    with board.replaced:
        lease = board.joined(bench)
        lease.forget()
        assert lease.broker is None and bench.radio.calls[-1] == "disconnect"
        assert not board.station.joined(lease)
        assert bench.radio.calls[-2:] == [{"dhcp4": True}, ("lab", "secret")]
        raises(OSError, read, board.path)


@on_the_bench
def test_one_start_in_four_asks_for_a_new_address(bench):
    # A board that always kept its address would never learn of a change. One random byte decides:
    # below 64 of 256 it asks.
    board = Board(bench)
    with board.replaced:
        lease = board.joined(bench)
        for random_byte, calls in ((63, [{"dhcp4": True}]), (64, [ADDRESS])):
            board.random_byte = random_byte
            bench.radio.calls = []
            lease.take()
            assert bench.radio.calls == calls


class Lamp:
    """A board with an LED and a directory, and the clock of the test."""

    def __init__(self):
        self.directory = scratch.folder()
        self.lit = []
        self.clock = FakeClock(absence)

    def led(self, on):
        self.lit.append((self.clock.ms, on))

    def file_content(self):
        try:
            return list(read(self.directory + "/" + absence.ABSENT))
        except OSError:
            return None


def test_a_connection_waits_for_a_socket_while_the_last_ones_are_closing():
    air = Air()
    air.broken = True
    with replaced(tcp, socket=air):
        connection = tcp.Connection("10.0.0.7", 1883)
        assert connection.write(b"x") == connection.write(b"x") == 0


def test_an_absence_tells_its_reason_and_how_long_it_lasts():
    # An Absence is a time without a broker; its text (reason, seconds) is shown in the board's
    # HELLO. Reasons: 0 none, 8 REFUSED, 16 LOST.
    board = Lamp()
    with board.clock as clock:
        away = absence.Absence(board)
        clock.ms = 1500
        assert str(away) == "absent 0 1 s", "nothing has failed"
        away.failed(absence.REFUSED, clock.ms)
        clock.ms += 700_000
        assert str(away) == "absent 8 701 s"
        away.ended(int)
        clock.ms += 5000
        assert str(away) == "was absent 8 701 s"
        away.failed(absence.LOST, clock.ms)
        clock.ms += 2000
        assert str(away) == "absent 16 2 s"


def test_the_reason_of_an_absence_is_written_when_it_changes():
    # An Absence, a time without a broker, keeps its reason in a file, which survives a reset.
    # Flash wears: an equal reason is not written again (the "+" put there stays). The callback of
    # ended() is called before the write.
    board = Lamp()
    before_writing = []
    with board.clock:
        away = absence.Absence(board)
        away.failed(absence.REFUSED, 0)
        assert board.file_content() == [absence.REFUSED]
        write(board.directory + "/" + absence.ABSENT, b"\x08+")
        away.failed(absence.REFUSED, 0)
        assert board.file_content() == [absence.REFUSED, ord("+")]
        away.failed(absence.SILENT, 0)
        away.ended(lambda: before_writing.append(board.file_content()))
        assert board.file_content() == [0] and before_writing == [[absence.SILENT]]
        away.failed(absence.LOST, 0)
        assert board.file_content() == [0], "not yet: the next attempt may succeed"
        away.failed(absence.NO_LEASE, 0)
        assert board.file_content() == [absence.NO_LEASE]


def test_a_board_that_restarted_tells_the_reason_in_its_file():
    # The reason of a time without a broker, 5 for NO_LEASE, is told after a restart, once a broker
    # is there, and then cleared.
    board = Lamp()
    with board.clock:
        write(board.directory + "/" + absence.ABSENT, bytes((absence.NO_LEASE,)))
        away = absence.Absence(board)
        board.clock.ms = 3000
        away.ended(int)
        assert str(away) == "was absent 5 0 s" and board.file_content() == [0]


def test_a_damaged_or_missing_file_changes_nothing_about_an_absence():
    # The file keeps the reason of a time without a broker, here 8 for REFUSED; it is empty, or its
    # folder is missing.
    board = Lamp()
    with board.clock:
        for directory in (board.directory, board.directory + "/gone"):
            if directory == board.directory:
                write(directory + "/" + absence.ABSENT, b"")
            board.directory = directory
            away = absence.Absence(board)
            away.failed(absence.REFUSED, 0)
            away.ended(int)
            assert str(away) == "was absent 8 0 s"


def test_the_seconds_of_an_absence_show_neither_how_long_the_start_took_nor_a_file():
    # The seconds without a broker are sent to the host. They count from public moments: from power
    # on (0 ms), and from when the connection was lost, not from when a file that depends on data
    # had been written.
    board = Lamp()
    with board.clock:
        board.clock.ms = 400  # a program's files were opened
        away = absence.Absence(board)
        board.clock.ms = 1100
        assert str(away) == "absent 0 1 s"
        away.ended(int)
        board.clock.ms = 2100  # lost 100 ms ago, and the file of the address was removed
        away.failed(absence.LOST, 2000)
        board.clock.ms = 3000
        assert str(away) == "absent 16 1 s"


def test_the_led_blinks_the_reason_until_the_absence_ends():
    # Without a broker, the LED blinks as often as the number of the reason, pauses, and repeats.
    board = Lamp()
    with board.clock:
        away = absence.Absence(board)

        def watch(ms):
            board.lit = []
            for _ in range(ms // 50):
                board.clock.ms += 50
                away.show()
            return len([ms for ms, on in board.lit if on])

        assert watch(3000) == 0, "nothing has failed"
        for reason in (1, 3, 17):
            away.failed(reason, board.clock.ms)
            # In steps of 256 ms: on and off for each blink, and a pause of 6; twice.
            assert watch(2 * (2 * reason + 6) * 256) == 2 * reason
            spans = [(on, later[0] - ms) for (ms, on), later in zip(board.lit, board.lit[1:])]
            dark = sorted(ms for on, ms in spans if not on)
            assert all(200 <= ms <= 350 for ms in dark[:-2] + [ms for on, ms in spans if on])
            assert 1500 <= dark[-1] <= 1900, "the pause after the last blink"
        while not away._lit:
            watch(50)
        away.ended(int)
        assert board.lit[-1][1] is False and watch(10000) == 0
