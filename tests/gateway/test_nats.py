"""A Post over NATS: servers with TLS, and sites with keys.

It goes on whatever is killed, and whoever attacks it.
"""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("nats")

import nats
import rig
import warm
from harness.running_gateways import with_nats
from harness.waiting import wait_for
from nats.errors import Error
from warm import TERN

from terngateway.messages import Hello, decode
from terngateway.nats import NatsPost, serve_site
from terngateway.nats import exchange as wire
from terngateway.nats import server as server_module
from terngateway.nats.directories import GatewaySite, remove_site, running, write_gateways
from terngateway.nats.server import NatsServer, node_of
from terngateway.post import Reply
from ternhost.cli import main
from ternhost.errors import OK, TERMINATED, RefusedError, UsageError
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.certificates import private_key
from terntools.emulators.debian import NEXT

PATIENCE = 60.0  # seconds: several tests at a time, on a busy machine
ASK_AGAIN = 3.0  # seconds after which a question is taken to be lost
SITES = ("north", "south")

pytestmark = pytest.mark.slow


class Fleet:
    """NATS servers, two sites in this process, and their host."""

    def __init__(self, directory, stack, nodes=1, release="bookworm"):
        with_nats(release)
        self.directory = directory
        names = [f"127.0.0.{number}" for number in range(1, nodes + 1)] if nodes > 1 else []
        self.server = write_gateways(directory, SITES, names, port=free_port())
        self.nodes = []
        for node in self.server.nodes().values():
            self.nodes.append(stack.enter_context(NatsServer(node)))
        self.questions = {site: [] for site in SITES}
        self.states = {site: [] for site in SITES}
        self.may_answer = threading.Event()
        self.may_answer.set()
        for site in SITES:
            serving = serve_site(directory / site, self.handler(site), self.states[site].append)
            stack.enter_context(serving)
        self.post = stack.enter_context(NatsPost(directory))

    def handler(self, site):
        def handle(question):
            self.questions[site].append(question)
            self.may_answer.wait(PATIENCE)
            if question == b"refuse":
                raise RefusedError("its budget is spent")
            return site.encode() + b" has " + question

        return handle

    def wait_until_ready(self):
        wait_for(lambda: not self.post.condition() and all(self.post.sites().values()), PATIENCE)
        wait_for(lambda: not any(site._asking for site in self.post._sites.values()), PATIENCE)
        self.post.receive(0.0)  # what tests before have left

    def ask(self, question=b"question", sites=SITES):
        """Ask the sites until all have answered; return the errors on the way."""
        missing, errors = set(sites), []
        next_time = 0.0
        end = time.monotonic() + PATIENCE
        while missing:
            now = time.monotonic()
            assert now < end, (missing, errors, self.post.condition())
            if now > next_time:
                next_time = now + ASK_AGAIN
                for site in missing:
                    self.post.send(site, question)
            for reply in self.post.receive(0.5):
                if reply.payload is None:
                    errors.append(reply)
                elif reply.payload.endswith(b" has " + question):
                    missing.discard(reply.site)
        return errors


@pytest.fixture(scope="module", params=["trixie", NEXT])
def running_cluster(request, tmp_path_factory):
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("nats")
        yield Fleet(directory, stack, nodes=3, release=request.param)
    assert not [node for node in (directory / "nodes").iterdir() if running(node)]


@pytest.fixture
def cluster(running_cluster):
    """A fleet with three servers of Debian 13, and of the release after it."""
    running_cluster.wait_until_ready()
    yield running_cluster
    running_cluster.may_answer.set()


def test_answers_and_errors_carry_the_names_of_their_sites(cluster):
    assert cluster.post.sites() == dict.fromkeys(SITES, True)
    assert cluster.ask(os.urandom(1_000_000)) == []
    cluster.post.send("south", b"refuse")
    (reply,) = wait_for(lambda: cluster.post.receive(1.0), PATIENCE)
    assert (reply.site, reply.payload, reply.error) == ("south", None, "its budget is spent")


def test_a_directory_has_one_host_a_site_one_gateway_and_a_node_one_server(cluster):
    second_host = NatsPost(cluster.directory)
    second_gateway = serve_site(cluster.directory / "north", bytes)
    second_server = NatsServer(cluster.nodes[0].node)
    for second in (second_host, second_gateway, second_server):
        with pytest.raises(UsageError, match="locked by another"), second:
            pass


