"""The commands for a fleet on a broker, as users call them."""

import json
import signal
import urllib.request

import pytest
import rig
from benchmarks import ingest
from harness.arena import CARD, D, K
from harness.raw_client import RawClient, retained, wait_for
from jinja2.sandbox import SandboxedEnvironment

from ternhost.provision import keys
from ternhost.reach.broker.access import HOME_ASSISTANT, HOST, PUBLISHER, Access
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store.store import Store
from ternhost.watch.home_assistant import HomeAssistant
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet


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
    words = ("--dimension", D, "--card", path.parent / "card", "--k", K, *words)
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


def test_serve_prints_rounds_and_serves_metrics(tmp_path, micropython, serving):
    path, boards = two_boards(tmp_path, micropython)
    broker, metrics = path.parent / "broker", free_port()
    rig.tern("broker", "config", broker, "--store", path, "--port", free_port(), code=0)
    attach(boards, broker, path)
    with Mosquitto(broker), EmulatedFleet(micropython, boards):
        host = serving(path, broker, "--interval", "1", "--metrics", metrics)

        def scrape():
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{metrics}/metrics", timeout=60
                ) as answer:
                    lines = answer.read().decode().splitlines()
            except OSError:
                return None
            values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("tern_"))
            return values if float(values.get("tern_rounds_ended", 0)) >= 1 else None

        values = {name: float(value) for name, value in wait_for(scrape).items()}
        host.signal(signal.SIGINT)
        out, _ = host.finish()
    assert values['tern_boards_by_state{state="online"}'] == 2
    assert values["tern_connected"] == 1
    assert values['tern_frames_total{fate="accepted"}'] >= 6
    rounds, cost = values["tern_rounds_ended"], values["tern_report_epsilon"]
    spent = 40 - values["tern_budget_left_least_epsilon"]
    assert abs(spent - rounds * cost) <= cost, "the store is read a little later"
    assert "round 1: 6 of 6 reports" in out
    assert "this run protects a device with all of its records with epsilon " in out


def test_the_benchmark_of_ingestion_loses_and_doubles_no_report():
    result = ingest.run(6_400, batch=32)  # 200 frames
    for mistake in ("lost", "counted_twice", "not_counted", "not_as_sent"):
        assert result[mistake] == 0
    assert result["duplicates"] > 0, "every hundredth frame is sent twice"
    assert result["stored_bytes_per_report"] <= 8


# Home Assistant sees a fleet on its broker if the user wants that, but no single board.


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
