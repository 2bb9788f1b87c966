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
import subprocess
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
import rig
import sample_store
import warm
from harness.raw_client import wait_for
from warm import TERN

from tern.links import mqtt
from ternhost.store import store_file
from ternhost.store.store import Store

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("nicegui", reason="the extra dashboard is not installed")
CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
# With a browser of its own, so that two processes share the tests.
second_group = pytest.mark.xdist_group("second")
BOARDS = 2000
SECTIONS = ("Learning", "Fleet", "Round", "Privacy", "Runs")
PATIENCE = 30_000  # milliseconds, on a busy machine


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


def tern(place, words):
    warm.run([*TERN, *words.split()], cwd=place, check=True, stdout=subprocess.DEVNULL)


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
    """The URL of a page for a run with 50 boards; a run with a long name is beside it."""
    place = tmp_path_factory.mktemp("small")
    tern(
        place,
        f"serve --fleet simulated:60 --rounds 2 --no-report --quiet --name {'greenhouse-' * 8}2026",
    )
    with dashboard(sample_store.make(place / "runs", 50)) as url:
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
            self.page.wait_for_selector(".q-tab-panel .card")
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
        own = self.url.removeprefix("http://").split("/")[0]
        elsewhere = [url for url in self.requests if url.split("/")[2] not in ("", own)]
        assert elsewhere == []

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
    path = tmp_path / store_file.NAME
    with Store(path):
        pass
    with dashboard(path) as url:
        opened = visit(url)
        page = opened.open()
        for section, words in (
            ("Learning", "tern train --fleet"),
            ("Fleet", "tern serve --fleet"),
            ("Round", "begins the next one"),
            ("Privacy", "No run yet"),
            ("Runs", "No run has begun"),
        ):
            page.get_by_role("tab", name=section).click()
            page.wait_for_selector(f".q-tab-panel .empty:visible >> text={words}")

        words = f"--rounds 2 --no-report --quiet --store {path} --name {sample_store.NAME}"
        tern(tmp_path, f"serve --fleet simulated:50 {words}")
        opened.wait_for_tile("rounds ended", "2")
        with Store(path) as store:
            for number in (3, 4):
                sample_store.begin_round(store, number, range(1, 51))
                sample_store.end_round(
                    store, number, 50, auc=0.87, accuracy=0.9, log_loss=0.3, tau=0.5
                )
                opened.wait_for_tile("rounds ended", str(number))
            page.get_by_role("tab", name="Round").click()
            sample_store.begin_round(store, 5, range(1, 51))
            page.wait_for_selector("text=Round 5: 0 of the 50 reports")
            sample_store.report(store, 5, range(1, 31))
            page.wait_for_selector("text=Round 5: 30 of the 50 reports")

        away = path.with_name("away.sqlite")
        path.rename(away)
        page.wait_for_selector(".note:visible >> text=not there any more")
        assert opened.tile("rounds ended") == "4"
        locker = sqlite3.connect(away, isolation_level=None)
        locker.execute("PRAGMA locking_mode = EXCLUSIVE")
        locker.execute("BEGIN EXCLUSIVE")
        away.rename(path)
        page.wait_for_selector(".note:visible >> text=locked")
        assert opened.tile("rounds ended") == "4"
        locker.execute("ROLLBACK")
        locker.close()
        page.wait_for_selector(".note", state="hidden")
        assert opened.tile("rounds ended") == "4"
    assert not opened.complaints


