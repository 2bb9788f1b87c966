"""A Post over NATS: servers with TLS, and sites with keys.

It goes on whatever is killed, and whoever attacks it.
"""

import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

pytest.importorskip("nats")

import nats
import rig
import warm
from harness.raw_client import wait_for
from harness.running_gateways import with_nats
from nats.errors import Error
from warm import TERN

from terngateway.messages import Hello, Here, decode
from terngateway.nats import NatsPost, serve_site
from terngateway.nats import exchange as wire
from terngateway.nats import server as server_module
from terngateway.nats.directories import (
    GatewaySite,
    remove_site,
    running,
    write_gateways,
)
from terngateway.nats.server import NatsServer, node_of
from terngateway.post import Reply
from ternhost.cli import main
from ternhost.errors import TERMINATED, RefusedError, UsageError
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.certificates import private_key

LATE = 60.0  # seconds: several tests at a time, on a busy machine
AGAIN = 1.0  # seconds after which a question is asked again, as the driver does
SITES = ("north", "south")

pytestmark = pytest.mark.slow


class Fleet:
    """One NATS server or a cluster of three, two sites in this process, and their host."""

    def __init__(self, directory, nodes, stack, release="bookworm"):
        with_nats(release)
        self.directory = directory
        names = [f"127.0.0.{number}" for number in range(1, nodes + 1)] if nodes > 1 else []
        self.server = write_gateways(directory, SITES, names, port=free_port())
        self.nodes = [
            stack.enter_context(NatsServer(node)) for node in self.server.nodes().values()
        ]
        self.asked = {site: [] for site in SITES}
        self.states = {site: [] for site in SITES}
        self.hold = threading.Event()  # while it is clear, no site answers
        self.hold.set()
        for site in SITES:
            stack.enter_context(
                serve_site(directory / site, self.handler(site), self.states[site].append)
            )
        self.post = stack.enter_context(NatsPost(directory))

    def handler(self, site):
        def handle(question):
            self.asked[site].append(question)
            self.hold.wait(LATE)
            if question == b"refuse":
                raise RefusedError("its budget is spent")
            return site.encode() + b" has " + question

        return handle

    def ready(self):
        wait_for(lambda: not self.post.condition() and all(self.post.sites().values()), LATE)
        wait_for(lambda: not any(site._asking for site in self.post._sites.values()), LATE)
        self.post.receive(0.0)  # what tests before have left

    def ask(self, question=b"question", sites=SITES):
        """Ask the sites, and those again that have not answered; return the errors on the way."""
        answers, errors, sent = {}, [], 0.0
        end = time.monotonic() + LATE
        while len(answers) < len(sites):
            now = time.monotonic()
            assert now < end, (answers, errors, self.post.condition())
            if now > sent + AGAIN:
                sent = now
                for site in sites:
                    if site not in answers:
                        self.post.send(site, question)
            for reply in self.post.receive(0.5):
                if reply.payload is None:
                    errors.append(reply)
                elif reply.payload == reply.site.encode() + b" has " + question:
                    answers[reply.site] = reply.payload
                else:
                    assert reply.payload.endswith(b"before"), (
                        "to another question, of before a kill"
                    )
        return errors


@pytest.fixture(scope="module", params=[(1, "bookworm"), (3, "trixie")], ids=["one", "cluster"])
def running_fleet(tmp_path_factory, request):
    """One server of Debian 12, and a cluster of Debian 13."""
    nodes, release = request.param
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("nats")
        yield Fleet(directory, nodes, stack, release)
    assert not [node for node in (directory / "nodes").iterdir() if running(node)]


@pytest.fixture
def fleet(running_fleet):
    running_fleet.ready()
    yield running_fleet
    running_fleet.hold.set()


def test_answers_and_errors_carry_the_names_of_their_sites(fleet):
    assert fleet.post.sites() == dict.fromkeys(SITES, True)
    assert fleet.ask(os.urandom(1_000_000)) == []
    fleet.post.send("south", b"refuse")
    (reply,) = wait_for(lambda: fleet.post.receive(1.0), LATE)
    assert (reply.site, reply.payload, reply.error) == ("south", None, "its budget is spent")
    with pytest.raises(UsageError, match="locked by another process"), NatsPost(fleet.directory):
        pass
    with (
        pytest.raises(UsageError, match="locked by another process"),
        serve_site(fleet.directory / "north", bytes),
    ):
        pass


