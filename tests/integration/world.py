"""A board in an emulated world, on CPython and MicroPython: its clock, flash, network, port and
radio. Whatever leaves the board is an event.

All work takes a time that only the world's seed decides: no event may depend on it.
"""

import json
import os

from checks import modules, replaced
from streams import Keyed, Words

from tern import (
    absence,
    client,
    dns,
    frames,
    lease,
    ledger,
    model,
    mqtt,
    recorder,
    storage,
    supervisor,
    tcp,
    update,
    wire,
)
from tern import app as application
from tern.boards.emulated import Board
from tern.links import beside, serial, slot
from tern.links import mqtt as mqtt_link

# What can be seen of a board beside its frames: shared_specs/storage.md, "What leaves a device".
PACKETS = {1: "CONNECT", 3: "PUBLISH", 4: "PUBACK", 8: "SUBSCRIBE", 12: "PINGREQ", 14: "DISCONNECT"}
EVENTS = (
    "connect",
    "close",
    "resolve",
    "credit",
    "console",
    "radio",
    "join",
    "leave",
    "LED",
    "reset",
    "return",
)
FRAMES = {wire.HELLO: "HELLO", wire.REPORT: "REPORT", wire.ERROR: "ERROR", wire.UPDATED: "UPDATED"}
SLOT_MS = 500
END_MS = 24000
DEVICE = 7
REFUSED, SILENT, DROP = "refused", "silent", "drop"
_NEVER = 1 << 20
LATENCY_MS = 15  # of the network, one way
_ADDRESS = b"\x0a\x00\x00\x09"
_BROKER = {"host": "broker.home", "port": 1883, "ssid": "home", "wifi_password": "secret"}


class Off(BaseException):
    """The power fails, or the time is over."""


def seen(frame):
    """What is public of a frame: all of it, but for the symbols and the tag of a REPORT."""
    n = len(frame)
    kind = frame[0]
    return FRAMES[kind], n, bytes(frame[: 9 if kind == wire.REPORT else n - wire.TAG_BYTES])


class World:
    """From power-on at 0 ms to its end, or until the power fails. Each event is printed."""

    def __init__(self, seed, fails=()):
        """fails: (module, method) of files that fail."""
        self.words = Words(seed)
        self.fails = fails
        self.task = None  # of the board's program, called while it sleeps
        self.end_ms = END_MS
        self.room = 1000  # free blocks of the flash
        self.unseen = ()  # events that may depend on its tasks
        self.power_on()

    def power_on(self, module=None, cut=-1):
        """Begin at 0 ms. cut: how often this module writes until the power fails; -1: it does not."""
        self.us = 0
        self.on = True
        self.cut_module = module
        self.cut = cut

    def see(self, kind, *what):
        if self.on and kind not in self.unseen:
            assert kind in EVENTS or kind in PACKETS.values() or kind in FRAMES.values(), kind
            moment = "-" if kind == "console" else self.us // 1000  # a program ends when it likes
            print(moment, kind, *what)

    def turn_off(self):
        self.on = False
        raise Off

    def ticks_ms(self):
        self.us += 20  # so that a loop which waits for a moment ends
        if self.us > 1000 * self.end_ms:
            self.turn_off()
        return self.us // 1000

    def sleep_ms(self, ms):
        self.us += 1000 * ms
        self.ticks_ms()

    async def sleep_beside(self, ms):
        self.sleep_ms(ms)
        if self.task:
            self.task()

    def work(self, most_ms):
        """Pass a time that nobody may learn."""
        self.us += self.words.below(1000 * most_ms)


class Flash:
    """Stands in for `open` and `os` of a module: each step takes its time, some fail, and the power
    may.

    Only to read a file that no record is in takes as long in each world.
    """

    def __init__(self, world, module):
        self.world = world
        self.module = module

    def step(self, name):
        world = self.world
        if name not in ("open", "read", "readinto", "seek", "close", "stat"):
            world.work(8)
        elif self.module is recorder:
            world.work(2)
        else:
            world.us += 1000
        if self.module is world.cut_module and name in ("write", "flush", "rename"):
            if not world.cut:
                world.turn_off()
            world.cut -= 1
        if (self.module, name) in world.fails:
            raise OSError(5)

    def open_file(self, path, mode="r"):
        self.step("open")
        return File(self, open(path, mode))

    def open_text(self, path, mode="r"):
        """A file of which json can read, as it can of MicroPython's own alone."""
        self.step("write" if mode == "w" else "open")
        return open(path, mode)

    def statvfs(self, _):
        return 4096, 0, 0, self.world.room

    def urandom(self, n):
        return b"U" * n

    def __getattr__(self, name):
        self.step(name)
        return getattr(os, name)


class File:
    def __init__(self, flash, file):
        self.flash = flash
        self.file = file

    def __getattr__(self, name):
        self.flash.step(name)
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()


