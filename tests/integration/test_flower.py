"""A Post over Flower: a SuperLink with TLS, and sites with keys. It goes on whatever is killed."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import httpx
import rig
import warm
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.date import now
from flwr.supercore.inflatable import inflatable_protobuf_utils as objects
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import push_objects
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode import node_auth_http_interceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from harness.gateways import processes
from harness.raw_client import wait_for
from warm import TERN

from ternhost.cli import main
from ternhost.errors import TERMINATED, RefusedError, UsageError
from ternhost.reach.broker.mosquitto import free_port
from ternhost.reach.gateway.flower import FlowerPost, node, serve_site, superlink
from ternhost.reach.gateway.flower.control import Control
from ternhost.reach.gateway.flower.files import GatewaySite, Server, write_gateways
from ternhost.reach.gateway.flower.serverapp import content
from ternhost.reach.gateway.flower.serving import SuperLink
from ternhost.reach.gateway.messages import Hello, Here, decode

LATE = 120.0  # seconds: six tests at a time, on a busy machine
AGAIN = 5.0  # seconds after which a question is asked again, as the driver does
SITES = ("north", "south")

pytestmark = pytest.mark.slow


class Fleet:
    """A server with two sites in this process; only Flower has processes of its own."""

    def __init__(self, directory, stack):
        self.directory = directory
        self.server = write_gateways(directory, SITES, port=free_port())
        self.link = stack.enter_context(superlink(self.server))
        self.asked = {site: [] for site in SITES}
        self.hold = threading.Event()  # while it is clear, no site answers
        self.hold.set()
        enter = stack.enter_context
        self.nodes = {site: enter(serve_site(directory / site, self.handler(site))) for site in SITES}
        self.post = stack.enter_context(FlowerPost(directory))

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

    def ask(self, question=b"question"):
        """Ask all sites, and those again that have not answered; return the errors on the way."""
        answers, errors, sent = {}, [], 0.0
        end = time.monotonic() + LATE
        while len(answers) < len(SITES):
            now = time.monotonic()
            assert now < end, (answers, errors, self.post.condition())
            if now > sent + AGAIN:
                sent = now
                for site in SITES:
                    if site not in answers:
                        self.post.send(site, question)
            for reply in self.post.receive(0.5):
                if reply.payload is None:
                    errors.append(reply)
                else:
                    assert reply.payload == reply.site.encode() + b" has " + question
                    answers[reply.site] = reply.payload
        return errors

    def server_app(self):
        """The process id of the ServerApp; None: there is none, or several."""
        pids = processes("flwr-serverapp", f":{self.server.port} ")
        return pids[0] if len(pids) == 1 else None


def wait_for_log(directory, word):
    """Wait until the log of a site's node has this word."""
    log = directory / "node.log"
    wait_for(lambda: log.exists() and word in log.read_text().lower(), LATE)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("flower")
        yield Fleet(directory, stack)
    assert not processes(str(directory))


@pytest.fixture
def fleet(running):
    running.ready()
    yield running
    running.hold.set()


def test_answers_and_errors_carry_the_names_of_their_sites(fleet):
    assert fleet.post.sites() == dict.fromkeys(SITES, True)
    assert fleet.ask(os.urandom(100_000)) == []
    fleet.post.send("south", b"refuse")
    (reply,) = wait_for(lambda: fleet.post.receive(1.0), LATE)
    assert (reply.site, reply.payload, reply.error) == ("south", None, "its budget is spent")
    with pytest.raises(UsageError, match="served already"), FlowerPost(fleet.directory):
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


@pytest.mark.parametrize(
    "killed",
    ["server app", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("node", "superlink"))],
)
def test_the_fleet_goes_on_after_a_kill(fleet, killed):
    fleet.hold.clear()
    fleet.asked["north"].clear()
    fleet.post.send("north", b"before")
    wait_for(lambda: fleet.asked["north"], LATE)  # a question is under way
    victims = {
        "node": lambda: fleet.nodes["north"].pid,
        "superlink": lambda: fleet.link.process.pid,
        "server app": fleet.server_app,
    }
    victim = wait_for(victims[killed], LATE)
    os.kill(victim, signal.SIGKILL)
    if killed == "server app":
        errors = wait_for(lambda: [reply.error for reply in fleet.post.receive(1.0) if reply.error], LATE)
        assert {*errors} == {"lost: Flower's ServerApp has ended"}
    fleet.hold.set()
    fleet.post.receive(0.0)
    fleet.ask(b"after " + killed.encode())
    assert wait_for(victims[killed], LATE) != victim


def test_a_stranger_and_a_server_of_another_authority_are_refused(fleet, tmp_path, capsys):
    write_gateways(tmp_path, ["north"], port=fleet.server.port)
    node.SiteNode(GatewaySite.load(tmp_path / "north")).attempt()
    assert "certificate" in capsys.readouterr().out.lower()
    shutil.copy(fleet.directory / "north" / "authority.pem", tmp_path / "north")
    node.SiteNode(GatewaySite.load(tmp_path / "north")).attempt()
    output = capsys.readouterr().out
    assert "the server has no site with this key" in output
    assert "connected" not in output
    fleet.ask()


