"""Home Assistant sees a fleet on its broker if the user wants that, but no single board."""

import json
import signal

import pytest
import rig
from harness.arena import CARD, D, K
from harness.raw_client import RawClient, retained
from harness.waiting import wait_for
from jinja2.sandbox import SandboxedEnvironment

from ternhost.provision import keys
from ternhost.reach.broker.access import HOST, Access
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet
from ternviews.home_assistant.guest import GUEST
from ternviews.home_assistant.observer import HomeAssistant


def two_boards(directory, micropython):
    """Provision two boards of three clients, not yet on a broker; return (path of the store,
    boards).
    """
    site = rig.make_site(directory, micropython, 6, 2, largest=4_000_000, budget=40_000_000)
    keys.fleet_key(site.store)
    site.store.close()
    (directory / "card").write_bytes(CARD)
    return site.store.path, site.directories


def serve(path, broker, *words):
    """`tern serve` for these boards, as a process."""
    words = ("--data", f"devices:{D}", "--card", path.parent / "card", "--k", K, *words)
    return rig.Train(
        "--store", path, "--fleet", f"mqtt:{broker}", *words, cwd=path.parent, command="serve"
    )


@pytest.fixture
def serving():
    """`serve`, whose processes end with the test, however it ends."""
    hosts = []

    def begin(*words):
        hosts.append(serve(*words))
        return hosts[-1]

    yield begin
    for host in hosts:
        if host.process.poll() is None:
            host.process.kill()
            host.process.communicate()


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
    words = ("--port", free_port(), "--prefix", "farm/a", "--guest", "home-assistant:home")
    rig.tern("broker", "config", place, "--store", path, *words, code=0)
    attach(boards, place, path)
    return place, path, boards


@pytest.fixture
def fleet(place, micropython):
    """(a running Mosquitto, what Home Assistant may read there, the store) with both boards."""
    directory, path, boards = place
    with Mosquitto(directory) as mosquitto, EmulatedFleet(micropython, boards):
        yield mosquitto, Access.load(directory / GUEST.file), path


def messages_about_six_reports(home):
    """The messages for Home Assistant, once they show a round with all six reports; else None."""
    messages = retained(home)
    state = json.loads(messages.get(STATE, b"{}"))
    is_online = messages.get(AVAILABILITY) == b"online"
    # The budget is unknown until a read of the store after the first HELLO of the boards.
    if is_online and state.get("reports") == 6 and state["budget"]:
        return messages
    return None


@pytest.fixture
def served(fleet, serving):
    """A host that serves the fleet and shows it to Home Assistant."""
    mosquitto, _, path = fleet
    return serving(path, mosquitto.directory, "--every", "1", "--home-assistant")


@pytest.mark.usefixtures("served")
def test_home_assistant_sees_the_figures_of_a_served_fleet(fleet):
    """Two boards of three devices each are served by a host. On their broker, Home Assistant finds
    the figures of the fleet as a whole: six devices asked, two boards there, the least budget left.
    """
    _, home, _ = fleet
    messages = wait_for(lambda: messages_about_six_reports(home))

    assert set(messages) == {CONFIG, STATE, AVAILABILITY}
    state = json.loads(messages[STATE])
    assert state["asked"] == 6
    assert state["boards"] == 2
    assert 0 < state["budget"] <= 40  # epsilon, as provisioned


@pytest.mark.usefixtures("served")
def test_home_assistant_sees_a_fleet_again_after_its_broker_was_killed(fleet):
    """The broker dies and forgets its retained messages. The host publishes them again once the
    broker is back.
    """
    mosquitto, home, _ = fleet
    wait_for(lambda: messages_about_six_reports(home))

    mosquitto.kill()  # it has no time to save its retained messages
    mosquitto.start()

    wait_for(lambda: messages_about_six_reports(home))


def test_home_assistant_sees_that_the_host_of_a_fleet_was_killed(fleet, served):
    """A host that is killed cannot say goodbye. The broker then publishes the host's last will:
    offline.
    """
    _, home, _ = fleet
    wait_for(lambda: messages_about_six_reports(home))

    served.finish(code=-signal.SIGKILL, number=signal.SIGKILL)

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
    "farm/a/model/limits",
    "farm/a/site/lab",
)


def test_every_user_of_the_broker_may_write_only_its_own_topics(place):
    """Of the topics that Home Assistant can read, the host may write none."""
    directory, *_ = place
    host = Access.load(directory / HOST)
    publisher = Access.load(directory / GUEST.publisher_file)
    home = Access.load(directory / GUEST.file)
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
    home = Access.load(directory / GUEST.file)
    hostile = {
        'a"] }}{{ 7 * 191 }}\\': 0.25,
        "{% raw %}</script>\u202e\n": 1.25,
        "\U0001f600é (micro)~": 2.25,
    }
    without_room = {"x" * 10_000: 3.25}

    with Mosquitto(directory), Store(path) as store:
        publisher = HomeAssistant(f"mqtt:{directory}")
        publisher.publish(store, hostile | without_room)
        wait_for(lambda: retained(home).get(AVAILABILITY) == b"online")
        messages = retained(home)
        publisher.end()
    sensors, state = json.loads(messages[CONFIG])["cmps"], json.loads(messages[STATE])

    assert without_room.keys().isdisjoint({*sensors, *state})
    for name, value in hostile.items():
        template = SandboxedEnvironment().from_string(sensors[name]["value_template"])
        assert template.render(value_json=state) == str(value), name
        assert sensors[name]["name"].isprintable()