def test_several_questions_are_answered_at_once(fleet):
    fleet.asked["north"].clear()
    fleet.hold.clear()
    for number in range(3):
        fleet.post.send("north", b"%d" % number)
    wait_for(lambda: len(fleet.asked["north"]) == 3, LATE)  # before any answer
    fleet.hold.set()
    replies = []
    wait_for(lambda: replies.extend(fleet.post.receive(1.0)) or len(replies) == 3, LATE)


def test_questions_that_a_site_has_lost_make_room_for_others(fleet):
    write_gateways(fleet.directory, ["east"])
    place, asked, released = fleet.directory / "east", [], threading.Event()
    with serve_site(
        place, lambda question: asked.append(question) or (released.wait(LATE) and question)
    ):
        wait_for(lambda: fleet.post.sites().get("east"), LATE)
        for number in range(4):
            fleet.post.send("east", b"%d" % number)
        wait_for(lambda: len(asked) == 4, LATE)
        threading.Timer(0.5, released.set).start()  # after the connection has ended
    with serve_site(place, lambda question: b"east has " + question):
        errors = fleet.ask(sites=["east"])
    assert errors.count(Reply("east", None, "lost: the connection has ended")) == 4
    remove_site(fleet.directory, "east")


def test_the_fleet_goes_on_after_each_server_was_killed(fleet):
    for node in fleet.nodes:
        fleet.ready()
        fleet.hold.clear()
        fleet.asked["north"].clear()
        fleet.post.send("north", b"before")
        wait_for(lambda: fleet.asked["north"], LATE)  # a question is under way
        victim = wait_for(lambda node=node: node.pid, LATE)
        os.kill(victim, signal.SIGKILL)
        fleet.hold.set()
        fleet.post.receive(0.0)
        fleet.ask(b"after")
        wait_for(lambda node=node, victim=victim: node.pid not in (None, victim), LATE)


def test_sites_can_be_added_and_removed_while_the_servers_run(fleet, capsys):
    write_gateways(fleet.directory, ["west"])
    key = fleet.directory / "server" / "sites" / "west.pem"
    states, before = [], {site: list(told) for site, told in fleet.states.items()}
    with serve_site(fleet.directory / "west", bytes, states.append):
        wait_for(lambda: fleet.post.sites().get("west"), LATE)
        fleet.post.send("west", b"you")
        (reply,) = wait_for(lambda: fleet.post.receive(1.0), LATE)
        assert (reply.site, reply.payload) == ("west", b"you")
        assert main(["gateway", "status", str(fleet.directory / "west")]) == 0
        assert "west: the gateway runs; west: connected" in capsys.readouterr().out
        written = key.read_bytes()
        key.write_bytes(b"broken")
        wait_for(lambda: "west is not admitted: " in fleet.post.condition(), LATE)
        key.write_bytes(written)
        remove_site(fleet.directory, "west")
        wait_for(lambda: "west" not in fleet.post.sites(), LATE)
        wait_for(lambda: "the server has no site with this key" in states, LATE)
        assert fleet.ask() == []
    assert fleet.states == before, "the others keep their connections"


# Attacks


@contextmanager
def attacked(directory):
    """One NATS server with the sites north and south; yields its process and the host's post."""
    with ExitStack() as stack:
        fleet = Fleet(directory, 1, stack)
        fleet.ready()
        yield fleet


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with attacked(tmp_path_factory.mktemp("attacked")) as fleet:
        yield fleet
        assert fleet.ask() == []
        for site, states in fleet.states.items():
            assert states.index(f"{site}: connected") == len(states) - 1, "it has lost its place"


def connect(fleet, tls, errors=None, **options):
    async def note(error):
        if errors is not None:
            errors.append(str(error).lower())

    url = f"tls://127.0.0.1:{fleet.server.port}"
    return nats.connect(url, tls=tls, allow_reconnect=False, error_cb=note, **options)


def as_site(fleet, site="north"):
    return GatewaySite.load(fleet.directory / site).tls()