class Radio:
    """Stands in for MicroPython's `network`: joins 300 ms after it is told to."""

    STA_IF = 0
    STAT_GOT_IP = 3

    def __init__(self, world):
        self.world = world
        self.since = None
        self.address = ()  # without DHCP

    def WLAN(self, _):
        return self

    def active(self, on):
        self.world.see("radio", on)

    def config(self, **_):
        pass

    def connect(self, ssid, secret):
        self.world.see("join", ssid, *self.address)
        self.since = self.world.us

    def disconnect(self):
        self.world.see("leave")
        self.since = None

    def isconnected(self):
        return self.since is not None and self.world.us - self.since > 300000

    def status(self, _=None):
        return 1

    def ifconfig(self, *address):
        self.address = address
        return "10.0.0.2", "255.255.255.0", "10.0.0.1", "10.0.0.1"

    def ipconfig(self, dhcp4):
        self.address = ()


class Names:
    """Stands in for `socket`: a name server that takes 20 ms."""

    AF_INET = SOCK_DGRAM = 0

    def __init__(self, world):
        self.world = world

    def getaddrinfo(self, host, port):
        return (((host, port),),)

    def socket(self, *_):
        return self

    def setblocking(self, _):
        pass

    def sendto(self, packet, server):
        self.world.see("resolve", packet, *server)
        self.due = self.world.us + 20000, packet, server

    def recvfrom(self, _):
        ms, packet, server = self.due
        if self.world.us < ms:
            raise OSError(11)
        head = packet[:2] + b"\x81\x80\x00\x01\x00\x01" + packet[8:]
        return head + b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04" + _ADDRESS, server

    def close(self):
        pass


class Air:
    """A broker, and the network to it. scripts: of each connection, (ms after it was let in, topic
    or DROP, frame)...

    Instead of a script: REFUSED, a broker that takes no connection; SILENT, one that never answers.
    drops: whether the first connection is lost before its first report is acknowledged.
    """

    def __init__(self, world, *scripts, drops=False):
        self.world = world
        self.scripts = list(scripts)
        self.drops = drops
        self.drop_ms = _NEVER
        self.react = None  # called with each frame of the board; returns (topic, frame) or None

    def connection(self, host, port, context, server, query):
        self.script = self.scripts.pop(0) if self.scripts else ()
        self.made = False
        self.there = []  # (ms, number, bytes) on the way to the board
        self.posted = 0
        self.sent = b""
        self.host = host
        self.port = port
        self.query = query
        return self

    def go_on(self):
        """Return whether the connection is there."""
        if self.query and not self.made:
            self.host = self.query.step()
            if not self.host:
                return False
        if not self.made:
            self.made = True
            self.world.see("connect", self.host, self.port)
        if self.script == REFUSED:
            raise tcp.Lost("refused", absence.REFUSED)
        if self.world.us >= 1000 * self.drop_ms:
            self.drop_ms = _NEVER
            raise tcp.Lost("dropped")
        return True

    def later(self, data, ms=0):
        if self.script == SILENT:
            return
        self.posted += 1
        self.there.append((self.world.us // 1000 + ms + 2 * LATENCY_MS, self.posted, data))
        self.there.sort()

    def publish(self, topic, frame, ms=0):
        body = bytes((0, len(topic))) + topic.encode() + b"\x00\x09" + bytes(frame)
        n = len(body)
        length = bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7))
        self.later(b"\x32" + length + body, ms)

    def write(self, view):
        if not self.go_on():
            return 0
        self.sent += bytes(view)
        while len(self.sent) > 1:
            n = self.sent[1] & 127
            start = 2
            if self.sent[1] & 128:
                n += self.sent[2] << 7
                start = 3
            if len(self.sent) < start + n:
                break
            self.take(self.sent[0], self.sent[start : start + n])
            self.sent = self.sent[start + n :]
        return len(view)

    def take(self, head, body):
        kind = PACKETS[head >> 4]
        if kind == "PUBLISH":
            frame = body[4 + body[1] :]
            body = body[: -len(frame)]
            self.world.see(*seen(frame))
            if self.drops and frame[0] == wire.REPORT:
                self.drop_ms = self.world.us // 1000 + LATENCY_MS
                self.drops = False
            self.later(b"\x40\x02" + body[-2:])
            answer = self.react and self.react(frame)
            if answer:
                self.publish(*answer)
        elif kind == "SUBSCRIBE":
            self.later(b"\x90\x03" + body[:2] + b"\x01")
        elif kind == "CONNECT":
            self.later(b"\x20\x02\x00\x00")
            for ms, to, frame in () if self.script == SILENT else self.script:
                if to == DROP:
                    self.drop_ms = self.world.us // 1000 + ms + 2 * LATENCY_MS
                else:
                    self.publish(to, frame, ms)
        elif kind == "PINGREQ":
            self.later(b"\xd0\x00")
        self.world.see(kind, head, body)

    def read_into(self, view):
        if not self.go_on() or not self.there or self.there[0][0] > self.world.us // 1000:
            return 0
        ms, number, data = self.there.pop(0)
        n = min(len(view), len(data))
        view[:n] = data[:n]
        if n < len(data):
            self.there.insert(0, (ms, number, data[n:]))
        return n

    def wait(self, timeout_ms):
        now = self.world.us // 1000
        for ms in [ms for ms, _, _ in self.there[:1]] + [self.drop_ms]:
            timeout_ms = min(timeout_ms, max(0, ms - now))
        self.world.sleep_ms(timeout_ms if self.made else min(timeout_ms, 10))

    def close(self):
        self.world.see("close")


