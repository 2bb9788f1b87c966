"""Names, Wi-Fi and what is kept of both, step by step: with sockets, a radio and a clock of the test's own."""

import json
import os
import sys

import scratch
from checks import raises

import tern
from tern.tcp import Lost

NEEDS = "sockets"
NAME = "broker.example"
QUESTION = b"\x06broker\x07example\x00\x00\x01\x00\x01"
RECORD = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x0e\x10\x00\x04\x0a\x00\x00\x07"
CNAME = b"\xc0\x0c\x00\x05\x00\x01\x00\x00\x0e\x10\x00\x08\x05other\xc0\x13"
SIX = b"\xc0\x0c\x00\x1c\x00\x01\x00\x00\x0e\x10\x00\x10" + bytes(16)  # AAAA


class Radio:
    """In the place of MicroPython's `network`, one station; it joins `after` so many looks, with an address or not."""

    STA_IF = 0

    def __init__(self, after=3):
        self.after = after
        self.calls = []
        self.up = False
        self.address = ("10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.3")

    def WLAN(self, interface):
        return self

    def active(self, on):
        self.calls.append("active")

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
    """In the place of `socket`: what is sent is kept in `sent`, `answers` are what comes, each once."""

    AF_INET = 2
    SOCK_DGRAM = 2

    def __init__(self):
        self.sent = []
        self.answers = []
        self.broken = self.closed = False

    def getaddrinfo(self, host, port):
        return [(2, 2, 0, "", (host, port))]

    def socket(self, *_):
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
        self.ms = 1000
        self.dns = dns
        self.good = sys.modules.get("network")
        sys.modules["network"] = self.radio
        sys.modules.pop("tern.wifi", None)
        from tern import wifi

        self.wifi = wifi
        wifi.network = self.radio
        self.kept = dns.socket, dns.ticks_ms, dns.ticks_diff
        dns.socket = self.air
        for module in (dns, wifi):
            module.ticks_ms = lambda: self.ms
            module.ticks_diff = lambda later, earlier: later - earlier

    def close(self):
        self.dns.socket, self.dns.ticks_ms, self.dns.ticks_diff = self.kept
        sys.modules.pop("tern.wifi", None)
        if hasattr(tern, "wifi"):  # CPython would import it from there
            del tern.wifi
        sys.modules.pop("network")
        if self.good:
            sys.modules["network"] = self.good

    def query(self, name=NAME):
        one = self.dns.Query(name, "10.0.0.3")
        assert one.step() is None
        return one, self.air.sent[-1][0][:2]

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
    return number + flags + b"\x00\x01" + bytes((count >> 8, count & 255)) + bytes(4) + question + records


@on_the_bench
def test_a_name_is_asked_for_and_told(bench):
    for records, count in (
        (RECORD, 1),
        (CNAME + RECORD, 2),
        (SIX + CNAME + RECORD + RECORD, 4),
        (b"\x05other\x07example\x00" + RECORD[2:], 1),
        (b"\x00" + RECORD[2:], 1),
    ):
        one, number = bench.query()
        data, address = bench.air.sent[-1]
        assert data[2:] == b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + QUESTION
        assert address == ("10.0.0.3", 53)
        bench.answer(reply(number, records, count))
        assert one.step() == "10.0.0.7"
        one.close()
        assert bench.air.closed


@on_the_bench
def test_ids_are_random(bench):
    assert len({bytes(bench.query()[1]) for _ in range(32)}) > 20


@on_the_bench
def test_what_does_not_answer_the_question_is_passed_over(bench):
    one, number = bench.query()
    good = reply(number, RECORD, 1)
    other = bytes((number[0] ^ 1, number[1]))
    bench.answer(good, ("10.0.0.4", 53))
    bench.answer(good, ("10.0.0.3", 54))
    bench.answer(reply(other, RECORD, 1))
    bench.answer(reply(number, RECORD, 1, b"\x01\x00"))  # a question
    bench.answer(reply(number, RECORD, 1, question=QUESTION.replace(b"broker", b"broken")))
    for n in range(12 + len(QUESTION)):
        bench.answer(good[:n])
    while bench.air.answers:
        assert one.step() is None
    bench.answer(good)
    assert one.step() == "10.0.0.7"


@on_the_bench
def test_answers_without_an_address_end_it(bench):
    cut = RECORD[:-1]
    for records, count, flags in (
        (b"", 0, b"\x81\x83"),  # no such name
        (RECORD, 0, b"\x81\x80"),
        (CNAME + SIX, 2, b"\x81\x80"),
        (RECORD[:11] + b"\x05" + RECORD[12:], 1, b"\x81\x80"),
        (cut, 1, b"\x81\x80"),
        (RECORD[:3] + b"\x02" + RECORD[4:], 65535, b"\x81\x80"),
        (b"\xff" * 300, 65535, b"\x81\x80"),
        (bytes(300), 65535, b"\x81\x80"),
        (b"\x3f" * 100, 1, b"\x81\x80"),
        (b"\xc0\x0c" * 100, 65535, b"\x81\x80"),
    ):
        one, number = bench.query()
        bench.answer(reply(number, records, count, flags))
        assert NAME in str(raises(Lost, one.step))
    for i in range(500):
        one, number = bench.query()
        bench.answer(reply(number, os.urandom(i % 97), 1 + i))
        try:
            assert one.step()  # by chance
        except Lost:
            pass