def memory(pid, field="VmRSS"):
    """The bytes of memory that a process holds; VmHWM: the most that it has held."""
    (line,) = re.findall(rf"{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


def test_who_has_no_key_of_a_site_or_the_host_is_refused(target, tmp_path, capsys):
    """Certificates of another authority, of a server, of a removed site; a client without one, and
    one without TLS.
    """
    write_gateways(tmp_path, ["north"], port=target.server.port)
    write_gateways(target.directory, ["gone"])
    gone = as_site(target, "gone")
    remove_site(target.directory, "gone")
    authority = target.directory / "server" / "authority.pem"
    stranger = ssl.create_default_context(cafile=authority)
    other = ssl.create_default_context(cafile=authority)
    other.load_cert_chain(tmp_path / "north" / "site.pem", tmp_path / "north" / "site.key")
    node = ssl.create_default_context(cafile=authority)
    node.load_cert_chain(*(node_of(target.directory) / f"server.{kind}" for kind in ("pem", "key")))

    async def refused(tls):
        with pytest.raises((Error, OSError, asyncio.TimeoutError)):
            await connect(target, tls, connect_timeout=10)

    for tls in (stranger, other, node, gone):
        asyncio.run(refused(tls))
    with socket.create_connection(("127.0.0.1", target.server.port), LATE) as plain:
        assert b'"tls_required":true' in plain.recv(4096)
        plain.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
        assert b"+OK" not in plain.recv(4096)


def test_another_local_account_cannot_be_the_host(target):
    """The host's key is in a file of its owner alone, and in no list of processes, environment or
    file for all.
    """
    if os.getuid():
        pytest.skip("only root can be another account")
    program = (
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for path, _, files in os.walk(sys.argv[1]):\n"
        "    for name in files:\n"
        "        try: print(name, open(os.path.join(path, name), 'rb').read(40))\n"
        "        except OSError: pass\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for name in ('cmdline', 'environ'):\n"
        "        try: sys.stdout.write(open(f'/proc/{pid}/{name}').read())\n"
        "        except (OSError, ValueError): pass\n"
    )
    for parent in (target.directory, *target.directory.parents):
        parent.chmod(
            parent.stat().st_mode | 0o055
        )  # the directory may be open to all; what is in it is not
    seen = subprocess.run(
        ["python3", "-c", program, target.directory], capture_output=True, check=True, timeout=LATE
    ).stdout.decode(errors="replace")
    assert "nats-server" in seen
    assert "PRIVATE KEY" not in seen
    secrets = [path.read_text() for path in (target.directory / "server").glob("*.secret")]
    for name in ("host.key", "server.key", "authority.key"):
        secrets += (target.directory / "server" / name).read_text().splitlines()[1:-1]
    assert not [secret for secret in secrets if secret in seen]


def test_a_site_can_only_answer_and_only_itself(target):
    """It cannot ask, listen to another site or to the host, answer a question of its own, or answer
    twice.
    """

    async def attack():
        heard, errors = [], []
        north = await connect(target, as_site(target), errors)

        async def hear(message):
            heard.append(message)

        for subject in (">", "*", "_INBOX.>", "$SYS.>"):
            await north.subscribe(subject, cb=hear)
        for subject in ("ask", "_INBOX.x.y", "$SYS.REQ.SERVER.PING", "site-south.ask"):
            await north.publish(subject, b"x", reply="_INBOX.x.y")
        await north.flush()
        assert target.ask(sites=["south"]) == []
        await asyncio.sleep(1.2)  # the host has pinged both sites
        await north.close()
        seen = " ".join(errors)
        return heard, seen.count("for subscription to"), seen.count("for publish to")

    before = len(target.asked["north"])
    assert asyncio.run(attack()) == ([], 4, 4)
    assert len(target.asked["north"]) == before


def test_a_server_in_the_hands_of_another_can_neither_ask_nor_answer(tmp_path):
    """A server with the right certificate, whose owner is another's: the questions and answers lack
    signatures.
    """
    directory, answers = tmp_path / "sites", []
    with_nats()
    server = write_gateways(directory, ["north"], port=free_port())
    node = node_of(directory)
    text = (node / "accounts.conf").read_text()
    accounts = json.loads(text[text.index("{") :])
    for user in accounts["site-north"]["users"]:
        user["permissions"] = {"publish": ">", "subscribe": ">"}
    (node / "accounts.conf").write_text(f'"accounts": {json.dumps(accounts)}')

    async def attack():
        site = await connect_to(server, GatewaySite.load(directory / "north").tls())

        async def answer(message):
            answers.append(message.data)
            await message.respond(wire.REPLY.pack(wire.ANSWER, 1) + bytes(80))

        put = wire.REQUEST.pack(wire.PUT, bytes(16), 0, 1)
        asked = await site.request("ask", put + b"\0question", timeout=5)
        assert asked.data == wire.REPLY.pack(wire.LOST, 0)
        await site.subscribe("ask", cb=answer)
        await site.flush()
        while not post.receive(0.0):
            post.send("north", b"question")
            await asyncio.sleep(0.2)
            replies.extend(post.receive(0.0))
            if any("signature" in reply.error for reply in replies):
                break
        await site.close()

    asked, replies = [], []

    def handler(question):
        asked.append(question)
        return question

    with NatsServer(node), serve_site(directory / "north", handler), NatsPost(directory) as post:
        wait_for(lambda: post.sites()["north"], LATE)
        asyncio.run(asyncio.wait_for(attack(), LATE))
    assert any(b"question" in data for data in answers)
    assert any("an answer without the signature of north" in reply.error for reply in replies)
    assert all(question == b"question" for question in asked)


async def connect_to(server, tls):
    return await nats.connect(server.here[0], tls=tls, allow_reconnect=False)


NO_TLS = b'{"max_payload":1048576,"headers":true}'
NO_URLS = b'{"connect_urls":5,"tls_required":true}'
GREETINGS = [NO_TLS, b"[]", b"", NO_URLS, b"x" * 100_000, b'{"max_payload":"x"}']


@pytest.mark.parametrize("greeting", GREETINGS, ids=lambda greeting: greeting[:20].decode())
def test_a_false_server_gets_nothing_and_its_clients_recover(tmp_path, greeting):
    """One that wants no TLS gets neither a question nor an answer; none ends the threads of the two
    ends for good.
    """
    with_nats()
    server = write_gateways(tmp_path, ["north"], port=free_port())
    got = []

    def serve(door):
        with suppress(OSError):
            while True:
                connection, _ = door.accept()
                with connection, suppress(OSError):
                    connection.settimeout(2)
                    connection.sendall(b"INFO " + greeting + b"\r\n")
                    while data := connection.recv(4096):
                        got.append(data)
                        if b"PING" in data:
                            connection.sendall(b"PONG\r\n")

    states = []
    with ExitStack() as stack:
        with socket.create_server(("127.0.0.1", server.port)) as door:
            threading.Thread(target=serve, args=(door,), daemon=True).start()
            stack.enter_context(serve_site(tmp_path / "north", bytes, states.append))
            post = stack.enter_context(NatsPost(tmp_path))
            wait_for(lambda: states and "not connected yet" not in post.condition(), LATE)
            if greeting == NO_TLS:
                wait_for(lambda: "the other end wants no TLS" in states, LATE)
                wait_for(lambda: "the other end wants no TLS" in post.condition(), LATE)
            door.shutdown(socket.SHUT_RDWR)
        stack.enter_context(NatsServer(node_of(tmp_path)))
        wait_for(lambda: post.sites()["north"], LATE)
    assert b"SUB" not in b"".join(got)


def test_a_gateway_goes_on_where_its_state_cannot_be_written(tmp_path):
    full = Mock(side_effect=OSError(28, "No space left on device"))
    with_nats()
    write_gateways(tmp_path, ["north"], port=free_port())
    with serve_site(tmp_path / "north", bytes, full), NatsPost(tmp_path) as post:
        for _ in range(2):
            with NatsServer(node_of(tmp_path)):
                wait_for(lambda: post.sites()["north"], LATE)
            wait_for(lambda: not post.sites()["north"], LATE)


def test_a_site_that_answers_slowly_takes_a_bounded_part_of_the_host(target):
    target.hold.clear()
    for number in range(6):
        target.post.send("north", b"%d" % number)
    replies = []
    wait_for(lambda: replies.extend(target.post.receive(1.0)) or len(replies) == 2, LATE)
    assert [reply.error for reply in replies] == 2 * ["it answers too slowly"]
    target.hold.set()
    wait_for(lambda: replies.extend(target.post.receive(1.0)) or len(replies) == 6, LATE)
    assert sorted(reply.payload for reply in replies[2:]) == [
        b"north has %d" % number for number in range(4)
    ]


def test_a_question_that_a_server_repeats_takes_a_bounded_part_of_the_site(tmp_path):
    """The host's own connection repeats a signed question a thousand times, while the site's
    handler is slow.
    """
    with_nats()
    server = write_gateways(tmp_path, ["north"], port=free_port())
    go, asked = threading.Event(), []

    def slow(question):
        asked.append(question)
        go.wait(LATE)
        return question

    sealed = wire.seal_question(
        private_key(server.directory / "host.key"), "north", bytes(16), b"question"
    )

    async def repeat():
        host = await connect_to(server, server.tls("north"))
        put = wire.REQUEST.pack(wire.PUT, bytes(16), 0, 1)
        for _ in range(1000):
            await host.publish("ask", put + sealed, reply="_INBOX.x.y")
        await host.flush()
        await asyncio.sleep(1.0)
        await host.close()

    with (
        NatsServer(node_of(tmp_path)),
        serve_site(tmp_path / "north", slow),
        NatsPost(tmp_path) as post,
    ):
        wait_for(lambda: post.sites()["north"], LATE)
        asyncio.run(repeat())
        assert 1 <= len(asked) <= 64
        go.set()
        wait_for(lambda: post.sites()["north"], LATE)
    assert len(asked) <= 64


def test_a_site_has_few_subscriptions(target):
    async def attack():
        north = await connect(target, as_site(target))
        for _ in range(10):
            await north.subscribe("ask")
        with suppress(Error):
            await north.flush(2)
        while not north.is_closed:
            await asyncio.sleep(0.05)
        return str(north.last_error)

    assert "maximum subscriptions exceeded" in asyncio.run(asyncio.wait_for(attack(), LATE))


def test_the_log_of_a_server_does_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "_LARGEST_LOG", 10_000)
    with attacked(tmp_path) as fleet:
        log = fleet.nodes[0].node / "nats.log"
        for _ in range(300):  # each is a line or two of the log
            with socket.create_connection(("127.0.0.1", fleet.server.port), LATE) as connection:
                connection.sendall(b"nonsense\r\n")
        wait_for(lambda: log.stat().st_size < 10_000, LATE)
        pid = fleet.nodes[0].pid
        log.unlink()
        time.sleep(0.5)
        assert fleet.nodes[0].pid == pid, "a log that somebody removes ends no server"