@pytest.mark.parametrize(("ahead", "error"), [(12, "ahead of the server's by 1[2-9] s"), (-400, "behind")])
def test_a_site_with_a_wrong_clock_learns_by_how_much(fleet, ahead, error, monkeypatch, capsys):
    def wrong():
        return now() + timedelta(seconds=ahead)

    monkeypatch.setattr(node, "now", wrong)
    monkeypatch.setattr(node_auth_http_interceptor, "now", wrong)
    node.SiteNode(GatewaySite.load(fleet.directory / "north")).attempt()
    assert re.search(f"refuses: 401: the clock of this site is {error}", capsys.readouterr().out)


def test_sites_can_be_added_and_removed_while_the_superlink_runs(fleet, capsys):
    write_gateways(fleet.directory, ["west"])
    key = fleet.directory / "server" / "sites" / "west.pub"
    with serve_site(fleet.directory / "west", bytes):
        wait_for(lambda: fleet.post.sites().get("west"), LATE)

        def ask(site):
            fleet.post.send(site, b"you again")
            return fleet.post.receive(5.0)

        fleet.post.send("west", b"you")
        (reply,) = wait_for(lambda: fleet.post.receive(1.0), LATE)
        assert (reply.site, reply.payload) == ("west", b"you")
        written = key.read_bytes()
        key.unlink()
        wait_for(lambda: "west" not in fleet.link.sites, LATE)
        wait_for_log(fleet.directory / "west", "refuses")
        key.write_bytes(written)
        wait_for(lambda: [reply for reply in ask("west") if reply.payload == b"you again"], LATE)
        key.write_bytes(b"broken")
        wait_for(lambda: fleet.link.condition.startswith("west is not admitted: "), LATE)
        assert main(["gateway", "status", str(fleet.directory)]) == 0
        assert "west is not admitted: " in capsys.readouterr().out
        write_gateways(fleet.directory, ["young"])
        wait_for(lambda: "young" in fleet.link.sites, LATE)  # a broken key keeps no other out
        key.unlink()
        (key.parent / "young.pub").unlink()
    wait_for(lambda: not fleet.link.condition, LATE)
    fleet.ask()


def test_control_of_the_superlink_and_the_server_apps_role_need_a_secret(fleet):
    where = f"https://{fleet.server.here}/v1"
    trusted = ssl.create_default_context(cafile=fleet.directory / "server" / "authority.pem")
    for path in ("start-run", "list-runs", "register-node"):
        assert httpx.post(f"{where}/control/{path}", content=b"", verify=trusted).status_code == 403
    authority = (fleet.directory / "server" / "authority.pem").read_bytes()
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    with RuntimeHttpClient.from_server_address(fleet.server.here, False, authority, [version]) as client:
        with pytest.raises(httpx.HTTPStatusError) as refused:
            client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
        assert refused.value.response.status_code in (401, 403)


def test_a_client_without_a_key_cannot_fill_the_memory_of_the_superlink(fleet):
    trusted = ssl.create_default_context(cafile=fleet.directory / "server" / "authority.pem")
    host, _, port = fleet.server.here.rpartition(":")
    length = 80 << 20
    before = peak(fleet.link.process.pid)
    with (
        socket.create_connection((host, int(port)), LATE) as plain,
        trusted.wrap_socket(plain, server_hostname=host) as connection,
    ):
        head = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 401")
        with suppress(OSError):  # the server closes the connection
            for _ in range(length >> 16):
                connection.sendall(bytes(1 << 16))
    assert peak(fleet.link.process.pid) - before < length // 4
    fleet.ask()