def test_questions_that_a_site_has_lost_make_room_for_others(cluster):
    write_gateways(cluster.directory, ["east"])
    questions, released = [], threading.Event()

    def handle(question):
        questions.append(question)
        released.wait(PATIENCE)
        return question

    with serve_site(cluster.directory / "east", handle):
        wait_for(lambda: cluster.post.sites().get("east"), PATIENCE)
        for number in range(4):
            cluster.post.send("east", b"%d" % number)
        wait_for(lambda: len(questions) == 4, PATIENCE)
        threading.Timer(0.5, released.set).start()  # after the connection has ended
    with serve_site(cluster.directory / "east", lambda question: b"east has " + question):
        errors = cluster.ask(sites=["east"])
    assert errors.count(Reply("east", None, "lost: the connection has ended")) == 4
    remove_site(cluster.directory, "east")


def test_the_fleet_goes_on_after_each_server_was_killed(cluster):
    """Each is killed while a site has a question that it has not answered yet."""
    for node in cluster.nodes:
        cluster.wait_until_ready()
        cluster.may_answer.clear()
        cluster.questions["north"].clear()
        cluster.post.send("north", b"before the kill")
        wait_for(lambda: cluster.questions["north"], PATIENCE)

        killed = kill_server(node)
        cluster.may_answer.set()

        cluster.ask(b"after the kill")
        wait_until_restarted(node, killed)


def kill_server(node):
    """Kill the process of a NatsServer; return its id."""
    process_id = wait_for(lambda: node.pid, PATIENCE)
    os.kill(process_id, signal.SIGKILL)
    return process_id


def wait_until_restarted(node, killed):
    wait_for(lambda: node.pid not in (None, killed), PATIENCE)


def test_sites_can_be_added_and_removed_while_the_servers_run(cluster):
    write_gateways(cluster.directory, ["west"])
    west_states = []
    others = {site: list(states) for site, states in cluster.states.items()}
    with serve_site(cluster.directory / "west", bytes, west_states.append):
        wait_for(lambda: cluster.post.sites().get("west"), PATIENCE)
        remove_site(cluster.directory, "west")
        wait_for(lambda: "west" not in cluster.post.sites(), PATIENCE)
        wait_for(lambda: "the server has no site with this key" in west_states, PATIENCE)
    assert cluster.ask() == []
    assert cluster.states == others, "the others keep their connections"


# Attacks


@contextmanager
def attacked(directory):
    """A fleet with one server of Debian 12."""
    with ExitStack() as stack:
        fleet = Fleet(directory, stack)
        fleet.wait_until_ready()
        yield fleet


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    with attacked(tmp_path_factory.mktemp("attacked")) as fleet:
        yield fleet
        assert fleet.ask() == []
        for site, states in fleet.states.items():
            assert states.index(f"{site}: connected") == len(states) - 1, "it has lost its place"


def connect(server, tls, errors=None, **options):
    async def note(error):
        if errors is not None:
            errors.append(str(error).lower())

    return nats.connect(server.here[0], tls=tls, allow_reconnect=False, error_cb=note, **options)


def tls_of(fleet, site="north"):
    return GatewaySite.load(fleet.directory / site).tls()


def memory(process_id, field="VmRSS"):
    """The bytes of memory that a process holds; VmHWM: the most that it has held."""
    status = Path(f"/proc/{process_id}/status").read_text()
    (kilobytes,) = re.findall(rf"{field}:\s+(\d+) kB", status)
    return int(kilobytes) * 1024


def without_a_key(target, folder):
    return ssl.create_default_context(cafile=target.directory / "server" / "authority.pem")


def with_a_key_of_another_authority(target, folder):
    write_gateways(folder, ["north"])
    tls = without_a_key(target, folder)
    tls.load_cert_chain(folder / "north" / "site.pem", folder / "north" / "site.key")
    return tls


def with_the_key_of_a_server(target, folder):
    node = node_of(target.directory)
    tls = without_a_key(target, folder)
    tls.load_cert_chain(node / "server.pem", node / "server.key")
    return tls