def test_a_site_cannot_fill_the_memory_of_the_server_or_keep_others_out(target):
    """It opens as many connections as it may, each with a message that does not end, and reads
    nothing.
    """
    pid = target.nodes[0].pid
    before, tls = memory(pid), as_site(target)
    with ExitStack() as stack:
        held = [stack.enter_context(tls_connection(target, tls)) for _ in range(40)]
        for connection in held:
            with suppress(OSError):  # one too many
                connection.sendall(
                    b'CONNECT {"protocol":1}\r\nSUB ask 1\r\nPUB x 65536\r\n' + bytes(65_000)
                )
        time.sleep(1.0)
        alive = [connection for connection in held if not ends(connection, 0.05)]
        assert 1 <= len(alive) <= 8
        for _ in range(5):
            assert target.ask(os.urandom(200_000), sites=["south"]) == []
        alive[0].sendall(bytes(536) + b"\r\nPUB x 200000000\r\n")
        assert ends(alive[0])
        assert memory(pid, "VmHWM") - before < 64 << 20


def ends(connection, seconds=5.0):
    """Whether the server has closed a connection, or does so within these seconds."""
    end = time.monotonic() + seconds
    with suppress(TimeoutError):
        while time.monotonic() < end:
            connection.settimeout(max(0.01, end - time.monotonic()))
            try:
                data = connection.recv(4096)
            except ConnectionError:
                return True
            if not data or b"-ERR" in data:
                return True
    return False


