"""Fleets of real MicroPython processes on ptys, a proxy that damages what passes, and what ledgers say."""

import contextlib
import dataclasses
import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import tty
from pathlib import Path

import numpy as np
import warm
from warm import TERN

from tern import card as cards
from tern import ledger, storage, wire
from ternhost import datasets
from ternhost.cli import main
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question
from ternhost.count.rounds import with_answers
from ternhost.learn.base import ALGORITHMS, Population
from ternhost.learn.schedule import Schedule, Terms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision import keys
from ternhost.provision.boards import FLEET_NAME, board_directories, provision_fleet
from ternhost.reach.broker.configuration import configure
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.ports.driver import BoardsDriver
from ternhost.reach.ports.fleet import Ports
from ternhost.run import directory as run_directory
from ternhost.run import serve as serving
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store import store_file
from ternhost.store.store import Store
from terntools.boards.attach import attach
from terntools.emulators.unix_fleet import EmulatedFleet

_STOPPING = [sys.executable, str(Path(__file__).with_name("stopping_host.py"))]


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Its last line of output; assert that it succeeded."""
        assert self.code == 0, self.err
        return json.loads(self.out.splitlines()[-1])


def tern(*words, cwd="."):
    """Run `tern` in this process, with what that has imported and compiled already."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Ended(code, out.getvalue(), err.getvalue())


D = 6
CARD = design("three-outputs", 1).card
COST = cards.decode(CARD).epsilon  # micro-epsilon of a report of one coordinate


@dataclasses.dataclass
class Site:
    """A provisioned fleet and its store, with ways to run rounds and to look at what became of them."""

    store: Store
    directories: list[Path]
    micropython: Path

    def boards(self):
        return EmulatedFleet(self.micropython, self.directories)

    def round(
        self,
        ports,
        devices,
        number=1,
        card=CARD,
        k=1,
        report=lambda progress: None,
        warn=print,
        before=lambda: None,
        deadline=None,
        silence=30.0,
    ):
        """Run one round over `ports`; return the result and the aggregator.

        before: called when the boards have said hello, and none has been asked yet.
        """
        question = Question(wire.LOGISTIC, [100] * D, -14, card, k)
        terms = Terms(deadline=deadline, silence=silence)
        with BoardsDriver(self.store, Ports(ports), terms, warn=warn) as driver:
            before()
            driver.open(number, [(question, devices)])
            result = driver.collect(number, report)
        self.store.end_round(number, result.ended)
        return result, driver.aggregator

    def ledgers(self):
        return read_ledgers(self.directories)


def ledgers_of_run(run):
    """read_ledgers of the emulated boards of a run, which may have finished."""
    packed = run / run_directory.PACKED_NAME
    if packed.exists():
        assert packed.stat().st_mode & 0o777 == 0o600
        subprocess.run(["tar", "-xzf", packed, "-C", run], check=True)
    return read_ledgers(sorted((run / FLEET_NAME).iterdir()))


def read_ledgers(directories):
    """Device -> (spent, last round, packed symbols of the last report) of every ledger of these boards."""
    found = {}
    account = ledger.Ledger()
    for directory in directories:
        for path in (directory / storage.LEDGERS).iterdir():
            if path.suffix == ".new":  # left by a kill while it was written; the device never reads it
                continue
            account.load(str(path))
            found[int(path.name, 16)] = (
                account.spent,
                account.round,
                bytes(account.report)[9 : -wire.TAG_BYTES],
            )
    return found


def make_site(directory, micropython, clients=40, boards=2, largest=COST, budget=COST):
    """Provision a fleet whose clients hold a random record each."""
    rows = np.random.default_rng(7).integers(-16384, 16385, (clients, D + 1), dtype=np.int16)
    store = Store(directory / store_file.NAME)
    directories = board_directories(directory, boards)
    provision_fleet(store, directories, rows, Policy(largest, budget))
    return Site(store, directories, micropython)


def on_broker(directory, boards, row=(0, 0), tls=True, **network):
    """(store, directories) of boards with a device each, which the broker in the folder `broker` lets in.

    Each device holds one record. network: as of `attach.write_network`. The folder holds CARD, too.
    """
    rows = np.array([row] * boards, np.int16)
    return _attached(directory, boards, rows, Policy(COST, 400 * COST), tls, **network)[:2]


