"""A cluster of NATS servers as the broker: rights as with Mosquitto, new passwords, and nodes that
are killed.
"""

from dataclasses import replace

import brokers
import pytest
import rig
from harness import cluster, sites
from harness.raw_client import board_client
from harness.waiting import wait_for

from tern import wire
from ternhost.provision import keys
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.mosquitto import free_port
from ternhost.store.store import Store
from terntools.emulators.debian import NEXT

PATIENCE = 60.0  # s for a message that must come


@pytest.fixture(scope="module", params=["bookworm", NEXT])
def release(request):
    """The release of Debian that the servers are from: the oldest, or the newest."""
    brokers.fetched("nats-server", request.param)
    return request.param


@pytest.fixture(scope="module")
def place(tmp_path_factory, release):
    """The directory of a running cluster for the devices 1 to 3."""
    directory = tmp_path_factory.mktemp("cluster")
    with Store(directory / "store.sqlite") as store:
        keys.add(store, [1, 2, 3])
    words = "--for", "nats", "--port", free_port(), "--store", "store.sqlite"
    rig.tern("broker", "config", "my-cluster", *words, cwd=directory, code=0)
    access = Access.load(directory / "my-cluster" / HOST)
    with cluster.Nodes(directory / "my-cluster", access, release):
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


PACKET_NUMBER_BYTES = 2  # with which a payload at QoS 1 begins
OTHERS_TOPICS = ["tern/up/00000001", "tern/hello/00000001", "tern/round", "tern/down/00000001"]


def received(client, count):
    """Wait for so many messages; return the payload of each topic."""
    messages = {}
    for topic, payload in client.messages(PATIENCE, count):
        messages[topic] = payload[PACKET_NUMBER_BYTES:]
    return messages


def test_host_and_board_may_subscribe_to_their_own_topics_alone(connect):
    of_host = ["tern/up/+", "tern/hello/+"]
    of_board = ["tern/down/00000001", "tern/round", "tern/model", "tern/model/#"]
    of_others = ["tern/down/00000002", "tern/up/+", "tern/#", "#"]
    of_nats = ["$MQTT/#", "$MQTT/sub/#", "$JS/#"]

    assert granted(connect(), *of_host, "tern/#", "tern/down/+") == of_host
    assert granted(connect(1, node=1), *of_board, *of_others, *of_nats) == of_board


def test_a_round_reaches_boards_at_other_nodes_until_it_is_withdrawn(connect):
    longest = bytes(wire.MAX_FRAME)
    host, board = connect(), connect(1, node=1)
    board.subscribe("tern/round")
    host.publish("tern/round", longest, retain=True)
    late_board = connect(2, node=2)
    late_board.subscribe("tern/round")

    for client in (board, late_board):
        assert received(client, 1) == {"tern/round": longest}

    host.publish("tern/round", b"", retain=True)
    later_board = connect(3, node=0)
    later_board.subscribe("tern/round")
    assert later_board.arrived() == []


def test_a_board_cannot_publish_for_others_neither_by_its_will(connect):
    host, board = connect(), connect(1, node=1)
    for topic in ("tern/up/+", "tern/hello/+"):
        host.subscribe(topic)
    for topic in ("tern/round", "tern/down/00000001"):
        board.subscribe(topic)
    thief = connect(2, node=2)

    for topic in [*OTHERS_TOPICS, "other"]:
        connect(3, node=2, will=(topic, b"forged")).close()
        thief.publish(topic, b"forged", retain=True)
    thief.publish("tern/up/00000002", b"its own")

    assert received(host, 1) == {"tern/up/00000002": b"its own"}
    assert board.arrived() == []


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
    assert received(again, 1) == {"tern/down/00000001": b"again"}


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