def test_many_silent_connections_stop_no_site(target):
    """While 1,040 connections say nothing, sites are asked, and a new one connects.

    They end within some seconds.
    """
    pid = target.nodes[0].pid
    before = memory(pid)
    need_files(2500)
    log = target.nodes[0].node / "nats.log"
    reloads = log.read_text().count("Reloaded server")
    write_gateways(target.directory, ["late"])
    wait_for(lambda: log.read_text().count("Reloaded server") > reloads, LATE)
    with ExitStack() as stack:
        address = ("127.0.0.1", target.server.port)
        silent = [stack.enter_context(socket.create_connection(address, LATE)) for _ in range(1040)]
        began = time.monotonic()
        assert target.ask() == []
        with serve_site(target.directory / "late", bytes):
            wait_for(lambda: target.post.sites().get("late"), LATE)
        assert time.monotonic() - began < 4.0, "they were still open"
        assert memory(pid) - before < 100 << 20
        for connection in silent:
            with suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
        assert time.monotonic() - began < LATE / 2
        remove_site(target.directory, "late")
        wait_for(lambda: "late" not in target.post.sites(), LATE)


def need_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            pytest.skip(f"this process may open {hard} files only")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@contextmanager
def tls_connection(fleet, tls):
    with socket.create_connection(("127.0.0.1", fleet.server.port), LATE) as plain:
        plain.recv(4096)  # INFO
        with tls.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            yield connection


