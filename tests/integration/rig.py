"""Fleets of real MicroPython processes on ptys, a proxy that damages frames, and readers of
ledgers.
"""

import contextlib
import dataclasses
import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import tty
from pathlib import Path
from subprocess import PIPE

import numpy as np
import warm
from harness import kept
from harness.waiting import wait_for
from warm import TERN

from tern import card as cards
from tern import wire
from ternhost import datasets
from ternhost.cli import main
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question
from ternhost.count.rounds import with_answers
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.learn.schedule import Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import FLEET_NAME, board_directories, provision_fleet
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.fleet import Ports
from ternhost.run import directory as run_directory
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store import store_file
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.micropython import device_command
from terntools.emulators.unix_fleet import FIRMWARE, EmulatedFleet

_STOPPING = [sys.executable, str(Path(__file__).with_name("stopping_host.py"))]


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Its output, one JSON document; assert that it succeeded."""
        assert self.code == 0, self.err
        return json.loads(self.out)


def tern(*words, cwd=".", code=None):
    """Run `tern` in this process, whose imports are done already; `code`: assert this exit code."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = main([str(word) for word in words])
    assert code in (None, ended), err.getvalue()
    return Ended(ended, out.getvalue(), err.getvalue())


def run_program(micropython, *words, cwd=None, timeout=120):
    """Run MicroPython with these words until it ends; return the JSON object in its last line."""
    options = {"cwd": cwd, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    env = {**os.environ, "MICROPYPATH": f"{FIRMWARE}{os.pathsep}.frozen"}
    ended = subprocess.run(device_command(micropython, *words), env=env, timeout=timeout, **options)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


D, CARD = 6, design("three-outputs", 1).card
COST = cards.decode(CARD).epsilon  # micro-epsilon of a report of one coordinate


def _no(*_):
    pass


@dataclasses.dataclass
class Site:
    """A provisioned fleet and its store; runs rounds and reads the ledgers."""

    store: Store
    directories: list[Path]
    micropython: Path

    def boards(self):
        return EmulatedFleet(self.micropython, self.directories)

    def round(
        self, ports, devices, number=1, card=CARD, k=1, report=_no, warn=print, before=_no, **terms
    ):
        """Run one round over `ports`; return the result and the aggregator.

        report: called with the progress. before: called after the boards' hellos, before the first
        request.
        """
        question = Question(wire.LOGISTIC, [100] * D, -14, card, k)
        with BoardsDriver(
            self.store, Ports(ports), Terms(**{"silence": 30.0} | terms), warn=warn
        ) as driver:
            before()
            driver.open(number, [(question, devices)])
            result = driver.collect(number, report)
        self.store.end_round(number, result.ended)
        return result, driver.aggregator

    def ledgers(self):
        return read_ledgers(self.directories)


def ledgers_of_run(run):
    """As read_ledgers, for the emulated boards of a run; a run that has finished keeps them packed."""
    packed = run / run_directory.PACKED_NAME
    if packed.exists():
        assert packed.stat().st_mode & 0o777 == 0o600
        subprocess.run(["tar", "-xzf", packed, "-C", run], check=True)
    return read_ledgers(sorted((run / FLEET_NAME).iterdir()))


def read_ledgers(directories):
    """The ledgers of these boards: device -> (epsilon spent, last round, packed symbols of the last
    report).
    """
    return {
        device: (account.spent, account.round, bytes(account.report)[9 : -wire.TAG_BYTES])
        for device, account in kept.accounts(directories)
    }


def make_site(
    directory, micropython, clients=40, boards=2, largest=COST, budget=COST, classes=None
):
    """Provision a fleet whose clients hold a random record each.

    classes: how many there are whose numbers are the labels; None: labels are numbers in [-1, 1].
    """
    rows = random_rows(7, clients, D + 1)
    if classes is not None:
        rows[:, -1] = np.arange(clients) % classes
    store = Store(directory / store_file.NAME)
    directories = board_directories(directory, boards)
    provision_fleet(store, directories, rows, Policy(largest, budget))
    return Site(store, directories, micropython)


def random_rows(seed, count, width):
    """Records with random features and labels, Q1.14, of shape (count, width)."""
    return np.random.default_rng(seed).integers(-16384, 16385, (count, width), dtype=np.int16)


def provision(directory, rows, policies, boards=1, each=1):
    """Provision boards below `directory`, whose devices hold `each` of the rows; return (path of
    the store, boards).
    """
    directories = board_directories(directory, boards)
    with Store(directory / store_file.NAME) as store:
        provision_fleet(store, directories, rows, policies, each)
    return store.path, directories


def files_below(directory):
    """The files below a board's directory: path on the board -> content."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {f"/{path.relative_to(directory)}": path.read_bytes() for path in paths}


# An ESP32 in QEMU reaches the broker of this machine over its Wi-Fi: `on_broker(..., **WIFI)`.
WIFI = {"host": "10.0.2.2", "server": "localhost", "ssid": "air"}


def on_broker(directory, boards, row=(0, 0), tls=True, **network):
    """Provision boards of one device each for the broker in `directory / "broker"`; return (path of
    the store, boards).

    Each device holds the record `row`. network: see `attach.write_network`. Writes CARD into
    `directory / "card"`.
    """
    rows = np.array([row] * boards, np.int16)
    return attached(directory, boards, rows, Policy(COST, 400 * COST), tls, **network)[:2]


def attached(directory, boards, rows, policy, tls=True, **network):
    """As on_broker, for boards whose clients hold these rows; return (path of the store, boards,
    host's access).
    """
    path, directories = provision(directory, rows, policy, boards)
    access = configure(directory / "broker", path, port=free_port(), tls=tls)
    attach(directories, directory / "broker", path, **network)
    (directory / "card").write_bytes(CARD)
    return path, directories, access


class OnBroker:
    """Emulated boards whose clients hold a record of iris each, and their broker, while the context
    is open.
    """

    def __init__(self, directory, micropython, boards, clients):
        dataset = datasets.load("iris")
        self.rows = dataset.records(dataset.training[:clients])
        policy = Policy(30_000_000, 900_000_000)
        made = attached(directory, boards, self.rows, policy, longest_pause_ms=500)
        self.path, self.directories, self.access = made
        self.name = f"mqtt:{directory / 'broker'}"
        self._micropython = micropython

    def __enter__(self):
        self.broker = Mosquitto(self.path.parent / "broker")
        self.emulated = EmulatedFleet(self._micropython, self.directories).__enter__()
        return self

    def __exit__(self, *problem):
        self.emulated.__exit__(*problem)
        self.broker.close()


def serving_on_broker(directory, store, *options):
    """`tern serve` for the boards of `on_broker`, as a process."""
    return Train(
        "--store",
        store,
        "--fleet",
        f"mqtt:{directory}/broker",
        "--data",
        f"devices:{D}",
        "--k",
        1,
        "--card",
        directory / "card",
        *options,
        "--no-report",
        "--json",
        cwd=directory,
        command="serve",
    )


def begin(algorithm="fedsgd", *, store=None, watcher=None, anew=False, name=None, **options):
    """Begin a run below ./runs. options: those of all parts of RunOptions."""
    options = RunOptions.parse(algorithm, options, ALGORITHMS)
    return Run.begin(options, Place(name, store=store, anew=anew), watcher)


def finish(algorithm="fedsgd", **options):
    """Begin a run, and return its result."""
    with begin(algorithm, **options) as run:
        return run.run()


def replay(store):
    """Let a new algorithm learn from the stored reports of the store's only run; return it."""
    (stored,) = store.runs()
    fresh = {**stored.state, "algorithm": None}
    store.save_run(stored.name, state=fresh)
    store._db.execute("UPDATE round SET ended = NULL")
    cls = ALGORITHMS.named(stored.asked["algorithm"])
    algorithm = cls(cls.Options(**stored.asked["learning"]), Population(knows_records=False))
    aggregator = Aggregator(store)
    for number in aggregator.resume(0.0):
        if result := aggregator.ended(number, 0.0):
            answers = store.report_batches(number), store.round_devices(number)
            algorithm.learn(with_answers(result, *answers), ())
    return algorithm


def assert_counted_once(store, ledgers, number, devices, cost=COST):
    """Assert that each of these devices has one report in the store, the one in its ledger, and has
    paid for one.
    """
    reports = dict(store.reports(number))
    assert sorted(reports) == sorted(devices)
    for device in devices:
        assert ledgers[device] == (cost, number, reports[device])


class Proxy:
    """A pty between a host and the port of a board.

    `down` and `up` (bytes -> bytes) change what passes.
    """

    def __init__(self, port, down=lambda data: data, up=lambda data: data):
        self._board = os.open(port, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self._board)
        self._far, self._near = os.openpty()
        tty.setraw(self._near)
        self.port = os.ttyname(self._near)
        self._ways = {self._far: (down, self._board), self._board: (up, self._far)}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._pass, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        for end in (self._board, self._far, self._near):
            os.close(end)

    def _pass(self):
        while not self._end.is_set():
            for source in select.select(list(self._ways), [], [], 0.05)[0]:
                change, sink = self._ways[source]
                os.write(sink, change(os.read(source, 4096)))


class Train:
    """`tern train`, or another command such as "board up", as a process of its own.

    stop_after: it stops, as by SIGSTOP, once this many reports are in its store.
    """

    def __init__(self, *arguments, cwd, stop_after=0, command="train", **options):
        program = [*_STOPPING, str(stop_after)] if stop_after else TERN
        words = [*program, *command.split(), *map(str, arguments)]
        self.process = warm.Popen(words, stdout=PIPE, stderr=PIPE, text=True, cwd=cwd, **options)

    def wait_until_stopped(self):
        def stopped():
            assert self.process.poll() is None, self.process.stderr.read()
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)

        wait_for(stopped, 120)

    def signal(self, number):
        """Send a signal, and continue a stopped process."""
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)

    def finish(self, code=0, number=None):
        """Wait for its end, after a signal `number`, and assert its exit code; return (standard
        output, error).
        """
        if number:
            self.signal(number)
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == code, err
        return out, err