@on_the_bench
def test_silence_is_asked_again_and_then_given_up(bench):
    one, _ = bench.query()
    bench.air.broken = True  # then it is sent later
    for _ in range(8):
        bench.ms += 500
        assert one.step() is None
        bench.air.broken = bench.ms < 4000
    bench.ms += 3000
    assert one.step() is None
    bench.ms += 1999
    assert one.step() is None
    bench.ms += 1
    assert "nobody" in str(raises(Lost, one.step))
    assert 2 <= len(bench.air.sent) <= 4 and len(set(bench.air.sent)) == 1


@on_the_bench
def test_local_names_are_asked_for_on_the_network_itself(bench):
    one, number = bench.query("broker.local")
    data, address = bench.air.sent[-1]
    assert address == ("224.0.0.251", 5353)
    bench.answer(
        number + b"\x84\x00" + b"\x00\x01\x00\x01" + bytes(4) + data[12:] + RECORD, ("10.0.0.9", 5353)
    )
    assert one.step() == "10.0.0.7"


@on_the_bench
def test_what_is_no_name_is_not_asked_for(bench):
    for radio in (None, bench.radio):
        bench.dns.network = radio
        for host in ("10.0.0.7", "127.0.0.1", "fe80::7", NAME, "7.example", "1a"):
            asked = bench.dns.query(host)
            assert bool(asked) == (radio is not None and "a" in host), host
    bench.dns.network = bench.network
    for name in ("", ".", "a..b", "x" * 64, "x" * 63 + "." + "y" * 64):
        raises(Lost, bench.dns.Query, name, "10.0.0.3")
    assert not bench.air.sent


@on_the_bench
def test_the_radio_joins_late(bench):
    bench.radio.after = 5
    station = bench.wifi.Station("lab", "secret")
    for _ in range(5):
        assert not station.joined()
    assert not station.joined()
    assert station.joined() and station.joined()
    assert bench.radio.calls == ["active", ("lab", "secret")]


@on_the_bench
def test_the_radio_does_not_join(bench):
    bench.radio.after = 1000000
    station = bench.wifi.Station("lab")
    for _ in range(2):
        assert not station.joined()
        bench.ms += 20000
        assert not station.joined()
        bench.ms += 1
        assert "lab" in str(raises(Lost, station.joined))
    assert bench.radio.calls == 2 * ["active", ("lab", None), "disconnect"]


class Line:
    host = "10.0.0.7"


@on_the_bench
def test_a_lease_is_kept_and_used_and_forgotten(bench):
    from tern import lease

    folder = scratch.folder()
    path = folder + "/" + lease.LEASE
    chance = 255

    class Chance:
        remove = os.remove

        @staticmethod
        def urandom(n):
            return bytes((chance,))

    good = lease.os
    lease.os = Chance
    try:
        station = bench.wifi.Station("lab", "secret")
        one = lease.Lease(folder, station)
        assert one.broker is None
        assert not station.joined(one)
        one.connection = Line
        one.keep()
        address = ["10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.3"]
        with open(path) as file:
            assert json.load(file) == {"address": address, "broker": "10.0.0.7"}
        with open(path, "a") as file:
            file.write(" ")
        one.keep()
        with open(path) as file:
            assert file.read().endswith(" "), "written only when it changes"

        # the next start
        bench.radio.calls = []
        bench.radio.up = False
        one = lease.Lease(folder, station)
        assert one.broker == "10.0.0.7"
        station = bench.wifi.Station("lab", "secret")
        one._station = station
        assert not station.joined(one)
        assert bench.radio.calls == ["active", address, ("lab", "secret")]
        bench.radio.looks = bench.radio.after
        assert station.joined(one)
        one.forget()  # the broker is not where it was
        assert one.broker is None and bench.radio.calls[-1] == "disconnect"
        assert not station.joined(one)
        assert bench.radio.calls[-2:] == [{"dhcp4": True}, ("lab", "secret")]
        try:
            open(path).close()
            raise AssertionError("not forgotten")
        except OSError:
            pass

        # now and then DHCP is asked
        one.connection = Line
        one.keep()
        chance = 63
        bench.radio.calls = []
        one.take()
        assert bench.radio.calls == []
        chance = 64
        one.take()
        assert bench.radio.calls == [address]
    finally:
        lease.os = good


def test_a_lease_that_makes_no_sense_is_none():
    from tern import lease

    folder = scratch.folder()
    for text in ("", "{", "[]", "{}", "7", '{"broker": 7, "address": []}', '{"broker": "x", "address": [1]}'):
        with open(folder + "/" + lease.LEASE, "w") as file:
            file.write(text)
        assert lease.Lease(folder).broker is None