def with_the_key_of_a_removed_site(target, folder):
    write_gateways(target.directory, ["gone"])
    tls = tls_of(target, "gone")
    remove_site(target.directory, "gone")
    return tls


@pytest.mark.parametrize(
    "tls_context",
    [
        without_a_key,
        with_a_key_of_another_authority,
        with_the_key_of_a_server,
        with_the_key_of_a_removed_site,
    ],
)
def test_a_client_needs_the_key_of_a_site_or_the_host(target, tmp_path, tls_context):
    tls = tls_context(target, tmp_path)

    async def attack():
        with pytest.raises((Error, OSError, asyncio.TimeoutError)):
            await connect(target.server, tls, connect_timeout=10)

    asyncio.run(attack())


def test_a_client_without_tls_is_refused(target):
    with socket.create_connection(("127.0.0.1", target.server.port), PATIENCE) as plain:
        assert b'"tls_required":true' in plain.recv(4096)
        plain.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
        assert b"+OK" not in plain.recv(4096)


READ_AND_ENTER = 0o055  # the rights of everybody to a directory: its owner's stay as they are

# A program that becomes the account "nobody" (65534), and prints whatever it can read: the
# beginning of each file below a directory, and the command line and the environment of each process.
READ_ALL = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path, _, files in os.walk(sys.argv[1]):
    for name in files:
        try: print(name, open(os.path.join(path, name), 'rb').read(40))
        except OSError: pass
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('cmdline', 'environ'):
        try: sys.stdout.write(open(f'/proc/{pid}/{name}').read())
        except (OSError, ValueError): pass
"""


@pytest.fixture
def seen_by_another_account(target):
    """All that another account of the host's computer can read of the fleet, as a text."""
    if os.getuid():
        pytest.skip("only root can be another account")
    # The directories may be open to all: it is the files that keep the secrets.
    for folder in (target.directory, *target.directory.parents):
        folder.chmod(folder.stat().st_mode | READ_AND_ENTER)
    command = ["python3", "-c", READ_ALL, target.directory]
    ended = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE)
    return ended.stdout.decode(errors="replace")


def test_another_local_account_sees_the_processes(seen_by_another_account):
    """So the next test looks at the command line of the server, too."""
    assert "nats-server" in seen_by_another_account


def test_another_local_account_cannot_be_the_host(target, seen_by_another_account):
    """Secrets are in files of their owner alone, and in no process list or environment."""
    assert "PRIVATE KEY" not in seen_by_another_account
    for secret in secrets_of_host(target.directory / "server"):
        assert secret not in seen_by_another_account


def secrets_of_host(server):
    """The passwords of a host, and the lines of its private keys without their first and last."""
    secrets = [path.read_text() for path in server.glob("*.secret")]
    for name in ("host.key", "server.key", "authority.key"):
        _, *lines, _ = (server / name).read_text().splitlines()
        secrets += lines
    return secrets


HOST_PINGS = 1.2  # seconds in which the host pings every site at least once


def refused_to_north(target, attack):
    """What the server refuses while a client with the key of site north runs `attack(client)`.

    In the course of it the host asks site south, which has to go on as ever.
    """
    errors = []

    async def attacking():
        client = await connect(target.server, tls_of(target), errors)
        await attack(client)
        await client.flush()
        assert target.ask(sites=["south"]) == []
        await asyncio.sleep(HOST_PINGS)
        await client.close()

    asyncio.run(attacking())
    return " ".join(errors)


def test_a_site_hears_nothing_of_another_site_or_of_the_server(target):
    subjects = (">", "*", "_INBOX.>", "$SYS.>")  # everything; answers to the host; the server's own
    heard = []

    async def hear(message):
        heard.append(message)

    async def subscribe(client):
        for subject in subjects:
            await client.subscribe(subject, cb=hear)

    refusals = refused_to_north(target, subscribe)
    assert refusals.count("for subscription to") == len(subjects)
    assert heard == []


def test_a_site_can_ask_neither_sites_nor_the_server(target):
    subjects = ("ask", "_INBOX.x.y", "$SYS.REQ.SERVER.PING", "site-south.ask")
    false_question = b"x"
    questions_before = len(target.questions["north"])

    async def publish(client):
        for subject in subjects:
            await client.publish(subject, false_question, reply="_INBOX.x.y")

    refusals = refused_to_north(target, publish)
    assert refusals.count("for publish to") == len(subjects)
    assert len(target.questions["north"]) == questions_before
    assert false_question not in target.questions["south"]


