"""Home Assistant sees a fleet on its broker if the user wants that, but no single board."""

import json
import signal

import pytest
import rig
from harness.raw_client import RawClient, retained, wait_for
from jinja2.sandbox import SandboxedEnvironment
from test_mqtt_commands import serve, two_boards
from test_mqtt_commands import serving as serving  # a fixture

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


def test_home_assistant_sees_a_fleet_until_it_is_served_without_the_option(
    place, micropython, serving
):
    directory, path, boards = place
    home = Access.load(directory / HOME_ASSISTANT)
    with Mosquitto(directory) as mosquitto, EmulatedFleet(micropython, boards):
        assert retained(home) == {}
        served = serving(path, directory, "--interval", "1", "--home-assistant")

        def shown():
            messages = retained(home)
            state = json.loads(messages.get(STATE, b"{}"))
            # The store is seldom read for the budget: it is unknown until a read after the boards'
            # first HELLO.
            ready = (state.get("reports"), messages.get(AVAILABILITY)) == (6, b"online") and state[
                "budget"
            ]
            return messages if ready else None

        messages = wait_for(shown)
        assert set(messages) == {CONFIG, STATE, AVAILABILITY}
        config, state = json.loads(messages[CONFIG]), json.loads(messages[STATE])
        assert (config["state_topic"], config["availability_topic"]) == (STATE, AVAILABILITY)
        assert {"dev", "o", "cmps"} <= set(config)
        assert (config["dev"]["ids"], config["o"]["name"]) == (["tern_farm/a"], "tern")
        for name, sensor in config["cmps"].items():
            assert sensor["p"] == "sensor"
            assert sensor["value_template"] == f'{{{{ value_json["{name}"] }}}}'
        assert len({sensor["unique_id"] for sensor in config["cmps"].values()}) == len(
            config["cmps"]
        )
        assert set(config["cmps"]) == set(state) >= {"round", "reports", "boards", "budget"}
        assert (state["asked"], state["boards"]) == (6, 2)
        assert 0 < state["budget"] <= 40

        mosquitto.kill()
        mosquitto.start()  # it had no time to save its retained messages
        wait_for(shown)
        served.finish(-signal.SIGKILL, signal.SIGKILL)
        wait_for(lambda: retained(home)[AVAILABILITY] == b"offline")

        serve(path, directory, "--rounds", "1", "--home-assistant").finish()
        messages = retained(home)
        assert (set(messages), messages[AVAILABILITY]) == (
            {CONFIG, STATE, AVAILABILITY},
            b"offline",
        )

        serve(path, directory, "--rounds", "1").finish()
        assert retained(home) == {}
    with Store(path) as store:
        assert store.state("home_assistant") is None


def test_every_user_of_the_broker_may_write_only_its_own_topics(place):
    """Home Assistant only its status; the publisher the config and the state; the host none of
    these.
    """
    directory, *_ = place
    host, publisher, home = (
        Access.load(directory / name) for name in (HOST, PUBLISHER, HOME_ASSISTANT)
    )
    assert len({host.password, publisher.password, home.password}) == 3
    topics = (CONFIG, STATE, "home/device/other/config", "home/status", "farm/a/round")
    below = ("hello/tern-publisher", "up/home-assistant", "down/00000001", "model", "site/lab")
    topics += tuple(f"farm/a/{topic}" for topic in below)
    allowed = {host: set(), publisher: {CONFIG, STATE}, home: {"home/status"}}
    with Mosquitto(directory):
        for access, expected in allowed.items():
            client = RawClient(access, access.user, access.password)
            for topic in topics:
                client.publish(topic, access.user.encode(), retain=True)
            client.close()
            written = {
                topic
                for topic, payload in retained(home).items()
                if payload == access.user.encode()
            }
            assert written == expected


def test_hostile_names_of_figures_are_data_and_never_a_template(place):
    """Home Assistant evaluates value_template alone; it must give the figure, whatever the name of
    the figure is.
    """
    directory, path, _ = place
    home = Access.load(directory / HOME_ASSISTANT)
    names = ('a"] }}{{ 7 * 191 }}\\', "{% raw %}</script>\u202e\n", "\U0001f600é (micro)~")
    figures = {
        name: 0.25 + i for i, name in enumerate((*names, "x" * 10_000))
    }  # the last has no room
    with Mosquitto(directory), Store(path) as store:
        fleet = HomeAssistant(f"mqtt:{directory}")
        fleet.begin(store, figures)
        messages = wait_for(
            lambda: (seen := retained(home)).get(AVAILABILITY) == b"online" and seen
        )
        fleet.end()
        config, state = json.loads(messages[CONFIG]), json.loads(messages[STATE])
    assert set(figures) - set(config["cmps"]) == set(figures) - set(state) == {"x" * 10_000}
    for name, value in list(figures.items())[:-1]:
        sensor = config["cmps"][name]
        template = SandboxedEnvironment().from_string(sensor["value_template"])
        assert template.render(value_json=state) == str(value), name
        assert sensor["name"].isprintable()
