"""The files of tern gateway init, and the signed parts in which a question and its answer cross
NATS servers.
"""

import asyncio
import json
import ssl
import stat
from unittest.mock import Mock

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from terngateway.nats import directories
from terngateway.nats import exchange as wire
from terngateway.nats.directories import (
    GatewaySite,
    registered,
    remove_site,
    sites_of,
    write_gateways,
)
from terngateway.nats.line import next_pause
from terngateway.nats.server import node_of
from terngateway.nats.site import _SiteEnd
from terngateway.post import LARGEST, MOST_TEXT, check_site, handled, text_of
from ternhost.errors import USAGE, RefusedError, StorageError, UsageError
from ternhost.reach import certificates
from ternhost.reach.certificates import names_of, private_key

EXCHANGE = bytes(range(wire.ID))
CLUSTER = ("n1.local", "n2.local", "n3.local")


def contents(directory):
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def accounts(node):
    text = (node / "accounts.conf").read_text()
    return json.loads(text[text.index("{") :])


def test_a_server_and_its_sites_are_written(tmp_path):
    server = write_gateways(tmp_path, ["north", "south"], ["gateways.example.org"], port=9000)
    assert (server.hosts, server.port) == (("gateways.example.org",), 9000)
    assert (server.address, server.here) == ("0.0.0.0", ("tls://127.0.0.1:9000",))
    assert sites_of(tmp_path) == ["north", "south"]
    site = GatewaySite.load(tmp_path / "north")
    assert (site.name, site.there) == ("north", ("tls://gateways.example.org:9000",))
    of_server = directories.public_key(tmp_path / "server" / "sites" / "north.pem")
    assert private_key(tmp_path / "north" / "site.key").public_key() == of_server
    assert site.tls().verify_mode == server.tls("north").verify_mode == ssl.CERT_REQUIRED
    assert (
        node_of(tmp_path)
        == tmp_path / "nodes" / "gateways.example.org"
        == node_of(node_of(tmp_path))
    )
    assert accounts(node_of(tmp_path)).keys() == {"tern", "site-north", "site-south"}


def test_a_site_is_registered_for_ids(tmp_path):
    write_gateways(tmp_path, ["north:1-500", "south"])
    assert registered(tmp_path) == registered(tmp_path / "server") == {"north": range(1, 501)}
    key = (tmp_path / "north" / "site.key").read_bytes()
    write_gateways(tmp_path, ["north:1-600", "south:601"])
    assert registered(tmp_path) == {"north": range(1, 601), "south": range(601, 602)}
    assert (tmp_path / "north" / "site.key").read_bytes() == key
    with pytest.raises(UsageError, match="north and west would both have device 600"):
        write_gateways(tmp_path, ["west:600-700"])
    assert sites_of(tmp_path) == ["north", "south"]
    before = accounts(node_of(tmp_path))["site-north"]
    remove_site(tmp_path, "north")  # leaves its ids to others
    assert "site-north" not in accounts(node_of(tmp_path))
    write_gateways(tmp_path, ["new-north:1-500"])
    write_gateways(tmp_path, ["north"])
    assert registered(tmp_path) == {"new-north": range(1, 501), "south": range(601, 602)}
    now = accounts(node_of(tmp_path))["site-north"]
    assert now["users"][0] != before["users"][0], "the old key stays out"
    with pytest.raises(UsageError, match="no site 'east'"):
        remove_site(tmp_path, "east")
    for wrong in ("x:", "x:5-", "x:5-4", "x:0-4", "x:1-4294967295", "x:1-2-3"):
        with pytest.raises(UsageError):
            write_gateways(tmp_path, [wrong])
    (tmp_path / "server" / "sites" / "south.json").write_text("{}")
    with pytest.raises(StorageError, match=r"south\.json"):
        registered(tmp_path)