def give_all_rights(node, account):
    """Let the users of an account of a server publish and hear everything."""
    path = node / "accounts.conf"
    text = path.read_text()
    accounts = json.loads(text[text.index("{") :])
    for user in accounts[account]["users"]:
        user["permissions"] = {"publish": ">", "subscribe": ">"}
    path.write_text(f'"accounts": {json.dumps(accounts)}')


def test_a_server_in_the_hands_of_another_can_neither_ask_nor_answer(tmp_path):
    """It has the right certificate, but questions and answers lack signatures."""
    with_nats()
    server = write_gateways(tmp_path, ["north"], port=free_port())
    give_all_rights(node_of(tmp_path), "site-north")
    questions, errors = [], []

    async def false_answer(message):
        await message.respond(wire.REPLY.pack(wire.ANSWER, 1) + bytes(80))

    def handle(question):
        questions.append(question)
        return question

    async def attack(post):
        site = await connect(server, GatewaySite.load(tmp_path / "north").tls())
        put = wire.REQUEST.pack(wire.PUT, bytes(16), 0, 1)
        reply = await site.request("ask", put + b"\0false question", timeout=5)
        assert reply.data == wire.REPLY.pack(wire.LOST, 0)
        await site.subscribe("ask", cb=false_answer)
        await site.flush()
        while not any("without the signature of north" in error for error in errors):
            post.send("north", b"question")
            await asyncio.sleep(0.2)
            errors.extend(reply.error for reply in post.receive(0.0))
        await site.close()

    with (
        NatsServer(node_of(tmp_path)),
        serve_site(tmp_path / "north", handle),
        NatsPost(tmp_path) as post,
    ):
        wait_for(lambda: post.sites()["north"], PATIENCE)
        asyncio.run(asyncio.wait_for(attack(post), PATIENCE))
    assert set(questions) <= {b"question"}


NO_TLS = b'{"max_payload":1048576,"headers":true}'
GREETINGS = [NO_TLS, b"x" * 100_000, b"[]", b"", b'{"connect_urls":5,"tls_required":true}']


@contextmanager
def false_server(port, greeting):
    """A server that greets its clients so and answers pings; yields the bytes that it receives."""
    received = bytearray()

    def serve(door):
        with suppress(OSError):  # the door is closed
            while True:
                connection, _ = door.accept()
                with connection, suppress(OSError):
                    connection.settimeout(2)
                    connection.sendall(b"INFO " + greeting + b"\r\n")
                    while data := connection.recv(4096):
                        received.extend(data)
                        if b"PING" in data:
                            connection.sendall(b"PONG\r\n")

    with socket.create_server(("127.0.0.1", port)) as door:
        threading.Thread(target=serve, args=(door,), daemon=True).start()
        yield received
        door.shutdown(socket.SHUT_RDWR)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("greeting", GREETINGS, ids=lambda greeting: greeting[:20].decode())
def test_a_false_server_gets_nothing_and_its_clients_recover(tmp_path, greeting):
    with_nats()
    server = write_gateways(tmp_path, ["north"], port=free_port())
    states = []

    with ExitStack() as stack:
        with false_server(server.port, greeting) as received:
            stack.enter_context(serve_site(tmp_path / "north", bytes, states.append))
            post = stack.enter_context(NatsPost(tmp_path))
            wait_for(lambda: states and "not connected yet" not in post.condition(), PATIENCE)
            if greeting == NO_TLS:
                wait_for(lambda: "the other end wants no TLS" in states, PATIENCE)
                wait_for(lambda: "the other end wants no TLS" in post.condition(), PATIENCE)
        stack.enter_context(NatsServer(node_of(tmp_path)))
        wait_for(lambda: post.sites()["north"], PATIENCE)

    assert b"SUB" not in received, "nobody subscribes without TLS"


