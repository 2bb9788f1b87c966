"""Home Assistant sees a fleet on its broker if the user wants that, but no single board."""

import json
import signal

import pytest
import rig
from harness.raw_client import RawClient, retained, wait_for
from jinja2.sandbox import SandboxedEnvironment
from test_mqtt_commands import serving as serving  # a fixture
from test_mqtt_commands import two_boards

from ternhost.reach.broker.access import HOME_ASSISTANT, HOST, PUBLISHER, Access
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from ternhost.watch.home_assistant import HomeAssistant
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet

CONFIG, STATE, AVAILABILITY = (
    "home/device/farm_a/config",
    "farm/a/fleet/state",
    "farm/a/fleet/availability",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory, micropython):
    """(directory of a broker that admits Home Assistant, the store, directories of two boards)."""
    path, boards = two_boards(tmp_path_factory.mktemp("home"), micropython)
    place = path.parent / "broker"
    words = ("--port", free_port(), "--prefix", "farm/a", "--home-assistant", "home")
    rig.tern("broker", "config", place, "--store", path, *words, code=0)
    attach(boards, place, path)
    return place, path, boards


@pytest.fixture
def fleet(place, micropython):
    """(a running Mosquitto, what Home Assistant may read there, the store) with both boards."""
    directory, path, boards = place
    with Mosquitto(directory) as mosquitto, EmulatedFleet(micropython, boards):
        yield mosquitto, Access.load(directory / HOME_ASSISTANT), path


def shown(home):
    """The messages that show a round with all six reports; None: they are not there yet."""
    messages = retained(home)
    state = json.loads(messages.get(STATE, b"{}"))
    is_online = messages.get(AVAILABILITY) == b"online"
    # The budget is unknown until a read of the store after the first HELLO of the boards.
    if is_online and state.get("reports") == 6 and state["budget"]:
        return messages
    return None


def test_home_assistant_sees_a_fleet_while_it_is_served(fleet, serving):
    mosquitto, home, path = fleet
    host = serving(path, mosquitto.directory, "--interval", "1", "--home-assistant")
    messages = wait_for(lambda: shown(home))
    assert set(messages) == {CONFIG, STATE, AVAILABILITY}
    state = json.loads(messages[STATE])
    assert state["asked"] == 6
    assert state["boards"] == 2
    assert 0 < state["budget"] <= 40  # epsilon, as provisioned

    mosquitto.kill()
    mosquitto.start()  # it had no time to save its retained messages
    wait_for(lambda: shown(home))
    host.finish(-signal.SIGKILL, signal.SIGKILL)
    wait_for(lambda: retained(home)[AVAILABILITY] == b"offline")


TOPICS = (
    CONFIG,
    STATE,
    "home/device/other/config",
    "home/status",
    "farm/a/round",
    "farm/a/hello/tern-publisher",
    "farm/a/up/home-assistant",
    "farm/a/down/00000001",
    "farm/a/model",
    "farm/a/site/lab",
)


def test_every_user_of_the_broker_may_write_only_its_own_topics(place):
    """Of the topics that Home Assistant can read, the host may write none."""
    directory, *_ = place
    host = Access.load(directory / HOST)
    publisher = Access.load(directory / PUBLISHER)
    home = Access.load(directory / HOME_ASSISTANT)
    allowed = {host: set(), publisher: {CONFIG, STATE}, home: {"home/status"}}

    with Mosquitto(directory):
        for access, expected in allowed.items():
            payload = access.user.encode()
            client = RawClient(access, access.user, access.password)
            for topic in TOPICS:
                client.publish(topic, payload, retain=True)
            client.close()
            written = {topic for topic, content in retained(home).items() if content == payload}
            assert written == expected


def test_hostile_names_of_figures_are_data_and_never_a_template(place):
    """Home Assistant evaluates value_template; it must give the figure, whatever its name is."""
    directory, path, _ = place
    home = Access.load(directory / HOME_ASSISTANT)
    hostile = {
        'a"] }}{{ 7 * 191 }}\\': 0.25,
        "{% raw %}</script>\u202e\n": 1.25,
        "\U0001f600é (micro)~": 2.25,
    }
    without_room = {"x" * 10_000: 3.25}

    with Mosquitto(directory), Store(path) as store:
        publisher = HomeAssistant(f"mqtt:{directory}")
        publisher.begin(store, hostile | without_room)
        wait_for(lambda: retained(home).get(AVAILABILITY) == b"online")
        messages = retained(home)
        publisher.end()
    sensors, state = json.loads(messages[CONFIG])["cmps"], json.loads(messages[STATE])

    assert without_room.keys().isdisjoint({*sensors, *state})
    for name, value in hostile.items():
        template = SandboxedEnvironment().from_string(sensors[name]["value_template"])
        assert template.render(value_json=state) == str(value), name
        assert sensors[name]["name"].isprintable()