def test_only_the_owner_reads_secrets_and_the_server_has_no_key_of_a_site(tmp_path):
    write_gateways(tmp_path, ["north"], CLUSTER)
    secret = [
        f"server/{name}" for name in ("authority.key", "server.key", "host.key", "routes.secret")
    ]
    secret += [f"nodes/{name}/{file}" for name in CLUSTER for file in ("server.key", "nats.conf")]
    for name in (*secret, "north/site.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    for directory in ("server", "north", "nodes/n1.local"):
        assert stat.S_IMODE((tmp_path / directory).stat().st_mode) == 0o700
    keys = {path for path, data in contents(tmp_path).items() if b"PRIVATE KEY" in data}
    assert {str(path) for path in keys} == {
        *("server/authority.key", "server/server.key", "server/host.key", "north/site.key"),
        *(f"nodes/{name}/server.key" for name in CLUSTER),
    }
    of_nodes = {path.name for path in contents(tmp_path / "nodes")}
    assert not of_nodes & {"authority.key", "host.key", "site.key"}
    names = sorted(path.name for path in (tmp_path / "north").iterdir())
    assert names == ["authority.pem", "gateway.json", "host.pem", "site.key", "site.pem"]


def test_another_site_changes_nothing_else(tmp_path):
    write_gateways(tmp_path, ["north"], port=9000)
    before = contents(tmp_path)
    for directory, options, message in (
        (tmp_path, {"port": 9001}, "written with --port 9000, not 9001"),
        (
            tmp_path,
            {"hosts": ["elsewhere.org"]},
            "written with --name localhost, not elsewhere.org",
        ),
        (tmp_path / "server", {}, f"is the directory of a server; name the one above: {tmp_path}"),
    ):
        with pytest.raises(UsageError) as refused:
            write_gateways(directory, ["south"], **options)
        assert message in f"{refused.value.message}; {refused.value.hint}"
        assert contents(tmp_path) == before
    write_gateways(tmp_path, ["north", "south"])
    after = contents(tmp_path)
    changed = {str(path) for path in before if after[path] != before[path]}
    assert changed == {"nodes/localhost/accounts.conf", "server/accounts.conf"}
    new = {str(path) for path in after.keys() - before.keys()}
    files = ("authority.pem", "gateway.json", "host.pem", "site.key", "site.pem")
    assert new == {
        "server/sites/south.pem",
        "server/hosts/south.pem",
        *(f"south/{file}" for file in files),
    }


@pytest.mark.parametrize(
    ("host", "address", "listens", "here"),
    [
        (None, None, "127.0.0.1", "127.0.0.1:4222"),
        ("::1", None, "::1", "[::1]:4222"),
        ("fd00::7", None, "::", "[::1]:4222"),
        ("gateways.example.org", "::", "::", "[::1]:4222"),
        ("gateways.example.org", "fd00::7", "fd00::7", "[fd00::7]:4222"),
    ],
)
def test_a_server_listens_where_its_name_says(tmp_path, host, address, listens, here):
    server = write_gateways(tmp_path, ["north"], [host] if host else [], address)
    assert server.address == listens
    assert server.here == (f"tls://{here}",)
    conf = (node_of(tmp_path) / "nats.conf").read_text()
    assert f'listen: "{f"[{listens}]" if ":" in listens else listens}:4222"' in conf
    assert "cluster" not in conf
    names = names_of(server.directory / "server.pem")
    assert {host or "localhost", here.rpartition(":")[0].strip("[]")} <= set(names)


def test_a_cluster_has_a_directory_for_each_node(tmp_path, tern):
    server = write_gateways(tmp_path, ["north"], CLUSTER)
    assert (
        server.here
        == GatewaySite.load(tmp_path / "north").there
        == tuple(f"tls://{name}:4222" for name in CLUSTER)
    )
    for name, node in server.nodes().items():
        assert f'server_name: "{name}"' in (node / "nats.conf").read_text()
        assert "@n3.local:4223" in (node / "nats.conf").read_text()
        assert accounts(node) == accounts(tmp_path / "nodes" / "n1.local")
    with pytest.raises(UsageError, match="has 3 NATS servers"):
        node_of(tmp_path)
    assert set(CLUSTER) <= set(names_of(tmp_path / "nodes" / "n1.local" / "server.pem"))
    (tmp_path / "nodes" / "n3.local").rename(tmp_path / "elsewhere")  # to its own machine
    added = tern("gateway", "init", str(tmp_path), "--site", "south").out
    assert "site-south" in accounts(tmp_path / "nodes" / "n1.local")
    assert "site-south" not in accounts(tmp_path / "elsewhere")
    assert "site-south" in accounts(tmp_path / "server")
    copy = f"copy {tmp_path}/server/accounts.conf into the directory of n3.local"
    assert copy in added
    assert copy in tern("gateway", "remove", str(tmp_path), "south").out


def test_addresses_of_a_cluster_may_be_behind_another(tmp_path):
    names = ("203.0.113.1", "203.0.113.2", "203.0.113.3")
    for place, address, listens in (("a", None, "203.0.113.1"), ("b", "0.0.0.0", "0.0.0.0")):
        server = write_gateways(tmp_path / place, ["north"], names, address)
        assert (
            f'listen: "{listens}:4222"' in (server.nodes()["203.0.113.1"] / "nats.conf").read_text()
        )


def test_an_interrupted_init_is_completed_and_an_interrupted_removal_keeps_no_key(
    tmp_path, monkeypatch
):
    fails = Mock(side_effect=OSError(28, "full"))
    monkeypatch.setattr(certificates, "_write_authority", fails)
    with pytest.raises(StorageError, match="full"):
        write_gateways(tmp_path, ["north"])
    monkeypatch.undo()
    write_gateways(tmp_path, ["north", "south"])
    assert GatewaySite.load(tmp_path / "north").tls()
    monkeypatch.setattr(directories, "write_file", fails)
    with pytest.raises(StorageError, match="full"):
        remove_site(tmp_path, "north")
    monkeypatch.undo()
    assert sites_of(tmp_path) == ["north", "south"], "nothing was removed, and it can be said again"
    monkeypatch.setattr(directories.Path, "unlink", fails)
    with pytest.raises(StorageError, match="full"):
        remove_site(tmp_path, "north")
    monkeypatch.undo()
    assert "site-north" not in accounts(node_of(tmp_path))


def test_a_damaged_key_is_named_and_a_missing_one_of_an_authority_is_not_replaced(tmp_path):
    server = write_gateways(tmp_path, ["north"]).directory
    (server / "host.key").write_text("junk")
    with pytest.raises(StorageError, match=r"host\.key is not a private key"):
        private_key(server / "host.key")
    (server / "authority.key").unlink()
    with pytest.raises(StorageError, match=r"authority\.key: No such file"):
        certificates.write_certificates(server, ["elsewhere.org"])
    assert not (server / "authority.key").exists(), "nobody would trust what it signs"


@pytest.mark.parametrize(
    "words",
    [
        ("--site", "server"),
        ("--site", "nodes"),
        ("--site", "a/b"),
        ("--site", "a:1-5", "--site", "a:7-9"),
        ("--site", "a:1-5", "--site", "b:5-9"),
        ("--site", "north", "--name", "no host"),
        ("--site", "north", "--name", ".".join(["subdomain"] * 8)),
        ("--site", "north", "--name", "10:0"),
        ("--site", "north", "--name", "fe80::1"),
        ("--site", "north", "--name", "n1.local", "--name", "n2.local"),
        ("--site", "north", "--name", "n1.local", "--name", "n1.local", "--name", "n2.local"),
        ("--site", "north", "--address", "somewhere"),
        ("--site", "north", "--port", "0"),
        ("--site", "north", "--port", "65536"),
    ],
)
def test_options_that_make_no_server_are_refused_and_write_nothing(words, here, tern):
    refused = tern("gateway", "init", "sites", *words, "--json", code=USAGE).json
    assert refused["hint"] is not None or "--port" in words
    assert not list(here.rglob("*")), "the next init would take it up"


def test_init_and_status_print_json(here, tern):
    printed = tern("gateway", "init", "sites", "--site", "north", "--site", "south", "--json").json
    assert printed["sites"] == printed["new"] == ["north", "south"]
    assert printed["address"] == "127.0.0.1"
    printed = tern("gateway", "init", "sites", "--site", "west", "--json").json
    assert (printed["new"], printed["sites"]) == (["west"], ["north", "south", "west"])
    removed = tern("gateway", "remove", "sites", "west", "--json").json
    assert removed == {"removed": "west", "sites": ["north", "south"]}
    printed = tern("gateway", "status", "sites/north", "--json").json
    assert (printed["site"], printed["runs"], printed["connection"]) == ("north", False, None)
    tern("gateway", "status", "nowhere", code=USAGE)
    with pytest.raises(UsageError) as refused:
        directories.Server.load(here)
    assert "tern gateway init" in refused.value.hint


@pytest.mark.parametrize(
    "name", ["", "server", "nodes", "../etc", "-x", "a b", "x" * 33, "north\n"]
)
def test_invalid_names_of_sites_are_refused(name):
    with pytest.raises(UsageError):
        check_site(name)


# Questions and answers


@pytest.fixture(scope="module")
def keys():
    return [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]


@pytest.mark.parametrize("failed", [False, True])
def test_an_answer_is_bound_to_its_site_and_its_question(keys, failed):
    key, other_key = keys
    sealed = wire.seal_answer(key, EXCHANGE, b"question", failed, b"answer")
    assert wire.open_answer(key.public_key(), EXCHANGE, b"question", sealed) == (failed, b"answer")
    for public, exchange, question, data in (
        (other_key.public_key(), EXCHANGE, b"question", sealed),
        (key.public_key(), EXCHANGE, b"another question", sealed),
        (key.public_key(), bytes(wire.ID), b"question", sealed),  # an answer cannot be replayed
        (key.public_key(), EXCHANGE, b"question", bytes((not failed,)) + sealed[1:]),
        (key.public_key(), EXCHANGE, b"question", sealed[:-1]),
        (key.public_key(), EXCHANGE, b"question", sealed + b"x"),
        (key.public_key(), EXCHANGE, b"question", b""),
        (key.public_key(), EXCHANGE, b"question", b"\0\xff" + bytes(9)),
        (
            key.public_key(),
            EXCHANGE,
            b"question",
            wire.seal_question(key, "north", EXCHANGE, b"answer"),
        ),
    ):
        with pytest.raises(ValueError, match="not signed"):
            wire.open_answer(public, exchange, question, data)


def test_a_question_is_bound_to_its_host_its_site_and_its_exchange(keys):
    key, other_key = keys
    sealed = wire.seal_question(key, "north", EXCHANGE, b"question")
    assert wire.open_question(key.public_key(), "north", EXCHANGE, sealed) == b"question"
    for public, site, exchange, data in (
        (other_key.public_key(), "north", EXCHANGE, sealed),
        (key.public_key(), "south", EXCHANGE, sealed),
        (key.public_key(), "north", bytes(wire.ID), sealed),
        (key.public_key(), "north", EXCHANGE, sealed + b"x"),
        (key.public_key(), "north", EXCHANGE, b""),
    ):
        with pytest.raises(ValueError, match="not signed"):
            wire.open_question(public, site, exchange, data)


def split(reply):
    """Status, number of parts and part of a reply."""
    return (*wire.REPLY.unpack_from(reply), reply[wire.REPLY.size :])


@pytest.fixture
def end(tmp_path):
    """`ask(*requests)`: the replies of a site to these requests of its host; `asked`: the questions
    it has handled.
    """
    write_gateways(tmp_path, ["north"])
    asked = []

    def handler(question):
        asked.append(question)
        return question[::-1] * (LARGEST if question == b"long" else 1)

    end = _SiteEnd(GatewaySite.load(tmp_path / "north"), handler, lambda state: None)
    host = private_key(tmp_path / "server" / "host.key")

    def ask(*requests):
        async def replies():
            return [split(await end._reply(request)) for request in requests]

        return asyncio.run(replies())

    def put(question, key=host, exchange=EXCHANGE):
        parts = wire.parts_of(wire.seal_question(key, "north", exchange, question))
        return [
            wire.REQUEST.pack(wire.PUT, exchange, n, len(parts)) + part
            for n, part in enumerate(parts)
        ]

    key = directories.public_key(tmp_path / "server" / "sites" / "north.pem")
    ask.asked, ask.put, ask.key = asked, put, key
    return ask


def test_a_long_question_and_its_answer_cross_in_parts(end):
    question = bytes(range(256)) * 1000
    *going_on, (status, count, answer) = end(*end.put(question))
    assert going_on == [(wire.GO_ON, 0, b"")] * 3
    assert (status, count) == (wire.ANSWER, 4)
    parts = [wire.REQUEST.pack(wire.GET, EXCHANGE, number, 4) for number in (1, 2, 3)]
    for status, _, part in end(*parts):
        assert status == wire.ANSWER
        answer += part
    assert wire.open_answer(end.key, EXCHANGE, question, answer) == (False, question[::-1])
    assert end(parts[-1]) == [(wire.LOST, 0, b"")], "it was passed on, and is forgotten"
    assert max(map(len, end.put(question))) == wire.MOST_PAYLOAD


def test_what_the_host_has_not_signed_is_not_handled(end, keys):
    good = end.put(b"x" * 100_000)
    strange = (
        b"",
        bytes(wire.REQUEST.size - 1),
        bytes([9]) + good[0][1:],
        end.put(b"question", keys[1])[0],
        good[1],
        wire.REQUEST.pack(wire.PUT, EXCHANGE, 0, 0),
        wire.REQUEST.pack(wire.PUT, EXCHANGE, 0, wire.MOST_PARTS + 1),
        wire.REQUEST.pack(wire.GET, EXCHANGE, 0, 1),
    )
    for request in strange:
        assert end(request) == [(wire.LOST, 0, b"")]
    assert [status for status, *_ in end(good[0], good[0], good[1])] == [
        wire.GO_ON,
        wire.GO_ON,
        wire.ANSWER,
    ]
    assert end(good[0], good[1][:-1])[1][0] == wire.LOST
    assert len(end.asked) == 1


def test_a_site_keeps_few_parts_and_no_answer_that_is_too_long(end):
    names = [bytes([number]) * wire.ID for number in range(9)]
    firsts, lasts = zip(*(end.put(b"x" * 100_000, exchange=name) for name in names), strict=True)
    assert {status for status, *_ in end(*firsts)} == {wire.GO_ON}
    assert [status for status, *_ in end(*lasts)] == [wire.LOST] * 5 + [wire.ANSWER] * 4
    ((_, count, answer),) = end(*end.put(b"long"))
    assert count == 1
    failed, text = wire.open_answer(end.key, EXCHANGE, b"long", answer)
    assert failed
    assert b"its answer of 268435456 bytes is more than 67108864" in text


def test_a_reply_that_is_cut_off_too_long_or_unexpected_is_refused():
    for data, why in (
        (b"", "cut off"),
        (bytes(wire.REPLY.size - 1), "cut off"),
        (wire.REPLY.pack(wire.ANSWER, wire.MOST_PARTS + 1), "longer than"),
        (wire.REPLY.pack(wire.LOST, 0), "begun anew"),
        (wire.REPLY.pack(wire.GO_ON, 0), "begun anew"),
    ):
        with pytest.raises(ValueError, match=why):
            wire.read_reply(data, wire.ANSWER)
    assert wire.read_reply(wire.REPLY.pack(wire.ANSWER, 2) + b"part", wire.ANSWER) == (2, b"part")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_gateway_reports_refusals_and_its_own_faults():
    failed, text = handled(Mock(side_effect=RefusedError("é" * 1_000_000)), b"")
    assert failed
    assert text_of(text) == "é" * MOST_TEXT
    assert handled(lambda payload: {}[payload], b"x") == (
        True,
        b"a fault of the gateway: KeyError: b'x'",
    )
    assert handled(bytes, b"x") == (False, b"x")


def test_the_pause_before_another_attempt_grows_to_a_limit():
    pauses = [0.0]
    for _ in range(9):
        pauses.append(next_pause(pauses[-1], 0.0))
    assert pauses[1:3] == [0.2, 0.4]
    assert pauses[-1] == pauses[-2] == 5.0
    assert next_pause(5.0, 60.0) == 0.2