# Commands


class Command:
    """A command in a directory, whose JSON objects can be read one by one."""

    def __init__(self, stack, directory, *words):
        command = [*TERN, "gateway", *words, "--json"]
        process = warm.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
        self.process = stack.enter_context(process)
        stack.callback(self.process.kill)

    def next_line(self):
        return json.loads(self.process.stdout.readline())

    def wait_for(self, name, value):
        """Wait until the command prints an object whose member `name` is `value`."""
        end = time.monotonic() + LATE
        while (line := self.next_line())[name] != value:
            assert time.monotonic() < end, line


def test_a_second_server_in_a_directory_is_refused(target):
    with pytest.raises(UsageError, match="locked by another"), NatsServer(target.nodes[0].node):
        pass


def test_an_end_is_not_kept_by_a_server_that_hangs(tmp_path):
    with attacked(tmp_path) as fleet, ExitStack() as stack:
        pid = fleet.nodes[0].pid
        stack.callback(os.kill, pid, signal.SIGCONT)
        with NatsPost(tmp_path, beside=True) as post:
            wait_for(lambda: all(post.sites().values()), LATE)
            os.kill(pid, signal.SIGSTOP)
            began = time.monotonic()
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize(
    ("number", "address"),
    [(signal.SIGINT, "::"), (signal.SIGTERM, "::1"), (signal.SIGKILL, "127.0.0.1")],
)
def test_commands_connect_and_end(tmp_path, number, address):
    """They carry a question, also over IPv6.

    A server that outlives its killed command is replaced by the next one.
    """
    with_nats()
    sites, port = tmp_path / "sites", free_port()
    addresses = ["--name", "::1", "--address", address] if ":" in address and ipv6() else []
    words = ["--site", "north", *addresses, "--port", str(port)]
    assert main(["gateway", "init", str(sites), *words]) == 0
    node = node_of(sites)
    with ExitStack() as stack:
        options = ("--fleet", "simulated:10", "--dataset", "iris")
        gateway = Command(stack, tmp_path, "run", "sites/north", *options)
        lines = [gateway.next_line(), gateway.next_line()]
        assert {line["event"] for line in lines} == {"ready", "connection"}
        (ready,) = (line["message"] for line in lines if line["event"] == "ready")
        assert "10 devices" in ready
        server = Command(stack, tmp_path, "server", "sites")
        server.wait_for("condition", "")
        gateway.wait_for("message", "north: connected")
        status = rig.tern("gateway", "status", "sites", "--json", cwd=tmp_path).json
        assert (status["condition"], status["sites"]) == ("", {"north": True})
        with NatsPost(sites) as post:
            wait_for(lambda: not post.condition() and post.sites().get("north"), LATE)
            post.send("north", Hello().encode())
            (reply,) = wait_for(lambda: post.receive(1.0), LATE)
        here = decode(reply.payload)
        assert isinstance(here, Here)
        assert len(here.devices) == 10
        pid = running(node)
        for command in (gateway, server):
            command.process.send_signal(number)
        if number == signal.SIGINT:
            gateway.wait_for("message", "stopped; the next start resumes an open round")
        for command in (gateway, server):
            assert command.process.wait(LATE) in (0, TERMINATED, -signal.SIGKILL)
        if number != signal.SIGKILL:
            wait_for(lambda: running(node) is None, LATE)
        else:
            assert running(node) == pid
            with NatsServer(node):
                wait_for(lambda: running(node) not in (None, pid), LATE)


def ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_server_that_cannot_run_says_why(tmp_path, monkeypatch):
    with_nats()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        write_gateways(tmp_path, ["north"], port=taken.getsockname()[1])
        with NatsServer(node_of(tmp_path)) as server:
            wait_for(lambda: "address already in use" in server.condition, LATE)
    monkeypatch.setenv("PATH", str(tmp_path))
    if not shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin"):
        assert main(["gateway", "server", str(tmp_path)]) != 0