def peak(pid):
    """The most bytes of memory that a process has held."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


def client_of(fleet, site):
    """A client of the SuperLink that has the key of a site, and the public part of that key."""
    key = load_ssh_private_key((fleet.directory / site / "node.key").read_bytes(), None)
    authority = (fleet.directory / site / "authority.pem").read_bytes()
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    signed = [version, NodeAuthHttpInterceptor(key, key.public_key())]
    client = FleetHttpClient.from_server_address(fleet.server.here, False, authority, signed)
    return client, public_key_to_bytes(key.public_key())


def test_a_site_cannot_answer_in_the_name_of_another(fleet):
    """Flower accepts an answer of north to the question for east, but it lacks the signature of east."""
    write_gateways(fleet.directory, ["east"])
    registered = fleet.directory / "server" / "sites" / "east.pub"
    wait_for(lambda: "east" in fleet.link.sites, LATE)
    north, _ = client_of(fleet, "north")
    east, public = client_of(fleet, "east")
    with north, east:
        place = east.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=600.0)).node_id
        wait_for(lambda: fleet.post.sites().get("east"), LATE)
        fleet.post.send("east", b"question")
        pull = PullMessagesRequest(node=Node(node_id=place))
        (question,) = wait_for(lambda: east.PullMessages(pull).messages_list, LATE)
        forged = make_message(
            Metadata(
                run_id=question.metadata.run_id,
                message_id="",
                src_node_id=place,
                dst_node_id=question.metadata.src_node_id,
                reply_to_message_id=question.metadata.message_id,
                group_id="",
                created_at=time.time(),
                ttl=60.0,
                message_type="query",
            ),
            content=content(b"\0\0east has lied"),
        )
        forged.metadata.__dict__["_message_id"] = forged.object_id
        node = Node(node_id=int((fleet.directory / "north" / "node.id").read_text()))  # as north's key says
        with no_object_id_recompute():
            answer = north.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(remove_content_from_message(forged))],
                    message_object_trees=[get_object_tree(forged)],
                    clientapp_runtime_list=[0.0],
                )
            )
            push = objects.make_push_object_fn_protobuf(
                north.PushObject, node, question.metadata.run_id, answer.session_id
            )
            push_objects(get_all_nested_objects(forged), push, object_ids_to_push=set(answer.objects_to_push))
    (reply,) = wait_for(lambda: fleet.post.receive(1.0), LATE)
    registered.unlink()
    assert reply.site == "east"
    assert reply.payload is None
    assert "without the signature of east" in reply.error


def ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_any_error_about_the_superlink_becomes_a_condition(tmp_path):
    settings = write_gateways(tmp_path, ["north"], port=free_port()).directory / "server.json"
    settings.write_text(settings.read_text().replace("127.0.0.1", "a:b"))  # not valid in a URL
    with FlowerPost(tmp_path) as post:
        wait_for(lambda: "InvalidURL" in post.condition(), LATE)
    server = Server.load(tmp_path)
    with Control(server) as control:
        running = SuperLink(server, None, control)
        thread = threading.Thread(target=running.look)
        thread.start()
        try:
            wait_for(lambda: "InvalidURL" in running.condition, LATE)
            assert thread.is_alive()
        finally:
            running.end()
            thread.join()


class Command:
    """A command in a directory, whose JSON objects can be read one by one."""

    def __init__(self, stack, directory, *words):
        command = [*TERN, "gateway", *words, "--json"]
        self.process = stack.enter_context(
            warm.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(self.process.kill)

    def next_line(self):
        return json.loads(self.process.stdout.readline())

    def wait_for(self, name, value):
        """Wait until the command prints an object whose member `name` is `value`."""
        end = time.monotonic() + LATE
        while (line := self.next_line())[name] != value:
            assert time.monotonic() < end, line


@pytest.mark.parametrize(
    ("number", "address"),
    [
        (signal.SIGINT, "::"),
        pytest.param(signal.SIGTERM, "::1", marks=pytest.mark.exhaustive),
        (signal.SIGKILL, "127.0.0.1"),
    ],
)
def test_the_superlink_and_the_node_of_commands_end_with_them(tmp_path, number, address):
    """Before that they connect, also over IPv6, and carry a question."""
    sites, port = tmp_path / "sites", free_port()
    addresses = ["--name", "::1", "--address", address] if ":" in address and ipv6() else []
    words = ["--site", "north", *addresses, "--port", str(port)]
    assert main(["gateway", "init", str(sites), *words]) == 0
    (sites / "north" / "node.log").write_text("of an earlier start\n")
    with ExitStack() as stack:
        options = ("--fleet", "simulated:10", "--dataset", "iris")
        gateway = Command(stack, tmp_path, "run", "sites/north", *options)
        ready, state = gateway.next_line(), gateway.next_line()
        assert (ready["event"], state["event"]) == ("ready", "node")
        assert "10 devices" in ready["message"]
        assert "the SuperLink does not answer" in state["message"]
        link = Command(stack, tmp_path, "superlink", "sites")
        link.wait_for("sites", {"north": True})
        gateway.wait_for("message", "north: connected")  # perhaps after a refusal while the SuperLink starts
        if number != signal.SIGKILL:
            status = rig.tern("gateway", "status", "sites", "--json", cwd=tmp_path).json
            assert (status["condition"], status["sites"]) == ("", {"north": True})
            with FlowerPost(sites) as post:
                wait_for(lambda: not post.condition() and post.sites().get("north"), LATE)
                post.send("north", Hello().encode())
                (reply,) = wait_for(lambda: post.receive(1.0), LATE)
            here = decode(reply.payload)
            assert isinstance(here, Here)
            assert len(here.devices) == 10
        for command in (gateway, link):
            command.process.send_signal(number)
        if number == signal.SIGINT:
            gateway.wait_for("message", "stopped; the next start resumes an open round")
        for command in (gateway, link):
            assert command.process.wait(LATE) in (0, TERMINATED, -signal.SIGKILL)
        wait_for(lambda: not processes(str(tmp_path)) and not processes(f":{port} "), LATE)