@needs_browser
def test_thousands_of_boards_can_be_searched_and_sorted_and_are_sent_once(tmp_path, visit):
    with dashboard(sample_store.make(tmp_path / "runs", BOARDS)) as url:
        opened = visit(url)
        page = opened.open("fleet")
        page.wait_for_selector(".ag-row[row-index='0'] >> text=greenhouse-00001")
        online = sum(board.online for board in sample_store.boards(BOARDS))
        assert opened.tile("boards online") == f"{online:,}"
        document = next(
            response for response in opened.responses if response.url.startswith(f"{url}?")
        )
        assert len(document.body()) < 100_000, "the first paint does not wait for the boards"
        page.get_by_label("search boards").fill("00042")
        page.wait_for_selector(".ag-row[row-index='0'] >> text=greenhouse-00042")
        assert page.locator(".ag-center-cols-container .ag-row").count() == 1
        page.get_by_label("search boards").fill("")
        page.wait_for_selector(".ag-row[row-index='0'] >> text=greenhouse-00001")
        page.locator(".ag-header-cell[col-id='first']").click()
        page.locator(".ag-header-cell[col-id='first']").click()
        page.wait_for_selector(".ag-row[row-index='0'] >> text=greenhouse-02000")
        page.wait_for_load_state("networkidle")
        requests, frames = len(opened.requests), len(opened.frames)
        page.wait_for_timeout(3000)
        assert len(opened.requests) == requests
        assert sum(map(len, opened.frames[frames:])) < 10_000
    assert not opened.complaints


@needs_browser
@second_group
@pytest.mark.slow
def test_the_page_follows_a_run_that_is_killed_and_resumed(tmp_path, visit, micropython):
    options = (
        "--reports",
        600,
        "--group",
        150,
        "--epsilon",
        2,
        "--fleet",
        "emulated:2",
        "--no-report",
    )
    host = rig.Train(*options, "--name", "run", cwd=tmp_path, stop_after=200)
    host.wait_until_stopped()
    with dashboard(tmp_path / "runs" / "run") as url:
        opened = visit(url)
        page = opened.open("round")
        page.wait_for_selector("text=Round 2:")
        assert opened.tile("rounds ended") == "1"
        host.finish(-signal.SIGKILL, signal.SIGKILL)
        page.wait_for_selector(".note >> text=the process of this run is gone")
        assert opened.tile("rounds ended") == "1"
        rig.Train("--resume", "run", "--no-report", cwd=tmp_path).finish()
        opened.wait_for_tile("rounds ended", "4")
        assert opened.tile("reports accepted") == "600"
        page.wait_for_selector("text=The run has ended")
        assert not page.locator(".note").is_visible()
        assert page.locator("main.tern .badge").inner_text() == "finished"
        page.get_by_role("tab", name="Fleet").click()
        page.wait_for_selector(".ag-row >> text=offline")
    assert not opened.complaints


@needs_browser
@second_group
@pytest.mark.slow
def test_the_page_needs_no_other_server_fits_a_phone_and_serves_no_key(small, visit):
    keys = {f"key of device {device}": sample_store.key_of(device) for device in range(1, 51)}
    passwords = {name.replace("key", "password"): mqtt.password(key) for name, key in keys.items()}
    keys["key of the fleet"] = sample_store.FLEET_KEY
    served = b""
    for options in (
        {"viewport": {"width": 1280, "height": 900}},
        {"viewport": {"width": 400, "height": 800}, "color_scheme": "dark"},
    ):
        opened = visit(small, **options)
        page = opened.open()
        for section in opened.sections():
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= options["viewport"]["width"], section
        removes = page.locator(".q-chip__icon--remove:visible")
        removes.nth(1).wait_for(timeout=PATIENCE)  # one for each of two runs
        for remove in removes.all():
            right = remove.evaluate("icon => icon.getBoundingClientRect().right")
            assert right <= options["viewport"]["width"], "long names fit a phone"
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (dark == "rgb(18, 22, 28)") == (options.get("color_scheme") == "dark")
        address = small.removeprefix("http://")
        assert {request.split("://")[1].split("/")[0] + "/" for request in opened.requests} == {
            address
        }
        assert opened.complaints == []
        served += b"\0".join(opened.received())
    assert len(served) > 1_000_000
    assert b"three-outputs" in served
    assert b"greenhouse-00042" in served, "bodies and frames are searched"
    for name, key in keys.items():
        digits = key.hex()
        texts = (digits, digits.upper(), str(list(key)))
        for form in (key, base64.b64encode(key), *(text.encode() for text in texts)):
            assert form not in served, name
            assert form.rstrip(b"=")[:20] not in served, f"a part of the {name}"
    for name, password in passwords.items():
        assert password.encode() not in served, name