def test_a_site_that_answers_slowly_takes_a_bounded_part_of_the_host(target):
    """Four of its questions are under way at a time; the host gives up any more at once."""
    target.may_answer.clear()
    for number in range(6):
        target.post.send("north", b"%d" % number)

    given_up = receive(target.post, count=2)
    target.may_answer.set()
    answered = receive(target.post, count=4)

    assert [reply.error for reply in given_up] == 2 * ["it answers too slowly"]
    assert {reply.error for reply in answered} == {""}


def receive(post, count):
    """Wait for so many replies."""
    replies = []

    def has_all():
        replies.extend(post.receive(1.0))
        return len(replies) >= count

    wait_for(has_all, PATIENCE)
    return replies


def test_a_question_that_a_server_repeats_takes_a_bounded_part_of_the_site(tmp_path):
    with_nats()
    server = write_gateways(tmp_path, ["north"], port=free_port())
    host_key = private_key(server.directory / "host.key")
    sealed = wire.seal_question(host_key, "north", bytes(16), b"question")
    may_answer, questions = threading.Event(), []

    def slow(question):
        questions.append(question)
        may_answer.wait(PATIENCE)
        return question

    async def repeat():
        host = await connect(server, server.tls("north"))
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
        wait_for(lambda: post.sites()["north"], PATIENCE)
        asyncio.run(repeat())
        may_answer.set()
        wait_for(lambda: post.sites()["north"], PATIENCE)
    assert 1 <= len(questions) <= 64  # of 1,000; it keeps as many as its threads and queue hold


def test_a_site_has_few_subscriptions(target):
    async def attack():
        north = await connect(target.server, tls_of(target))
        for _ in range(10):
            await north.subscribe("ask")
        with suppress(Error):
            await north.flush(2)
        while not north.is_closed:
            await asyncio.sleep(0.05)
        return str(north.last_error)

    error = asyncio.run(asyncio.wait_for(attack(), PATIENCE))
    assert "maximum subscriptions exceeded" in error


def test_the_log_of_a_server_does_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "_LARGEST_LOG", 10_000)
    with attacked(tmp_path) as fleet:
        (server,) = fleet.nodes
        log, process_id = server.node / "nats.log", server.pid
        for _ in range(300):  # each is a line or two of the log
            with socket.create_connection(("127.0.0.1", fleet.server.port), PATIENCE) as connection:
                connection.sendall(b"nonsense\r\n")
        wait_for(lambda: log.stat().st_size < 10_000, PATIENCE)
        assert server.pid == process_id


def test_a_site_cannot_fill_the_memory_of_the_server_or_keep_others_out(target):
    """It opens many connections, each with a message that does not end, and reads nothing."""
    (server,) = target.nodes
    memory_before, tls = memory(server.pid), tls_of(target)
    endless = b'CONNECT {"protocol":1}\r\nSUB ask 1\r\nPUB x 65536\r\n' + bytes(65_000)
    rest_of_message, too_long_a_message = bytes(536), b"\r\nPUB x 200000000\r\n"

    with ExitStack() as stack:
        held = [stack.enter_context(tls_connection(target, tls)) for _ in range(40)]
        for connection in held:
            with suppress(OSError):  # one too many
                connection.sendall(endless)
        time.sleep(1.0)
        alive = [connection for connection in held if not ends(connection, 0.05)]
        assert 1 <= len(alive) <= 8  # the limit of connections of a site
        assert target.ask(os.urandom(200_000), sites=["south"]) == []

        first_alive, *_ = alive
        first_alive.sendall(rest_of_message + too_long_a_message)
        assert ends(first_alive)
        assert memory(server.pid, "VmHWM") - memory_before < 64 << 20  # bytes


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


@contextmanager
def tls_connection(fleet, tls):
    with socket.create_connection(("127.0.0.1", fleet.server.port), PATIENCE) as plain:
        plain.recv(4096)  # INFO
        with tls.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            yield connection


def test_many_silent_connections_stop_no_site(target):
    """Sites are asked and a new one connects while 1,040 connections say nothing."""
    (server,) = target.nodes
    memory_before = memory(server.pid)
    need_files(2500)  # two for each connection, in this process and in the server's
    add_site(target, "late")
    address = ("127.0.0.1", target.server.port)

    with ExitStack() as stack:
        silent = []
        for _ in range(1040):
            silent.append(stack.enter_context(socket.create_connection(address, PATIENCE)))
        began = time.monotonic()
        assert target.ask() == []
        with serve_site(target.directory / "late", bytes):
            wait_for(lambda: target.post.sites().get("late"), PATIENCE)
        # The server ends a connection that has said nothing for longer.
        assert time.monotonic() - began < 4.0, "they were still open"
        assert memory(server.pid) - memory_before < 100 << 20  # bytes
        for connection in silent:
            wait_until_closed(connection)
    remove_site(target.directory, "late")