def _attached(directory, boards, rows, policy, tls=True, **network):
    path = directory / store_file.NAME
    directories = board_directories(directory, boards)
    with Store(path) as store:
        provision_fleet(store, directories, rows, policy)
        keys.fleet_key(store)
    access = configure(directory / "broker", path, port=free_port(), tls=tls)
    attach(directories, directory / "broker", path, **network)
    (directory / "card").write_bytes(CARD)
    return path, directories, access


class OnBroker:
    """A store, emulated boards whose clients hold a record of iris each, and their broker. A context manager."""

    def __init__(self, directory, micropython, boards, clients):
        dataset = datasets.load("iris")
        self.rows = dataset.records(dataset.training[:clients])
        policy = Policy(30_000_000, 900_000_000)
        self.path, self.directories, self.access = _attached(
            directory, boards, self.rows, policy, longest_pause_ms=500
        )
        self.name = f"mqtt:{directory / 'broker'}"
        self._micropython = micropython

    def __enter__(self):
        self.broker = Mosquitto(self.path.parent / "broker")
        self.emulated = EmulatedFleet(self._micropython, self.directories).__enter__()
        return self

    def __exit__(self, *problem):
        self.emulated.__exit__(*problem)
        self.broker.stop()


def serving_on_broker(directory, store, *options):
    """`tern serve` of such boards, as a process."""
    return Train(
        "--store", store, "--fleet", f"mqtt:{directory}/broker", "--dimension", D, "--k", 1,
        "--card", directory / "card", *options, "--no-report", "--json", cwd=directory, command="serve",
    )  # fmt: skip


def begin(algorithm="fedsgd", *, store=None, watcher=None, anew=False, name=None, **options):
    """Begin a run, below ./runs. options: of any part of RunOptions."""
    options = RunOptions.parse(algorithm, options, ALGORITHMS)
    return Run.begin(options, store=store, watcher=watcher, anew=anew, name=name)


def finish(algorithm="fedsgd", **options):
    """The result of such a run."""
    with begin(algorithm, **options) as run:
        return run.run()


def serve(algorithm, options, fleet, watcher, **schedule):
    """A served run: that of the fleet's store, or a new one."""
    learning = ALGORITHMS.named(algorithm).Options(**options)
    options = RunOptions(algorithm, learning, fleet, schedule=Schedule(**schedule))
    return serving.serve(options, watcher=watcher)


def resume(text, **options):
    """The result of a run that is resumed."""
    with Run.resume(str(text), **options) as run:
        return run.run()


def replay(store):
    """The algorithm of the store's only run, taught anew what the store holds."""
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
    """Every device asked has one report in the store, the one in its ledger, and has paid for one."""
    reports = dict(store.reports(number))
    assert sorted(reports) == sorted(devices)
    for device in devices:
        assert ledgers[device] == (cost, number, reports[device])


class Proxy:
    """A pty that passes bytes to and from the port of a board, through `down` and `up`: bytes -> bytes."""

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


class Damage:
    """Flips bits, drops and repeats bytes, each with `probability`, once `on` is set; counts what it did."""

    def __init__(self, seed, probability):
        self._random = random.Random(seed)
        self._probability = probability
        self.on = True
        self.done = 0

    def __call__(self, data):
        out = bytearray()
        for byte in data:
            what = self._random.random() / self._probability
            if not self.on or what >= 1:
                out.append(byte)
                continue
            self.done += 1
            if what < 0.5:
                out.append(byte ^ 1 << self._random.randrange(8))
            elif what < 0.75:
                out += bytes([byte, byte])
        return bytes(out)


class Train:
    """`tern train`, or another command, as a process of its own.

    stop_after: it stops in the midst of what it does after so many reports.
    """

    def __init__(self, *arguments, cwd, stop_after=0, command="train", **options):
        program = [*_STOPPING, str(stop_after)] if stop_after else TERN
        self.process = warm.Popen(
            [*program, command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            **options,
        )

    def wait_until_stopped(self):
        end = time.monotonic() + 120
        while not os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.01)

    def signal(self, number):
        """Send it a signal, and let it go on."""
        self.process.send_signal(number)
        self.process.send_signal(signal.SIGCONT)

    def finish(self):
        """(exit code, standard output, standard error)."""
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err