WIDE = """() => [...document.querySelectorAll("body :not(svg *)")].filter(e => e.checkVisibility()).filter(e => {
    const box = e.getBoundingClientRect(), scrolls = e.parentElement.closest(".scroll, .wide, .ag-root-wrapper");
    return scrolls ? e.matches("td, th, .ag-cell") && box.width > innerWidth : box.right > innerWidth + 1;
}).map(e => e.outerHTML.slice(0, 100))"""


@needs_browser
@second_group
@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [390, 1280])
def test_texts_of_a_hostile_fleet_are_text_and_leave_the_page_as_it_is(tmp_path, visit, width):
    store = sample_store.make(tmp_path / "runs", 50) / store_file.NAME
    sample_store.spoil(store)
    with dashboard(store) as url:
        opened = visit(url, viewport={"width": width, "height": 900})
        page = opened.open()
        for section in opened.sections():
            for chart in page.locator(".chart:visible").all():
                chart.hover()  # its tooltip names what it shows
            opened.require_harmless(width)
            heading = page.get_by_role("heading", level=1).inner_text()
            assert heading.startswith("greenhouses <script>"), section
            assert opened.tile("rounds ended") == "12"
            assert page.evaluate("document.documentElement.scrollHeight") < 5000, "10 kB are cut"
            if section == "Fleet":
                page.get_by_label("search boards").fill("reversed")
                page.wait_for_selector(".ag-row[row-index='0'] >> text=\\u202e\\u2066reversed")


def spoil_result(value, names):
    """The same result with these names for features, classes, attributes and their categories, in
    turn.
    """
    if isinstance(value, list):
        return [spoil_result(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    lists = ("features", "labels", "categories")
    several = {key: [next(names) for _ in value.get(key) or ()] for key in lists}
    named = {"name": next(names)} | {key: texts for key, texts in several.items() if texts}
    return {key: named.get(key) or spoil_result(one, names) for key, one in value.items()}


@needs_browser
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        "train --reports 300",
        "train --model softmax --dataset wine --reports 500",
        "collect --dataset flights-table",
    ],
    ids=["features", "classes", "categories"],
)
def test_a_report_with_hostile_names_is_text_and_fits_its_window(tmp_path, visit, words):
    tern(tmp_path, f"{words} --fleet simulated:500 --quiet --name r --no-report")
    path = tmp_path / "runs" / "r" / "result.json"
    names = itertools.cycle((*sample_store.HOSTILE, "in $\\frac{$"))
    result = spoil_result(json.loads(path.read_text()), names)
    result["dataset"] = " ".join(sample_store.HOSTILE)
    result["options"] |= dict.fromkeys(("dataset", "fleet"), result["dataset"])
    path.write_text(json.dumps(result))
    tern(tmp_path, "runs --draw r")
    for width in (1280, 390):
        opened = visit("", viewport={"width": width, "height": 900})
        opened.page.goto(path.with_name("report.html").as_uri())
        for section in opened.page.locator("summary").all():
            section.click()
        opened.require_harmless(width)
        text = opened.page.locator("body").inner_text()
        assert text.startswith("<script>window.hostile = 1</script>")
        assert "\\u202e\\u2066reversed" in text
        assert "in $\\frac{$" in text


# By section, the sizes (pixels) and the families of all visible texts.
FONTS = """() => [...document.querySelectorAll("main.tern :not(.q-icon)")].filter(e => e.checkVisibility() &&
    [...e.childNodes].some(node => node.nodeType == 3 && node.textContent.trim())).map(e => getComputedStyle(e))
    .map(style => [style.fontSize, style.fontFamily.split(",")[0]])"""


