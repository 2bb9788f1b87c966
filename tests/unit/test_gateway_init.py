"""Gateways over Flower: the files of tern gateway init, the seal of an answer, the guard of the SuperLink, and how both
ends of the connection report failures.
"""

import asyncio
import json
import socket
import ssl
import stat
from base64 import b64encode
from datetime import timedelta

import pytest

pytest.importorskip("flwr")

import httpx
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from flwr.proto.control_pb2 import ListNodesResponse
from flwr.proto.fleet_pb2 import ActivateNodeResponse
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from ternhost.cli import main
from ternhost.errors import USAGE, UsageError
from ternhost.reach.certificates import names_of
from ternhost.reach.gateway.flower.control import HEADER, Control, app_archive
from ternhost.reach.gateway.flower.files import (
    GatewaySite,
    Server,
    environment,
    public_keys,
    registered,
    sites_of,
    write_gateways,
)
from ternhost.reach.gateway.flower.guard import Connection, Guard
from ternhost.reach.gateway.flower.node import SiteNode
from ternhost.reach.gateway.flower.sealed import seal, unseal

NONCE = bytes(16)


def contents(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_server_and_its_sites_are_written(tmp_path):
    server = write_gateways(tmp_path, ["north", "south"], "gateways.example.org", port=9000)
    assert (server.host, server.port) == ("gateways.example.org", 9000)
    assert (server.address, server.here) == ("0.0.0.0", "127.0.0.1:9000")
    assert sites_of(tmp_path) == ["north", "south"]
    site = GatewaySite.load(tmp_path / "north")
    assert (site.name, site.host, site.port) == ("north", "gateways.example.org", 9000)
    private = load_ssh_private_key((tmp_path / "north" / "node.key").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "server" / "sites" / "north.pub").read_bytes())
    assert private.public_key() == public
    ssl.create_default_context(cafile=tmp_path / "north" / "authority.pem")


def test_a_site_is_registered_for_ids(tmp_path):
    write_gateways(tmp_path, ["north:1-500", "south"])
    assert registered(tmp_path) == registered(tmp_path / "server") == {"north": range(1, 501)}
    key = (tmp_path / "north" / "node.key").read_bytes()
    write_gateways(tmp_path, ["north:1-600", "south:601"])
    assert registered(tmp_path) == {"north": range(1, 601), "south": range(601, 602)}
    assert (tmp_path / "north" / "node.key").read_bytes() == key
    with pytest.raises(UsageError, match="north and west would both have device 600"):
        write_gateways(tmp_path, ["west:600-700"])
    assert sites_of(tmp_path) == ["north", "south"]
    (tmp_path / "server" / "sites" / "north.pub").unlink()  # a site that is removed leaves its ids to others
    write_gateways(tmp_path, ["new-north:1-500"])
    write_gateways(tmp_path, ["north"])
    assert registered(tmp_path) == {"new-north": range(1, 501), "south": range(601, 602)}
    for wrong in ("x:", "x:5-", "x:5-4", "x:0-4", "x:1-4294967295", "x:1-2-3"):
        with pytest.raises(UsageError):
            write_gateways(tmp_path, [wrong])