def add_site(fleet, name):
    """Add a site, and wait until the server knows it."""
    (server,) = fleet.nodes
    log = server.node / "nats.log"
    reloads_before = log.read_text().count("Reloaded server")
    write_gateways(fleet.directory, [name])
    wait_for(lambda: log.read_text().count("Reloaded server") > reloads_before, PATIENCE)


def wait_until_closed(connection):
    with suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def need_files(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            pytest.skip(f"this process may open {hard} files only")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


# Commands


class Command:
    """A command in a directory, whose JSON objects can be read one by one."""

    def __init__(self, stack, directory, *words):
        command = [*TERN, "gateway", *words, "--json"]
        process = warm.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
        self.process = stack.enter_context(process)
        stack.callback(self.process.kill)

    def wait_for(self, name, value):
        """Wait until the command prints an object whose member `name` is `value`; return it."""
        end = time.monotonic() + PATIENCE
        while True:
            line = json.loads(self.process.stdout.readline())
            if line.get(name) == value:
                return line
            assert time.monotonic() < end, line


def test_an_end_is_not_kept_by_a_server_that_hangs(tmp_path):
    with attacked(tmp_path) as fleet, ExitStack() as stack:
        process_id = fleet.nodes[0].pid
        stack.callback(os.kill, process_id, signal.SIGCONT)
        with NatsPost(tmp_path, beside=True) as post:
            wait_for(lambda: all(post.sites().values()), PATIENCE)
            os.kill(process_id, signal.SIGSTOP)
            began = time.monotonic()
        assert time.monotonic() - began < 10.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("number", "address"),
    [(signal.SIGINT, "::1"), (signal.SIGTERM, "::1"), (signal.SIGKILL, "127.0.0.1")],
)
def test_commands_connect_carry_a_question_and_end(tmp_path, number, address):
    """A server that outlives its killed command is replaced by the next one."""
    with_nats()
    sites = tmp_path / "sites"
    init = ["gateway", "init", str(sites), "--site", "north", "--port", str(free_port())]
    if ":" in address and has_ipv6():
        init += ["--host", "::1"]
    assert main(init) == OK
    node = node_of(sites)

    with ExitStack() as stack:
        options = ("--fleet", "simulated:10", "--data", "iris")
        gateway = Command(stack, tmp_path, "run", "sites/north", *options)
        server = Command(stack, tmp_path, "server", "sites")
        server.wait_for("condition", "")
        gateway.wait_for("message", "north: connected")
        status = rig.tern("gateway", "status", "sites", "--json", cwd=tmp_path).json
        assert status["condition"] == ""
        assert status["sites"] == {"north": True}
        assert devices_of_site(sites, "north") == 10

        process_id = running(node)
        for command in (gateway, server):
            command.process.send_signal(number)
        for command in (gateway, server):
            assert command.process.wait(PATIENCE) in (OK, TERMINATED, -signal.SIGKILL)
        if number == signal.SIGKILL:
            with NatsServer(node):
                wait_for(lambda: running(node) not in (None, process_id), PATIENCE)
        else:
            wait_for(lambda: running(node) is None, PATIENCE)


def devices_of_site(sites, name):
    """How many devices a site has, as its gateway says."""
    with NatsPost(sites) as post:
        wait_for(lambda: not post.condition() and post.sites().get(name), PATIENCE)
        post.send(name, Hello().encode())
        (reply,) = wait_for(lambda: post.receive(1.0), PATIENCE)
    return len(decode(reply.payload).devices)


def has_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_server_that_cannot_run_says_why(tmp_path):
    with_nats()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        write_gateways(tmp_path, ["north"], port=taken.getsockname()[1])
        with NatsServer(node_of(tmp_path)) as server:
            wait_for(lambda: "address already in use" in server.condition, PATIENCE)