@needs_browser
def test_few_boards_have_a_small_table_and_all_texts_one_font(tmp_path, visit):
    with dashboard(sample_store.make(tmp_path / "runs", 3, rounds=1, planned=3)) as url:
        opened = visit(url)
        page = opened.open("fleet")
        page.wait_for_selector(".ag-row[row-index='2'] >> text=greenhouse-00003")
        table = page.locator(".board-grid").bounding_box()["height"]
        rows = page.locator(".ag-center-cols-container").bounding_box()["height"]
        heads = page.locator(".ag-header").bounding_box()["height"]
        assert 0 <= table - rows - heads < 30, "there is no empty space below the last board"
        for _ in opened.sections():
            assert not page.get_by_role("heading", name="Gateways").is_visible(), "there are none"
            sizes, families = map(set, zip(*page.evaluate(FONTS), strict=True))
            assert sizes <= {"14px", "16px", "22px"}
            assert families <= {"system-ui", "monospace"}
    assert not opened.complaints


@needs_browser
def test_a_report_fits_a_phone_in_light_and_dark_colours_and_can_be_read(tmp_path, visit):
    tern(tmp_path, "train --fleet simulated:1000 --reports 1000 --quiet --name r")
    for scheme, background in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 28)")):
        opened = visit("", viewport={"width": 400, "height": 800}, color_scheme=scheme)
        page = opened.page
        page.goto((tmp_path / "runs" / "r" / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        assert page.evaluate("document.documentElement.scrollHeight") < 3000
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
        heights = page.evaluate(
            "[...document.querySelectorAll('svg text')].map(e => e.getScreenCTM().a *"
            " parseFloat(getComputedStyle(e).fontSize) || 99)"
        )
        assert min(heights) > 10, "pixels on the screen"
        inks = "[...document.querySelectorAll('svg text')].map(e => getComputedStyle(e).fill)"
        assert len(set(page.evaluate(inks))) == 1
        assert not opened.complaints


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
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@second_group
def test_requests_of_other_hosts_and_origins_are_refused(small):
    url, address = small, small.removeprefix("http://").rstrip("/")
    port = int(address.split(":")[1])
    assert ask(url) == ask(url, Host=f"localhost:{port}") == ask(url, "/boards") == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port + 1}",
        "[::1]",
    ):
        assert ask(url, Host=host) == 403
        assert ask(url, "/boards", Host=host) == 403
        assert ask(url, SOCKET, **UPGRADE, Host=host) == 403
    for origin in (
        "http://evil.example",
        "null",
        f"https://{address}",
        f"http://127.0.0.1:{port + 1}",
    ):
        assert ask(url, SOCKET, **UPGRADE, Origin=origin) == 403
        assert ask(url, "/boards", Origin=origin) == 403
    assert ask(url, SOCKET, **UPGRADE, Origin=f"http://{address}") == 101
    listening = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=False).stdout
    assert f"0.0.0.0:{port}" not in listening
    for path in ("/docs", "/openapi.json", "/../store.sqlite", "/store.sqlite"):
        assert ask(url, path) == 404


@needs_browser
@second_group
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)]
)
def test_the_page_beside_a_served_fleet_ends_with_the_host(tmp_path, visit, number):
    words = (
        "--fleet",
        "simulated:200",
        "--interval",
        "0.3",
        "--name",
        "served",
        "--dashboard",
        "0",
    )
    host = rig.Train(*words, cwd=tmp_path, command="serve").process
    url = next(match[0] for line in host.stdout if (match := re.search(r"http://\S+/", line)))
    assert ask(url) == 200
    opened = visit(url)
    opened.open()
    opened.page.wait_for_function(
        "document.querySelector('main.tern .tile .value').textContent > 5"
    )
    opened.close()
    host.send_signal(number)
    host.communicate(timeout=60)

    def gone():
        with suppress(OSError):
            return not ask(url)
        return True

    wait_for(gone)