class Port:
    """Stands in for `select`, and for both ends of a board's port. script: (ms, frame); None:
    damaged bytes.
    """

    POLLIN = 1
    POLLOUT = 4

    def __init__(self, world, script=()):
        self.world = world
        coded = bytearray(frames.cobs_size(wire.MAX_FRAME))
        self.given = [
            (
                ms,
                b"\x09\0"
                if frame is None
                else bytes(coded[: frames.cobs_encode(frame, len(frame), coded)]),
            )
            for ms, frame in script
        ]
        self.receiver = frames.Receiver()
        self.event = 0

    def poll(self):
        return Poll(self)

    def readinto(self, view, n):
        if not self.given:
            return 0  # the host has gone
        ms, data = self.given[0]
        self.world.us = max(self.world.us, 1000 * ms)
        n = min(n, len(data))
        view[:n] = data[:n]
        self.given[0] = ms, data[n:]
        if not data[n:]:
            self.given.pop(0)
        return n

    def write(self, data, at, n):
        self.receiver.give(bytes(data[at : at + n]))
        while (size := self.receiver.next()) != frames.MORE:
            if size:
                self.world.see(*seen(self.receiver.frame[:size]))
            else:
                self.world.see("credit")
        return n


class Poll:
    def __init__(self, port):
        self.port = port

    def register(self, _, event):
        self.event = event

    def ipoll(self, timeout_ms):
        port = self.port
        if self.event == Port.POLLIN and timeout_ms:
            port.world.sleep_ms(timeout_ms)
        ready = self.event == Port.POLLOUT or (
            port.given and port.given[0][0] <= port.world.us // 1000
        )
        return iter((1,) if ready else ())


class Noise(Keyed):
    """A generator of bytes that differ from seed to seed, and take their time."""

    state = wire.CTR_DRBG

    def __init__(self, world):
        super().__init__(b"world", b"%d" % world.words.state)
        self.world = world

    def refill(self):
        self.world.work(2)
        super().refill()

    def end_report(self):
        self.world.work(3)


class SeenBoard(Board):
    def __init__(self, world, directory):
        super().__init__(directory)
        self.world = world

    def open_link(self):
        if mqtt_link.CONFIG in os.listdir(self.directory):
            return super().open_link()
        port = self.world.port
        return serial.Serial(port, port, port, port, True)

    def generator(self):
        return Noise(self.world)

    def led(self, on):
        self.world.see("LED", on)

    def reset(self):
        self.world.see("reset")
        self.world.turn_off()

    def begin(self):
        pass

    end = begin


def within(world, air, port, act):
    """Call `act()` in the world, until the power fails."""
    world.port = port
    radio = Radio(world)
    clock = {
        "ticks_ms": world.ticks_ms,
        "sleep_ms": world.sleep_ms,
        "ticks_diff": lambda later, earlier: later - earlier,
    }
    contexts = [modules({"network": radio, "tern.wifi": None})]
    for module in (
        slot,
        beside,
        mqtt,
        mqtt_link,
        absence,
        supervisor,
        serial,
        dns,
        application,
        client,
    ):
        contexts.append(
            replaced(module, **{name: clock[name] for name in clock if hasattr(module, name)})
        )
    contexts.append(replaced(application, sleep_ms=world.sleep_beside))
    contexts.append(replaced(client, _mem_free=int))  # the world itself is on the heap
    for module in (recorder, storage, ledger, model, update, absence):
        flash = Flash(world, module)
        contexts.append(replaced(module, open=flash.open_file, os=flash))
    flash = Flash(world, lease)
    contexts.append(replaced(lease, open=flash.open_text, os=flash))
    contexts.append(replaced(mqtt_link, os=Flash(world, mqtt_link)))
    contexts.append(replaced(dns, socket=Names(world), network=radio, os=flash))
    contexts.append(replaced(serial, select=port))
    quiet = Port(world)
    contexts.append(
        replaced(
            mqtt_link,
            Connection=air.connection,
            network=radio,
            open_port=lambda board, n: serial.Serial(quiet, quiet, quiet, quiet, False, n),
        )
    )
    try:
        for context in contexts:
            context.__enter__()
        from tern import wifi

        wifi.ticks_ms = world.ticks_ms
        wifi.ticks_diff = clock["ticks_diff"]
        act()
    except Off:
        pass
    except Exception as error:  # the program ends
        world.see("console", type(error).__name__, *error.args)
    finally:
        for context in reversed(contexts):
            context.__exit__(None, None, None)
        application._in_use.clear()


def on_broker(folder, **settings):
    """Give the board of a folder a broker."""
    settings.update(_BROKER)
    with open(folder + "/" + mqtt_link.CONFIG, "w") as file:
        json.dump(settings, file)
