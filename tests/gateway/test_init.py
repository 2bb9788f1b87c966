"""The files of tern gateway init, and the signed parts in which a question and its answer cross."""

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
from terngateway.nats.server import node_of
from terngateway.nats.site import _SiteEnd
from terngateway.post import LARGEST, handled
from ternhost.errors import USAGE, RefusedError, StorageError, UsageError
from ternhost.reach import certificates
from ternhost.reach.certificates import names_of, private_key

CLUSTER = ("n1.local", "n2.local", "n3.local")


def contents(directory):
    """The bytes of each file, by its path below the directory."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def accounts(node):
    text = (node / "accounts.conf").read_text()
    return json.loads(text[text.index("{") :])


def test_a_host_and_a_site_know_each_other_by_certificates_and_keys(tmp_path):
    server = write_gateways(tmp_path, ["north"])
    site = GatewaySite.load(tmp_path / "north")

    assert site.tls().verify_mode == ssl.CERT_REQUIRED
    assert server.tls("north").verify_mode == ssl.CERT_REQUIRED
    own_key = private_key(tmp_path / "north" / "site.key").public_key()
    assert directories.public_key(server.directory / "sites" / "north.pem") == own_key


def test_a_site_is_registered_for_ids_that_may_grow(tmp_path):
    write_gateways(tmp_path, ["north:1-500", "south"])
    assert registered(tmp_path) == {"north": range(1, 501)}
    write_gateways(tmp_path, ["north:1-600", "south:601"])
    assert registered(tmp_path) == {"north": range(1, 601), "south": range(601, 602)}
    with pytest.raises(UsageError, match="north and west would both have device 600"):
        write_gateways(tmp_path, ["west:600-700"])
    assert sites_of(tmp_path) == ["north", "south"]


def test_a_removed_site_leaves_its_ids_to_others_and_its_key_stays_out(tmp_path):
    write_gateways(tmp_path, ["north:1-500"])
    old_users = accounts(node_of(tmp_path))["site-north"]["users"]
    remove_site(tmp_path, "north")
    write_gateways(tmp_path, ["other:1-500", "north"])
    assert registered(tmp_path) == {"other": range(1, 501)}
    assert accounts(node_of(tmp_path))["site-north"]["users"] != old_users
    with pytest.raises(UsageError, match="no site 'east'"):
        remove_site(tmp_path, "east")


def test_only_the_owner_reads_secrets(tmp_path):
    write_gateways(tmp_path, ["north"], CLUSTER)
    for path in tmp_path.rglob("*"):
        is_secret = path.suffix in (".key", ".secret") or path.name == "nats.conf"
        if is_secret:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    for directory in ("server", "north", "nodes/n1.local"):
        assert stat.S_IMODE((tmp_path / directory).stat().st_mode) == 0o700


def test_each_private_key_is_in_one_place(tmp_path):
    write_gateways(tmp_path, ["north"], CLUSTER)
    keys = {path for path, data in contents(tmp_path).items() if b"PRIVATE KEY" in data}
    of_nodes = {f"nodes/{name}/server.key" for name in CLUSTER}
    of_host = {"server/authority.key", "server/server.key", "server/host.key"}
    assert keys == {"north/site.key"} | of_host | of_nodes


def test_another_site_changes_nothing_else(tmp_path):
    write_gateways(tmp_path, ["north"], port=9000)
    before = contents(tmp_path)

    write_gateways(tmp_path, ["north", "south"])
    after = contents(tmp_path)

    changed = {path for path in before if after[path] != before[path]}
    assert changed == {"nodes/localhost/accounts.conf", "server/accounts.conf"}
    new_at_host = {path for path in after.keys() - before.keys() if not path.startswith("south/")}
    assert new_at_host == {"server/sites/south.pem", "server/hosts/south.pem"}


@pytest.mark.parametrize("options", [{"port": 9001}, {"hosts": ["elsewhere.org"]}], ids=str)
def test_what_contradicts_the_first_init_is_refused_and_writes_nothing(tmp_path, options):
    write_gateways(tmp_path, ["north"], port=9000)
    before = contents(tmp_path)
    with pytest.raises(UsageError):
        write_gateways(tmp_path, ["south"], **options)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("host", "listens", "here"),
    [
        pytest.param(None, "127.0.0.1", "127.0.0.1:4222", id="this machine alone"),
        pytest.param("203.0.113.1", "0.0.0.0", "127.0.0.1:4222", id="IPv4"),
        pytest.param("fd00::7", "[::]", "[::1]:4222", id="IPv6"),
    ],
)
def test_a_server_listens_where_its_name_says(tmp_path, host, listens, here):
    server = write_gateways(tmp_path, ["north"], [host] if host else [])
    assert server.here == (f"tls://{here}",)
    assert f'listen: "{listens}:4222"' in (node_of(tmp_path) / "nats.conf").read_text()
    certified = names_of(server.directory / "server.pem")
    assert {host or "localhost", here.rpartition(":")[0].strip("[]")} <= set(certified)


def test_a_cluster_has_a_directory_for_each_node(tmp_path):
    server = write_gateways(tmp_path, ["north"], CLUSTER)

    urls = ("tls://n1.local:4222", "tls://n2.local:4222", "tls://n3.local:4222")
    assert server.here == urls
    assert GatewaySite.load(tmp_path / "north").there == urls
    for name, node in server.nodes().items():
        configuration = (node / "nats.conf").read_text()
        assert f'server_name: "{name}"' in configuration
        assert "@n3.local:4223" in configuration  # the port at which nodes reach one another
        assert set(CLUSTER) <= set(names_of(node / "server.pem"))
    with pytest.raises(UsageError, match="has 3 NATS servers"):
        node_of(tmp_path)


def test_an_interrupted_init_is_completed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "_write_authority", Mock(side_effect=OSError(28, "full")))
        with pytest.raises(StorageError, match="full"):
            write_gateways(tmp_path, ["north"])
    write_gateways(tmp_path, ["north", "south"])
    assert GatewaySite.load(tmp_path / "north").tls()


@pytest.mark.parametrize(
    ("failing", "keeps_site"),
    [((directories, "write_file"), True), ((directories.Path, "unlink"), False)],
    ids=["before anything is removed", "before its files are removed"],
)
def test_an_interrupted_removal_keeps_no_key_or_the_whole_site(
    tmp_path, monkeypatch, failing, keeps_site
):
    write_gateways(tmp_path, ["north"])
    with monkeypatch.context() as patch:
        patch.setattr(*failing, Mock(side_effect=OSError(28, "full")))
        with pytest.raises(StorageError, match="full"):
            remove_site(tmp_path, "north")
    assert ("site-north" in accounts(node_of(tmp_path))) == keeps_site


def test_a_missing_key_of_an_authority_is_not_replaced(tmp_path):
    """Nobody would trust what another one signs."""
    server = write_gateways(tmp_path, ["north"]).directory
    (server / "authority.key").unlink()
    with pytest.raises(StorageError, match=r"authority\.key"):
        certificates.write_certificates(server, ["elsewhere.org"])
    assert not (server / "authority.key").exists()


@pytest.mark.parametrize(
    "words",
    [
        "--site server",  # a directory of init's own
        "--site ../etc",  # outside the directory
        "--site a:5-4",  # no ids
        "--site a:1-5 --site b:5-9",  # device 5 of two sites
        "--site north --host fe80::1",  # an address that means another machine on each network
        "--site north --host n1.local --host n2.local",  # a cluster of two has no majority
    ],
)
def test_options_that_make_no_server_are_refused_and_write_nothing(words, here, tern):
    tern("gateway", "init", "sites", *words.split(), code=USAGE)
    assert not list(here.rglob("*")), "the next init would take it up"


# Questions and answers

EXCHANGE = bytes(range(wire.ID))
OTHER_EXCHANGE = bytes(wire.ID)


@pytest.fixture(scope="module")
def keys():
    """A key, and another one."""
    return [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]


def test_an_answer_is_bound_to_its_site_and_its_question(keys):
    site_key, other_key = keys
    failed = False
    sealed = wire.seal_answer(site_key, EXCHANGE, b"question", failed, b"answer")

    def open_answer(key=site_key, exchange=EXCHANGE, question=b"question", answer=sealed):
        return wire.open_answer(key.public_key(), exchange, question, answer)

    assert open_answer() == (failed, b"answer")
    for wrong in (
        {"key": other_key},
        {"question": b"another question"},
        {"exchange": OTHER_EXCHANGE},  # an answer cannot be replayed
        {"answer": bytes([True]) + sealed[1:]},  # as if the gateway had failed
        {"answer": sealed[:-1]},
        {"answer": b""},
        {"answer": wire.seal_question(site_key, "north", EXCHANGE, b"answer")},
    ):
        with pytest.raises(ValueError, match="not signed"):
            open_answer(**wrong)


def test_a_question_is_bound_to_its_host_its_site_and_its_exchange(keys):
    host_key, other_key = keys
    sealed = wire.seal_question(host_key, "north", EXCHANGE, b"question")

    def open_question(key=host_key, site="north", exchange=EXCHANGE, question=sealed):
        return wire.open_question(key.public_key(), site, exchange, question)

    assert open_question() == b"question"
    for wrong in (
        {"key": other_key},
        {"site": "south"},
        {"exchange": OTHER_EXCHANGE},
        {"question": sealed + b"x"},
    ):
        with pytest.raises(ValueError, match="not signed"):
            open_question(**wrong)


class SiteEnd:
    """The end of a site, without a NATS server between it and its host."""

    def __init__(self, directory):
        write_gateways(directory, ["north"])
        self.questions = []
        self.key = directories.public_key(directory / "server" / "sites" / "north.pem")
        self._host_key = private_key(directory / "server" / "host.key")
        self._end = _SiteEnd(GatewaySite.load(directory / "north"), self._handle, print)

    def _handle(self, question):
        self.questions.append(question)
        if question == b"long":
            return bytes(LARGEST + 1)
        return question[::-1]

    def replies(self, *requests):
        """(status, number of parts, part) of the reply to each request."""

        async def ask_all():
            return [await self._end._reply(request) for request in requests]

        replies = asyncio.run(ask_all())
        return [(*wire.REPLY.unpack_from(each), each[wire.REPLY.size :]) for each in replies]

    def puts(self, question, key=None, exchange=EXCHANGE):
        """The requests that carry a question."""
        sealed = wire.seal_question(key or self._host_key, "north", exchange, question)
        parts = wire.parts_of(sealed)
        heads = [wire.REQUEST.pack(wire.PUT, exchange, n, len(parts)) for n in range(len(parts))]
        return [head + part for head, part in zip(heads, parts, strict=True)]


@pytest.fixture
def end(tmp_path):
    return SiteEnd(tmp_path)


LOST = (wire.LOST, 0, b"")


def test_a_long_question_and_its_answer_cross_in_parts(end):
    question = bytes(range(256)) * 1000  # four parts of at most 65,536 bytes

    *going_on, (status, count, sealed) = end.replies(*end.puts(question))
    requests_for_the_rest = [
        wire.REQUEST.pack(wire.GET, EXCHANGE, number, 4) for number in (1, 2, 3)
    ]
    for _, _, part in end.replies(*requests_for_the_rest):
        sealed += part

    assert going_on == [(wire.GO_ON, 0, b"")] * 3
    assert (status, count) == (wire.ANSWER, 4)
    failed, answer = wire.open_answer(end.key, EXCHANGE, question, sealed)
    assert not failed
    assert answer == question[::-1]
    assert end.replies(requests_for_the_rest[-1]) == [LOST], "it was passed on, and is forgotten"


def test_what_the_host_has_not_signed_is_not_handled(end, keys):
    first, second = end.puts(b"x" * 100_000)
    (signed_by_another,) = end.puts(b"question", keys[1])

    for strange in (
        b"",
        bytes(wire.REQUEST.size - 1),  # cut off
        bytes([9]) + first[1:],  # of an unknown kind
        signed_by_another,
        second,  # without the first
        wire.REQUEST.pack(wire.PUT, EXCHANGE, 0, 0),  # of no parts
        wire.REQUEST.pack(wire.PUT, EXCHANGE, 0, wire.MOST_PARTS + 1),
        wire.REQUEST.pack(wire.GET, EXCHANGE, 0, 1),  # of an answer that is not there
    ):
        assert end.replies(strange) == [LOST]
    _, after_a_cut_part = end.replies(first, second[:-1])

    assert after_a_cut_part == LOST
    assert end.questions == []


def test_a_part_that_arrives_twice_counts_once(end):
    first, second = end.puts(b"x" * 100_000)
    statuses = [status for status, *_ in end.replies(first, first, second)]
    assert statuses == [wire.GO_ON, wire.GO_ON, wire.ANSWER]


def test_an_answer_that_is_too_long_is_an_error(end):
    ((_, count, answer),) = end.replies(*end.puts(b"long"))
    failed, text = wire.open_answer(end.key, EXCHANGE, b"long", answer)
    assert (count, failed) == (1, True)
    assert f"is more than {LARGEST}".encode() in text


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(bytes(wire.REPLY.size - 1), id="cut off"),
        pytest.param(wire.REPLY.pack(wire.ANSWER, wire.MOST_PARTS + 1), id="too long"),
        pytest.param(wire.REPLY.pack(wire.GO_ON, 0), id="of a question that is not complete"),
    ],
)
def test_a_reply_that_is_no_answer_is_refused(reply):
    with pytest.raises(ValueError, match=r"cut off|longer than|started again"):
        wire.read_reply(reply, wire.ANSWER)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_gateway_reports_refusals_and_its_own_faults():
    refusing = Mock(side_effect=RefusedError("no"))
    faulty = Mock(side_effect=KeyError("x"))

    assert handled(refusing, b"question") == (True, b"no")
    assert handled(faulty, b"question") == (True, b"a fault of the gateway: KeyError: 'x'")
