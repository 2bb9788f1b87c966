"""A cluster of NATS servers as the broker: rights as with Mosquitto, new passwords, and nodes that
are killed.
"""

from dataclasses import replace

import brokers
import pytest
import rig
from harness import cluster, sites
from harness.raw_client import board_client, wait_for

from tern import wire
from ternhost.provision import keys
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.mosquitto import free_port
from ternhost.store.store import Store

PATIENCE = 60.0  # s for a message that must come


@pytest.fixture(scope="module", autouse=True)
def nats():
    brokers.fetched("nats-server")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The directory of a running cluster for the devices 1 to 3, which Home Assistant may see."""
    directory = tmp_path_factory.mktemp("cluster")
    with Store(directory / "store.sqlite") as store:
        keys.add(store, [1, 2, 3])
    words = "--for", "nats", "--port", free_port(), "--store", "store.sqlite", "--home-assistant"
    rig.tern("broker", "config", "my-cluster", *words, cwd=directory, code=0)
    with cluster.Nodes(directory / "my-cluster", Access.load(directory / "my-cluster" / HOST)):
        yield directory / "my-cluster"


@pytest.fixture
def connect(place):
    """`connect(device, node)`: a client with that device's password, or the host's (0)."""
    access, clients = Access.load(place / HOST), []

    def connected(device=0, node=0, **options):
        if device:
            with Store(access.store, beside=True) as store:
                at = replace(access, host=access.hosts[node])
                clients.append(board_client(at, store.keys(), device, **options))
        else:
            clients.append(cluster.client_at(access, node))
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


def granted(client, *topics):
    """The topics of these that the broker lets a client subscribe to."""
    answers = {topic: client.subscribe(topic) for topic in topics}
    assert set(answers.values()) <= {1, 128}
    return [topic for topic, answer in answers.items() if answer == 1]


def test_rights_are_those_of_mosquitto_at_every_node(connect):
    host = connect()
    answers = ["tern/up/+", "tern/hello/+"]
    assert granted(host, *answers, "tern/#", "tern/down/+") == answers
    board = connect(1, node=1, will=("tern/hello/00000001", b""))
    mine = ["tern/down/00000001", "tern/round", "tern/model"]
    others = ["tern/down/00000002", "tern/up/+", "tern/#", "#", "$MQTT/#", "$MQTT/sub/#", "$JS/#"]
    assert granted(board, *mine, *others) == mine
    board.publish("tern/hello/00000001", b"hello", retain=True)
    longest = bytes(wire.MAX_FRAME)
    host.publish("tern/round", longest, retain=True)
    late = connect(2, node=2)
    late.subscribe("tern/round")
    for client in (board, late):
        assert [body[-len(longest) :] for _, body in client.messages(PATIENCE, 1)] == [longest]
    thief = connect(2, node=2)
    for topic in (
        "tern/up/00000001",
        "tern/hello/00000001",
        "tern/round",
        "tern/down/00000001",
        "other",
    ):
        connect(3, node=2, will=(topic, b"forged")).close()
        thief.publish(topic, b"forged", retain=True)
    thief.publish("tern/up/00000002", b"own")
    assert [(topic, body[2:]) for topic, body in host.messages(PATIENCE, 2)] == [
        ("tern/hello/00000001", b"hello"),
        ("tern/up/00000002", b"own"),
    ]
    assert board.arrived() == []
    board.close()
    assert host.messages(PATIENCE, 1)[0][0] == "tern/hello/00000001", "its will"
    host.publish("tern/round", b"", retain=True)
    late = connect(3, node=0)
    late.subscribe("tern/round")
    assert late.arrived() == []


def test_a_board_can_end_another_connection_but_gets_none_of_its_messages(connect):
    host, victim = connect(), connect(1, node=1)
    for topic in ("tern/down/00000001", "tern/round"):
        victim.subscribe(topic)
    thief = connect(2, node=2, client_id="00000001", clean=False)  # would take over the session
    host.publish("tern/down/00000001", b"a question")
    assert thief.messages(2.0) == []
    with pytest.raises(ConnectionError):
        victim.arrived()
    again = connect(1, node=1)
    again.subscribe("tern/down/00000001")
    host.publish("tern/down/00000001", b"again")
    assert [body[2:] for _, body in again.messages(PATIENCE, 1)] == [b"again"]


def test_new_passwords_reach_the_nodes_and_disconnect_nobody(place, connect):
    access = Access.load(place / HOST)
    host = connect()
    # A node may refuse device 1 for a second: it has just ended another connection of its own.
    board = connect(2, node=2)
    with Store(access.store) as store:
        keys.add(store, [9])
    assert connect(9).code == 5
    result = rig.tern("broker", "config", place, code=0)
    assert "the running broker has taken the new passwords" in result.out
    wait_for(lambda: connect(9, node=2).code == 0)
    assert host.arrived() == board.arrived() == []


@pytest.mark.exhaustive
@pytest.mark.slow
def test_every_node_is_killed_in_turn_and_no_report_is_lost_or_counted_twice(tmp_path):
    summary = sites.weather(tmp_path, 3, boards=3, clients=30, kind=cluster.Cluster)
    assert (summary["differences"], summary["killed"]) == ([], 3)
    assert summary["rounds"] >= 10
