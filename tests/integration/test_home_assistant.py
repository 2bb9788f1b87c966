"""Home Assistant sees a fleet on its broker, only where that is asked for, and nothing of any board."""

import json
import os
import signal
from dataclasses import replace

import pytest
from harness.raw_client import RawClient, wait_for
from test_mqtt_commands import serve, serving, tern, two_boards  # noqa: F401, a fixture

from ternhost.reach.broker.access import HOME_ASSISTANT, HOST, PUBLISHER, Access
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.broker.notices import Notices
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet

CONFIG, STATE, AVAILABILITY = "home/device/farm_a/config", "farm/a/fleet/state", "farm/a/fleet/availability"


@pytest.fixture(scope="module")
def place(tmp_path_factory, micropython):
    """(the directory of a broker that lets Home Assistant see the fleet, the store, directories of two boards)."""
    path, boards = two_boards(tmp_path_factory.mktemp("home"), micropython)
    place = path.parent / "broker"
    words = ("--port", free_port(), "--prefix", "farm/a", "--home-assistant", "home", "--json")
    tern("broker", "config", place, "--store", path, *words)
    attach(boards, place, path)
    return place, path, boards


def seen(access):
    """What the broker keeps and lets this user read: topic -> payload."""
    client = RawClient(access, access.user, access.password)
    try:
        client.subscribe("#")
        # At QoS 1 the number of the packet comes before each.
        return {topic: bytes(payload[2:]) for topic, payload in client.messages(1.0)}
    finally:
        client.close()


def test_a_fleet_is_seen_while_it_is_served_and_no_more_once_nobody_asks_for_it(place, micropython, serving):  # noqa: F811
    directory, path, boards = place
    home = Access.load(directory / HOME_ASSISTANT)
    with Mosquitto(directory) as mosquitto, EmulatedFleet(micropython, boards):
        assert seen(home) == {}
        served = serving(path, directory, "--interval", "1", "--home-assistant", "--json")

        def shown():
            found = seen(home)
            state = json.loads(found.get(STATE, b"{}"))
            return found if (state.get("reports"), found.get(AVAILABILITY)) == (6, b"online") else None

        found = wait_for(shown)
        assert set(found) == {CONFIG, STATE, AVAILABILITY}
        config, state = json.loads(found[CONFIG]), json.loads(found[STATE])
        assert (config["state_topic"], config["availability_topic"]) == (STATE, AVAILABILITY)
        assert {"dev", "o", "cmps"} <= set(config)
        assert (config["dev"]["ids"], config["o"]["name"]) == (["tern_farm/a"], "tern")
        for name, sensor in config["cmps"].items():
            assert sensor["p"] == "sensor"
            assert sensor["value_template"] == f"{{{{ value_json.{name} }}}}"
        assert len({sensor["unique_id"] for sensor in config["cmps"].values()}) == len(config["cmps"])
        assert set(config["cmps"]) == set(state) >= {"round", "reports", "boards", "budget"}
        assert (state["asked"], state["boards"]) == (6, 2)
        assert 0 < state["budget"] <= 40

        mosquitto.kill()
        mosquitto.start()  # it had no time to write down what it keeps
        wait_for(shown)
        os.kill(served.pid, signal.SIGKILL)
        served.communicate()
        wait_for(lambda: seen(home)[AVAILABILITY] == b"offline")

        _, err = serve(path, directory, "--rounds", "1", "--home-assistant", "--json").communicate(
            timeout=120
        )
        found = seen(home)
        assert (set(found), found[AVAILABILITY]) == ({CONFIG, STATE, AVAILABILITY}, b"offline"), err

        _, err = serve(path, directory, "--rounds", "1", "--json").communicate(timeout=120)
        assert seen(home) == {}, err
    with Store(path) as store:
        assert store.state("home_assistant") is None


def test_notices_wait_for_a_broker_and_let_go_without_one(place):
    directory, *_ = place
    home, publisher = (Access.load(directory / name) for name in (HOME_ASSISTANT, PUBLISHER))
    gone = (AVAILABILITY, b"offline")
    assert not Notices(publisher, gone).close({AVAILABILITY: b"offline"}), "there is no broker"
    waiting = Notices(publisher, gone)
    waiting.put(STATE, b"1")
    with Mosquitto(directory):
        wait_for(lambda: seen(home) == {STATE: b"1"})
        waiting.put(STATE, b"2")
        assert waiting.close({AVAILABILITY: b"away"})
        assert seen(home) == {STATE: b"2", AVAILABILITY: b"away"}
        refused = []
        stranger = Notices(replace(publisher, password="wrong"), gone, refused.append)
        wait_for(lambda: refused)
        assert "refuses this host" in refused[0]
        assert not stranger.close({})


def test_who_may_write_what(place):
    """The host no more than before; who tells Home Assistant only that; Home Assistant only that it is there."""
    directory, *_ = place
    host, publisher, home = (Access.load(directory / name) for name in (HOST, PUBLISHER, HOME_ASSISTANT))
    assert len({host.password, publisher.password, home.password}) == 3
    topics = (CONFIG, STATE, "home/device/other/config", "home/status", "farm/a/round")
    below = ("hello/tern-publisher", "up/home-assistant", "down/00000001", "model", "site/lab")
    topics += tuple(f"farm/a/{topic}" for topic in below)
    allowed = {host: set(), publisher: {CONFIG, STATE}, home: {"home/status"}}
    with Mosquitto(directory):
        for access, own in allowed.items():
            client = RawClient(access, access.user, access.password)
            for topic in topics:
                client.publish(topic, access.user.encode(), retain=True)
            client.close()
            kept = {topic for topic, payload in seen(home).items() if payload == access.user.encode()}
            assert kept == own


def test_rights_are_asked_for_and_given_back(place):
    directory, path, _ = place
    tern("broker", "config", directory, "--json")
    assert "tern-publisher" in (directory / "access").read_text(), "they stay"
    tern("broker", "config", directory, "--no-home-assistant", "--json")
    for name in ("access", "passwords"):
        assert "home" not in (directory / name).read_text()
    message = serve(path, directory, "--home-assistant").communicate(timeout=60)[1]
    assert f"tern broker config {directory} --home-assistant" in message
    for prefix in ("a b", "#", "x\ntopic write #"):
        assert "cannot begin" in tern("broker", "config", directory, "--home-assistant", prefix, code=2)
