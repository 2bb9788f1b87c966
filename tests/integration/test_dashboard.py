"""The live page in a real browser: its contents, its behaviour in trouble, and the secrets that it
keeps.
"""

import base64
import http.client
import itertools
import json
import re
import shutil
import signal
import sqlite3
from contextlib import ExitStack, closing, contextmanager

import pytest
import rig
import sample_store
from framing import hello
from harness.raw_client import board_client

from tern.links import mqtt
from ternhost.provision import keys
from ternhost.reach.broker import configuration
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store import store_file
from ternhost.store.store import Store

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("nicegui", reason="the extra dashboard is not installed")
CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
# With a browser of its own, so that two processes share the tests.
second_group = pytest.mark.xdist_group("second")
SECTIONS = ("Learning", "Fleet", "Round", "Privacy", "Runs")
PATIENCE = 120_000  # milliseconds, on a busy machine


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@contextmanager
def dashboard(place):
    """Run `tern dashboard PLACE`; yield the URL of the page."""
    command = rig.Train(place, "--port", 0, "--json", cwd=".", command="dashboard")
    try:
        line = command.process.stdout.readline()
        assert line, command.process.stderr.read()
        yield json.loads(line)["url"]
    finally:
        _, errors = command.finish(0, signal.SIGINT)
    assert not errors, errors


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The URL of a page for a run with 50 boards."""
    with dashboard(sample_store.make(tmp_path_factory.mktemp("small"), 50)) as url:
        yield url


class Visit:
    """A page in a browser context of its own; records its requests, responses, frames and console
    errors.
    """

    def __init__(self, browser, url, **options):
        self.url, self.context = url, browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.requests, self.responses, self.complaints = [], [], []
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("response", lambda response: self.responses.append(response))
        self.page.on("websocket", self._socket)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dialog)
        self.frames = []

    def _socket(self, socket):
        self.requests.append(socket.url)
        socket.on("framereceived", lambda data: self.frames.append(data))

    def _dialog(self, dialog):
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, section="learning"):
        self.page.goto(f"{self.url}?section={section}")
        self.page.wait_for_selector("main.tern .tile")
        return self.page

    def sections(self):
        """Yield the name of each section, once the page shows it."""
        for section in SECTIONS:
            self.page.get_by_role("tab", name=section).click()
            self.page.wait_for_selector(".q-tab-panel .card:visible")
            self.page.wait_for_timeout(300)
            yield section

    def require_harmless(self, width):
        """No text has run as a program, and no element is wider than the window, but in boxes that
        scroll.
        """
        assert self.page.evaluate("document.documentElement.scrollWidth") <= width
        assert self.page.evaluate(WIDE) == []
        assert self.page.evaluate(sample_store.CANARY.split()[0]) is None
        assert not self.complaints
        assert self.requests_elsewhere() == []

    def requests_elsewhere(self):
        """The addresses that the page has asked beside its own."""
        own = self.url.removeprefix("http://").split("/")[0]
        return [url for url in self.requests if url.split("/")[2] not in ("", own)]

    def tile(self, name):
        """The value of a tile on the page."""
        tile = self.page.locator("main.tern .tile").filter(
            has_text=re.compile(f"^{re.escape(name)}")
        )
        return tile.locator(".value").inner_text()

    def wait_for_tile(self, name, value):
        """Wait until a tile has this value."""
        script = """([name, value]) => [...document.querySelectorAll("main.tern .tile")].some(tile =>
            tile.querySelector(".name").textContent == name && tile.querySelector(".value").textContent == value)"""
        self.page.wait_for_function(script, arg=[name, value], polling=20)

    def received(self):
        """The bodies of all responses, and all frames, as bytes."""
        self.page.wait_for_load_state("networkidle")
        bodies = [response.body() for response in self.responses if response.ok]
        return bodies + [
            frame if isinstance(frame, bytes) else frame.encode() for frame in self.frames
        ]

    def close(self):
        self.context.close()


@pytest.fixture
def visit(browser):
    with ExitStack() as visits:
        yield lambda url, **options: visits.enter_context(closing(Visit(browser, url, **options)))


@needs_browser
def test_the_page_follows_a_store_from_before_its_run_until_it_is_gone(tmp_path, visit):
    """The live page shows a store, the database of a run. It follows a run that begins after it was
    opened. When the file is away, or locked by another program, the page says so and keeps showing
    the last figures.
    """
    path = tmp_path / store_file.NAME
    with Store(path):
        pass  # makes an empty one
    with dashboard(path) as url:
        opened = visit(url)
        page = opened.open()

        # Two rounds by another process, and a third one under way.
        words = f"--rounds 2 --no-report --quiet --store {path} --name {sample_store.NAME}"
        rig.tern("serve", "--fleet", "simulated:50", *words.split(), cwd=tmp_path, code=0)
        opened.wait_for_tile("rounds ended", "2")
        page.get_by_role("tab", name="Round").click()
        with Store(path) as store:
            sample_store.begin_round(store, 3, range(1, 51))
            sample_store.report(store, 3, range(1, 31))
            page.wait_for_selector("text=Round 3: 30 of 50 reports")

        # The store goes away, comes back locked, and is free again.
        away = path.with_name("away.sqlite")
        path.rename(away)
        page.wait_for_selector(".note:visible >> text=not there any more")
        assert opened.tile("rounds ended") == "2"
        with locked_store(away):
            away.rename(path)
            page.wait_for_selector(".note:visible >> text=locked")
            assert opened.tile("rounds ended") == "2"
        page.wait_for_selector(".note", state="hidden")
    assert not opened.complaints, "no error in the browser"


@needs_browser
def test_a_connected_board_is_online_while_no_run_goes_on(tmp_path, visit):
    """Nobody serves the fleet, so nobody writes into the store who is online. The page asks the
    broker: a board that connects is online with its allowance, and offline once it is gone.
    """
    path = tmp_path / store_file.NAME
    with Store(path) as store:
        device_keys = keys.add(store, [7])
    access = configuration.configure(tmp_path, path, port=free_port())
    topic = mqtt.HELLO % (access.prefix, mqtt.name(7))
    with Mosquitto(tmp_path), dashboard(path) as url:
        opened = visit(url)
        page = opened.open("fleet")
        page.wait_for_selector("text=No board was seen yet")

        with closing(board_client(access, device_keys, 7, will=(topic, b""))) as board:
            board.publish(topic, hello(7, budget=3_000_000, spent=1_000_000), retain=True)
            page.wait_for_selector(".ag-row [col-id=online] >> text=online")
            assert page.locator(".ag-row [col-id=budget]").inner_text() == "3"
            assert page.locator(".ag-row [col-id=allowance]").inner_text() == "4"
            assert opened.tile("boards online") == "1"

        page.wait_for_selector(".ag-row [col-id=online] >> text=offline")
        assert opened.tile("boards online") == "0"
    assert not opened.complaints


@contextmanager
def locked_store(path):
    """While the context is open, another program has the store to itself."""
    with closing(sqlite3.connect(path, isolation_level=None)) as locker:
        locker.execute("PRAGMA locking_mode = EXCLUSIVE")
        locker.execute("BEGIN EXCLUSIVE")
        yield
        locker.execute("ROLLBACK")


def forms_of(key):
    """The texts and bytes in which a key could leave a server."""
    digits = key.hex()
    texts = (digits, digits.upper(), str(list(key)))
    return (key, base64.b64encode(key), *(text.encode() for text in texts))


@needs_browser
@second_group
@pytest.mark.slow
def test_the_page_serves_no_key_and_no_password(small, visit):
    """Whoever sees the live page must not be able to act as a device or as the fleet. All that the
    server has sent for all sections of the page is searched for their keys, in any form, and
    passwords.
    """
    keys = [sample_store.key_of(device) for device in range(1, 51)]
    opened = visit(small)
    opened.open()
    shown = [*opened.sections()]

    served = b"\0".join(opened.received())

    # What is searched is not empty: a mechanism comes in a response, a board in a frame of a socket.
    assert len(shown) == len(SECTIONS)
    assert b"three-outputs" in served
    assert b"greenhouse-00042" in served
    for key in (*keys, sample_store.FLEET_KEY):
        for form in forms_of(key):
            part = form.rstrip(b"=")[:20]  # a part would be too much, too
            assert part not in served
    for key in keys:
        assert mqtt.password(key).encode() not in served


WIDE = """() => [...document.querySelectorAll("body :not(svg *)")].filter(e => e.checkVisibility()).filter(e => {
    const box = e.getBoundingClientRect(), scrolls = e.parentElement.closest(".table-box, .wide, .ag-root-wrapper");
    return scrolls ? e.matches("td, th, .ag-cell") && box.width > innerWidth : box.right > innerWidth + 1;
}).map(e => e.outerHTML.slice(0, 100))"""


@needs_browser
@second_group
def test_texts_of_a_hostile_fleet_are_text_and_leave_the_page_as_it_is(tmp_path, visit):
    """All texts of boards and sites in this store are hostile: scripts, tags, characters that
    reverse a line, 10 kB in a row. The live page shows them as text: none of them runs, and the
    page still fits a phone.
    """
    phone = 390  # pixels
    store = sample_store.make(tmp_path / "runs", 50) / store_file.NAME
    sample_store.fill_with_hostile_text(store)
    with dashboard(store) as url:
        opened = visit(url, viewport={"width": phone, "height": 900})
        page = opened.open()
        for section in opened.sections():
            for chart in page.locator(".chart:visible").all():
                chart.hover()  # its tooltip names what it shows
            opened.require_harmless(phone)
            heading = page.get_by_role("heading", level=1).inner_text()
            assert heading.startswith("greenhouses <script>"), section
            assert opened.tile("rounds ended") == "12"
            height = page.evaluate("document.documentElement.scrollHeight")
            assert height < 5000, "pixels: long texts are cut"
            if section == "Fleet":
                page.get_by_label("search boards").fill("reversed")
                page.wait_for_selector(".ag-row[row-index='0'] >> text=\\u202e\\u2066reversed")


def spoil_result(value, names):
    """The same result with these names for features, classes, attributes and their categories."""
    if isinstance(value, list):
        return [spoil_result(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    spoilt = {}
    for key, item in value.items():
        if key == "name":
            spoilt[key] = next(names)
        elif key in ("features", "labels", "categories") and item:
            spoilt[key] = [next(names) for _ in item]
        else:
            spoilt[key] = spoil_result(item, names)
    return spoilt


@needs_browser
def test_a_report_with_hostile_names_is_text_and_fits_its_window(tmp_path, visit):
    """The names in the result of this run are hostile, such as scripts and characters that reverse
    a line. The page that `tern runs --draw` makes of it shows them as text, and still fits a phone.
    """
    words = "--data flights-table --fleet simulated:500 --quiet --name r --no-report"
    rig.tern("collect", *words.split(), cwd=tmp_path, code=0)
    # Replace every text in its result, and draw its page from that.
    path = tmp_path / "runs" / "r" / "result.json"
    result = spoil_result(json.loads(path.read_text()), itertools.cycle(sample_store.HOSTILE))
    result["data"] = " ".join(sample_store.HOSTILE)
    result["options"] |= dict.fromkeys(("data", "fleet"), result["data"])
    path.write_text(json.dumps(result))
    rig.tern("runs", "--draw", "r", cwd=tmp_path, code=0)

    phone = 390  # pixels
    opened = visit("", viewport={"width": phone, "height": 900})
    opened.page.goto(path.with_name("report.html").as_uri())
    for section in opened.page.locator("summary").all():
        section.click()

    opened.require_harmless(phone)
    text = opened.page.locator("body").inner_text()
    assert text.startswith("<script>window.hostile = 1</script>")
    assert "\\u202e\\u2066reversed" in text


def ask(url, path="/", **headers):
    address = url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET", path, headers={"Host": address, **headers})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
}
SWITCHING_PROTOCOLS, FORBIDDEN, NOT_FOUND = 101, 403, 404
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@pytest.fixture(scope="module")
def address(small):
    """The host and port of the page."""
    return small.removeprefix("http://").rstrip("/")


PATHS = {"page": ("/", {}), "boards": ("/boards", {}), "socket": (SOCKET, UPGRADE)}


@second_group
@pytest.mark.parametrize("path", PATHS)
def test_requests_to_other_hosts_are_refused(small, address, path):
    """A page of another site could otherwise read this one under a name that it controls."""
    where, headers = PATHS[path]
    port = int(address.split(":")[1])
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1:{port + 1}", "[::1]"):
        assert ask(small, where, **headers, Host=host) == FORBIDDEN


@second_group
def test_a_socket_is_opened_by_the_page_itself_alone(small, address):
    """The live page gets its figures over a WebSocket, which browsers also let pages of other sites
    open. The server looks at the Origin, and refuses those.
    """
    for origin in ("http://evil.example", "null", f"https://{address}"):
        assert ask(small, SOCKET, **UPGRADE, Origin=origin) == FORBIDDEN
    assert ask(small, SOCKET, **UPGRADE, Origin=f"http://{address}") == SWITCHING_PROTOCOLS


@second_group
def test_nothing_but_the_page_is_served(small):
    for path in ("/docs", "/openapi.json", "/../store.sqlite", "/store.sqlite"):
        assert ask(small, path) == NOT_FOUND


@needs_browser
@second_group
@pytest.mark.slow
def test_the_page_follows_a_run_that_is_killed_and_resumed(tmp_path, visit, micropython):
    """The live page is open while the process of a run is killed in its second round of four: it
    says that the process is gone. When the run is resumed, the page follows it to its end.
    """
    options = "--reports 80 --group 20 --epsilon 2 --fleet emulated:1 --no-report --name run"
    host = rig.Train(*options.split(), cwd=tmp_path, stop_after=30)
    host.wait_until_stopped()  # in the second of four rounds
    with dashboard(tmp_path / "runs" / "run") as url:
        opened = visit(url)
        page = opened.open("round")
        page.wait_for_selector("text=Round 2:")
        assert opened.tile("rounds ended") == "1"

        host.finish(-signal.SIGKILL, signal.SIGKILL)
        page.wait_for_selector(".note >> text=the process of this run is gone")
        assert opened.tile("rounds ended") == "1"

        rig.Train("run", "--no-report", cwd=tmp_path, command="resume").finish()
        opened.wait_for_tile("rounds ended", "4")
        assert opened.tile("reports") == "80"
        page.wait_for_selector("text=The run has ended")
        assert page.locator("main.tern .badge").inner_text() == "finished"
        page.get_by_role("tab", name="Fleet").click()
        page.wait_for_selector(".ag-row >> text=offline")
    assert not opened.complaints