def test_only_the_owner_reads_secrets_and_the_server_has_no_key_of_a_site(tmp_path):
    write_gateways(tmp_path, ["north"])
    secret = ["server/authority.key", "server/server.key", "server/control.secret", "server/executor.secret"]
    for name in (*secret, "north/node.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    for directory in ("server", "north"):
        assert stat.S_IMODE((tmp_path / directory).stat().st_mode) == 0o700
    assert not [path for path, data in contents(tmp_path / "server").items() if b"OPENSSH" in data]
    names = sorted(path.name for path in (tmp_path / "north").iterdir())
    assert names == ["authority.pem", "gateway.json", "node.key"]


def test_another_site_changes_nothing_else(tmp_path):
    write_gateways(tmp_path, ["north"], port=9000)
    before = contents(tmp_path)
    for directory, options, message in (
        (tmp_path, {"port": 9001}, "written with --port 9000, not 9001"),
        (tmp_path / "server", {}, f"is the directory of a server; name the one above: {tmp_path}"),
    ):
        with pytest.raises(UsageError) as refused:
            write_gateways(directory, ["south"], **options)
        assert message in f"{refused.value.message}; {refused.value.hint}"
        assert contents(tmp_path) == before
    write_gateways(tmp_path, ["north", "south"])
    after = contents(tmp_path)
    assert {path: after[path] for path in before} == before
    new = {str(path) for path in after.keys() - before.keys()}
    assert new == {"server/sites/south.pub", "south/authority.pem", "south/gateway.json", "south/node.key"}


@pytest.mark.parametrize(
    ("host", "address", "listens", "here"),
    [
        (None, None, "127.0.0.1", "127.0.0.1:9092"),
        ("::1", None, "::1", "[::1]:9092"),
        ("fd00::7", None, "::", "[::1]:9092"),
        ("gateways.example.org", "::", "::", "[::1]:9092"),
        ("gateways.example.org", "fd00::7", "fd00::7", "[fd00::7]:9092"),
    ],
)
def test_a_server_listens_where_its_name_says(tmp_path, host, address, listens, here):
    server = write_gateways(tmp_path, ["north"], host, address)
    assert (server.address, server.here) == (listens, here)
    names = names_of(server.directory / "server.pem")
    assert {host or "localhost", httpx.URL(f"https://{here}").host} <= set(names)


@pytest.mark.parametrize(
    "words",
    [
        ("--site", "server"),
        ("--site", "a/b"),
        ("--site", "a:1-5", "--site", "a:7-9"),
        ("--site", "a:1-5", "--site", "b:5-9"),
        ("--site", "north", "--name", "no host"),
        ("--site", "north", "--name", ".".join(["subdomain"] * 8)),
        ("--site", "north", "--name", "10:0"),
        ("--site", "north", "--name", "fe80::1"),
        ("--site", "north", "--address", "somewhere"),
        ("--site", "north", "--port", "0"),
        ("--site", "north", "--port", "65536"),
    ],
)
def test_options_that_make_no_server_are_refused_and_write_nothing(words, here, capsys):
    assert main(["gateway", "init", "sites", *words, "--json"]) == USAGE
    assert json.loads(capsys.readouterr().out)["hint"] is not None or "--port" in words
    assert not list(here.rglob("*")), "the next init would take it up"


def test_init_and_status_print_json(here, capsys):
    assert main(["gateway", "init", "sites", "--site", "north", "--site", "south", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["sites"] == printed["new"] == ["north", "south"]
    assert printed["address"] == "127.0.0.1"
    assert main(["gateway", "init", "sites", "--site", "west", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["new"] == ["west"]
    assert printed["sites"] == ["north", "south", "west"]
    assert main(["gateway", "status", "sites/north", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["site"] == "north"
    assert printed["runs"] is False
    assert main(["gateway", "status", "nowhere"]) == USAGE
    with pytest.raises(UsageError) as refused:
        Server.load(here)
    assert "tern gateway init" in refused.value.hint


def test_flower_calls_nobody_and_keeps_its_files_in_the_directory(tmp_path):
    variables = environment(tmp_path)
    calls = ("TELEMETRY_ENABLED", "DISABLE_UPDATE_CHECK", "DISABLE_RUNTIME_DEPENDENCY_INSTALLATION")
    assert [variables[f"FLWR_{name}"] for name in calls] == ["0", "1", "1"]
    assert variables["FLWR_HOME"].startswith(str(tmp_path))
    assert app_archive() == app_archive(), "the same bytes each time"


@pytest.mark.parametrize("failed", [False, True])
def test_an_answer_is_bound_to_its_site_and_its_question(failed):
    key, other_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    question = NONCE + b"question"
    sealed = seal(key, question, failed, b"answer")
    assert unseal(key.public_key(), question, sealed) == (failed, b"answer")
    for public_key, request, data in (
        (other_key.public_key(), question, sealed),
        (key.public_key(), NONCE + b"another question", sealed),
        (key.public_key(), b"1" + question[1:], sealed),  # with another nonce: an answer cannot be replayed
        (key.public_key(), question, bytes((not failed,)) + sealed[1:]),
        (key.public_key(), question, sealed[:-1]),
        (key.public_key(), question, sealed + b"x"),
        (key.public_key(), question, b""),
        (key.public_key(), question, b"\0\xff" + bytes(9)),
    ):
        with pytest.raises(ValueError, match=r"not signed|too short"):
            unseal(public_key, request, data)


# The guard of the SuperLink

PUSH, AWAY, PUBLIC, HERE = "/v1/fleet/push-object", "10.0.0.9", "10.0.0.7", "127.0.0.1"


def signed(directory, site, key=None, age=0):
    """The headers by which a site's node proves its identity, signed `age` s ago; key: instead of its own."""
    node_key = load_ssh_private_key((directory / site / "node.key").read_bytes(), None)
    time = (now() - timedelta(seconds=age)).isoformat().encode()
    return [
        (b"flwr-public-key", b64encode(public_key_to_bytes((key or node_key).public_key()))),
        (b"flwr-timestamp", time),
        (b"flwr-signature", b64encode(sign_message(key or node_key, time))),
    ]


async def flower(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


def guard_of(directory, app=flower, **options):
    return Guard(app, "secret", directory / "server" / "sites", **options)


def answer(guard, headers, path=PUSH, client=AWAY, server=PUBLIC, receive=None):
    """The message that begins the guard's response to a request; Flower's own would have the status 200."""
    sent = []

    async def send(message):
        sent.append(message)

    ends = {"client": (client, 5), "server": (server, 9092)}
    scope = {"type": "http", "path": path, "headers": headers, **ends}
    asyncio.run(guard(scope, receive, send))
    return sent[0]


def status(*request):
    return answer(*request)["status"]


@pytest.mark.parametrize(
    ("path", "client", "server", "secret", "expected"),
    [
        ("/v1/fleet/pull-messages", AWAY, PUBLIC, "", 401),
        ("/v1/fleet/pull-messages", HERE, HERE, "secret", 401),
        ("/v1/control/start-run", AWAY, PUBLIC, "secret", 403),
        ("/v1/control/start-run", HERE, HERE, "", 403),
        ("/v1/control/start-run", HERE, HERE, "Secret", 403),
        ("/v1/control/start-run", HERE, HERE, "secret", 200),
        ("/v1/control/start-run", PUBLIC, PUBLIC, "secret", 200),
        ("/v1/runtime/acquire-task", AWAY, PUBLIC, "", 403),
        ("/v1/runtime/acquire-task", HERE, HERE, "", 200),
        ("/v1/fleet/../control/start-run", AWAY, PUBLIC, "", 403),
        ("/docs", AWAY, PUBLIC, "", 403),
        ("/", HERE, HERE, "", 403),
    ],
)
def test_the_guard_opens_only_the_protocol_of_sites_to_others(
    tmp_path, path, client, server, secret, expected
):
    headers = [(HEADER.encode(), secret.encode())] if secret else []
    assert status(guard_of(tmp_path), headers, path, client, server) == expected


def test_the_guard_admits_holders_of_a_sites_key_and_reads_nothing_from_others(tmp_path):
    write_gateways(tmp_path, ["north", "south"])
    guard, north, south = guard_of(tmp_path), signed(tmp_path, "north"), signed(tmp_path, "south")
    for good in (north, south, signed(tmp_path, "north", age=200)):
        assert status(guard, good) == 200
    wrong = [signed(tmp_path, "north", age=age) for age in (400, -60)]
    for at, (name, _) in enumerate(north):
        wrong += [north[:at] + north[at + 1 :], [*north[:at], (name, b"x\xff"), *north[at + 1 :]]]
    wrong.append([south[0], *north[1:]])  # another's key
    wrong.append(signed(tmp_path, "north", ec.generate_private_key(ec.SECP384R1())))
    for headers in wrong:
        assert status(guard, headers) == 401
    for length in (b"1" * 12, b"-1"):
        assert status(guard, [(b"content-length", length), *north]) == 413
    assert status(guard, [(b"transfer-encoding", b"chunked"), *north]) == 413


def test_the_guard_notices_at_once_when_sites_are_added_and_removed(tmp_path):
    write_gateways(tmp_path, ["north"])
    write_gateways(tmp_path / "other", ["south"])
    keys, guard = tmp_path / "server" / "sites", guard_of(tmp_path)

    def let_in():
        return [status(guard, signed(*site)) for site in ((tmp_path, "north"), (tmp_path / "other", "south"))]

    assert let_in() == [200, 401]
    (keys / "south.pub").write_bytes((tmp_path / "other" / "server" / "sites" / "south.pub").read_bytes())
    assert let_in() == [200, 200]
    (keys / "south.pub").unlink()
    ed25519_key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
    for written, message in (
        (ed25519_key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "has a key of another kind"),
        (b"ssh-strange AAAA", ": "),
        (b"ecdsa-sha2-nistp384 A", ": "),
    ):
        (keys / "strange.pub").write_bytes(written)
        known, wrong = public_keys(keys)
        assert (list(known), list(wrong)) == (["north"], ["strange"])
        assert "strange.pub" in wrong["strange"]
        assert message in wrong["strange"]
        assert let_in() == [200, 401]


def test_the_guard_gives_up_on_a_body_that_does_not_arrive(tmp_path):
    write_gateways(tmp_path, ["north"])

    async def reads(scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        await flower(scope, receive, send)

    async def receive():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    guard = guard_of(tmp_path, reads, patience=0.1)
    response = answer(guard, signed(tmp_path, "north"), receive=receive)
    assert response["status"] == 408
    assert (b"connection", b"close") in response["headers"]


def test_a_connection_without_a_request_is_closed():
    class Hasty(Connection):
        patience = 0.3

    async def received(sent):
        """The bytes that the server sends until it closes, to a client that sends `sent` and no more."""
        config = uvicorn.Config(flower, http=Hasty, ws="none", log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        door = socket.create_server(("127.0.0.1", 0))
        await server.startup(sockets=[door])
        reader, writer = await asyncio.open_connection(*door.getsockname())
        writer.write(sent)
        try:
            return await asyncio.wait_for(reader.read(), 60)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            await server.shutdown(sockets=[door])

    assert asyncio.run(received(b"")) == b""
    assert asyncio.run(received(b"POST / HTTP/1.1\r\nHost: ")) == b""


# How the two ends of the connection over Flower report failures


def test_a_site_that_cannot_be_registered_does_not_hinder_the_others(tmp_path):
    class Client:
        """Stands for a SuperLink that refuses some sites."""

        def __init__(self):
            self.nodes = {}

        def ListNodes(self, request):
            return ListNodesResponse(nodes_info=[NodeInfo(public_key=key) for key in self.nodes.values()])

        def RegisterNode(self, request):
            if request.name in ("b", "d"):
                post = httpx.Request("POST", "https://localhost")
                httpx.Response(412, text="no", request=post).raise_for_status()
            self.nodes[request.name] = request.public_key

    server = write_gateways(tmp_path, ["e", "a", "b", "d", "c"])
    (server.directory / "sites" / "broken.pub").write_bytes(b"x")
    with Control(server) as control:
        control._client = client = Client()
        client.close = lambda: None
        control.register()
        assert list(client.nodes) == ["a", "c", "e"]
        connected, wrong = control.register()
        assert connected == dict.fromkeys("abcde", False)
        assert sorted(wrong) == ["b", "broken", "d"]
        assert "refuses: 412 no" in wrong["b"]


def test_a_node_reports_a_problem_once_per_disconnection(tmp_path, capsys):
    class Client:
        """Stands for a SuperLink that ends, again and again."""

        there = False

        def DeactivateNode(self, request):
            pass

        def ActivateNode(self, request):
            if not self.there:
                raise httpx.ConnectError("refused")
            return ActivateNodeResponse(node_id=1)

        def SendNodeHeartbeat(self, request):
            raise httpx.ConnectError("refused")

    write_gateways(tmp_path, ["north"])
    node = SiteNode(GatewaySite.load(tmp_path / "north"))
    node._client = Client()
    for node._client.there in (False, False, True, False, True):
        node.attempt()
    problem = "the SuperLink does not answer: refused"
    assert capsys.readouterr().out.splitlines() == [problem, *2 * ["north: connected", problem]]
