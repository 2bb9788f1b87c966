"""A whole fleet under faults: emulated boards, a bad network, Mosquitto and `tern serve`, which can
be killed at any time; and the check that its books balance in the end.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import report_frames
import warm
from spec import answers

from harness import kept
from harness.attackers import Flood, Liar, attackers, slow_reader
from harness.proxy import Faults, Proxy
from tern import card as cards
from tern import coordinates, storage, wire
from tern.links import mqtt
from ternhost.count.questions import decode_body, question_of
from ternhost.count.rounds import COMPLETE, CohortCounts, RoundResult
from ternhost.learn.base import Population
from ternhost.learn.models.fedsgd import FedSGD
from ternhost.learn.schedule import Schedule
from ternhost.privacy.accounting import Policy
from ternhost.privacy.mechanisms import design
from ternhost.provision import keys
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import Access
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.store import store_file
from ternhost.store.store import Store
from terntools.boards.attach import write_network
from terntools.emulators.micropython import find_micropython
from terntools.emulators.unix_fleet import EmulatedFleet

D, K = 6, 2
CARD = design("three-outputs", epsilon_micro=1_000_000).card
COST = K * cards.decode(CARD).epsilon  # micro-epsilon of a report
_JUMPING = [sys.executable, str(Path(__file__).with_name("jumping_host.py"))]
_CLOCK = "clock"
_JUMPS = (-1e9, -86400.0, -3600.0, -1.0, 1.0, 3600.0, 86400.0, 1e9)  # s
_FLOOD = 1.0  # s
_PATIENCE = 0.3  # s
_INTERVAL = 0.7  # s between rounds, so that every deed has its turn
_DEADLINE = 120  # s


class Arena:
    """A fleet of `clients` on `boards`, with a budget for `rounds`. A context manager."""

    def __init__(self, directory, clients, boards, rounds, faults=None, seed=1):
        self.directory, self.rounds = Path(directory), rounds
        self.clients = clients
        self.faults = faults or Faults()
        self.happened, self._random = Counter(), random.Random(seed)
        rows = np.random.default_rng(seed).integers(-16384, 16385, (clients, D + 1), dtype=np.int16)
        self.boards = board_directories(self.directory, boards)
        self.path = self.directory / store_file.NAME
        self.budget = COST * rounds
        with Store(self.path) as store:
            provision_fleet(store, self.boards, rows, Policy(COST, self.budget))
            self.keys = store.keys()
            self.fleet_key, self.epoch = keys.fleet_key(store)
        broker = self.directory / "broker"
        self.access = configuration.write_configuration(
            broker, self.keys, configuration.BrokerOptions(port=free_port())
        )
        liar, self._reader = attackers(self.access, broker, "liar", "reader")
        self._liar = Liar(liar, CARD, D, K, seed)
        self._floods, self._slow, self._halted = [], [], []
        (self.directory / "card").write_bytes(CARD)
        (self.directory / _CLOCK).write_text("0")
        self.host = None

    def __enter__(self):
        self.broker = Mosquitto(self.directory / "broker")
        self.proxy = Proxy(self.access, self.directory / "broker", self.faults).__enter__()
        self.write_network()
        self.fleet = EmulatedFleet(find_micropython(), self.boards).__enter__()
        return self

    def __exit__(self, *problem):
        self._quiet()
        self.fleet.__exit__(*problem)
        self.proxy.__exit__(*problem)
        self.broker.close()

    def write_network(self, **options):
        """Write the network files of the boards, with the address of the proxy."""
        by_proxy = Access(self.access.host, self.proxy.port, "", "", self.access.authority)
        for board in self.boards:
            write_network(
                board, by_proxy, self.fleet_key, epoch=self.epoch, longest_pause_ms=1000, **options
            )

    # Deeds

    def host_command(self, **options):
        """The command that serves this fleet. options: added to the usual ones, or instead of them."""
        options = {
            "store": self.path,
            "fleet": f"mqtt:{self.directory / 'broker'}",
            "data": f"devices:{D}",
            "card": self.directory / "card",
            "k": K,
            "rounds": self.rounds,
            "horizon": self.rounds,
            "deadline": _DEADLINE,
            "patience": _PATIENCE,
            **options,
        }
        words = [str(word) for name, value in options.items() for word in ("--" + name, value)]
        return [*_JUMPING, str(self.directory / _CLOCK), "serve", "--json", "--no-report", *words]

    def start_host(self):
        with open(self.directory / "host.log", "ab") as log:
            self.host = warm.Popen(
                self.host_command(every=_INTERVAL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )

    def kill_host(self):
        if self.host:
            self.host.kill()
            self.host.wait()

    def restart_host(self):
        self.kill_host()
        self.start_host()
        self.happened["host killed"] += 1

    def restart_broker(self):
        self.broker.kill()
        time.sleep(self._random.random())
        self.broker.start()
        self.happened["broker killed"] += 1

    def cut_power(self):
        self._random.choice(self.fleet.boards).restart()
        self.happened["boards cut off"] += 1

    def jump_clock(self):
        """Set the host's wall clock back or forward."""
        clock = self.directory / _CLOCK
        clock.with_suffix(".new").write_text(str(self._random.choice(_JUMPS)))
        clock.with_suffix(".new").replace(clock)
        self.happened["clock jumps"] += 1

    def halt(self):
        """Stop the host, the broker or a board for a while; for it, all other clocks jump ahead."""
        a_board = self._random.choice(self.fleet.boards)
        process = self._random.choice((self.host, self.broker, a_board))
        has_ended = process is self.host and process.poll() is not None
        if has_ended or process.pid is None:  # its id may belong to another by now
            return
        os.kill(process.pid, signal.SIGSTOP)
        waker = threading.Timer(0.5 + self._random.random(), _wake, (process.pid,))
        waker.start()
        self._halted.append(waker)
        self.happened["processes halted"] += 1

    def lie(self):
        """Attack one client of each board as a Liar does."""
        with Store(self.path, create=False, beside=True) as store:
            complete = [
                number for number, _, reports in kept.ended_rounds(store) if reports == self.clients
            ]
        for board in self.boards:
            clients = storage.Clients(str(board / storage.CLIENTS))
            device = clients.first + self._random.randrange(clients.count)
            name = mqtt.name(clients.first)
            clients.close()
            last = max(complete, default=0)
            self._attempt(self._liar.attack, name, device, self.keys[device], last)

    def flood(self):
        """Flood the broker with a device's password."""
        self._attempt(lambda: self._floods.append(Flood(self.access, self.keys, 2, _FLOOD)))

    def read_slowly(self):
        """Connect a host that subscribes to everything and never reads."""
        self._attempt(lambda: self._slow.append(slow_reader(self._reader)))

    @staticmethod
    def _attempt(attack, *arguments):
        with suppress(OSError):  # the broker is halted or gone, and so is the attacker's connection
            attack(*arguments)

    def end(self):
        """End faults, attackers, host and boards; return all differences."""
        self.faults.on = False
        self._quiet()
        for board in self.fleet.boards:
            board.kill()
        return list(self.differences())

    def _quiet(self):
        for waker in self._halted:
            waker.join()
        for flood in self._floods:
            flood.join()
        for client in self._slow:
            client.close()
        self.kill_host()

    def ended(self):
        """The number of rounds that have ended."""
        with Store(self.path, create=False, beside=True) as store:
            return len(kept.ended_rounds(store))

    def run(self, deeds, timeout, until=None):
        """Serve all rounds, or those that end before `until` (a monotonic time); return how many
        have ended.

        deeds: (share of the rounds after whose end it is called, function).
        """
        deeds = sorted(deeds, key=lambda deed: deed[0])
        end = time.monotonic() + timeout
        self.start_host()
        while (done := self.ended()) < self.rounds and not (until and time.monotonic() > until):
            while deeds and done >= deeds[0][0] * self.rounds:
                deeds.pop(0)[1]()
            assert self.host.poll() in (None, 0), f"the host ended: {self.tail()}"
            assert time.monotonic() <= end, f"{done} of {self.rounds} rounds: {self.tail()}"
            time.sleep(0.05)
        if not until:
            for _, deed in deeds:  # the last rounds were faster
                deed()
        return done

    def tail(self):
        """The ends of the logs of host and boards."""
        logs = [self.directory / "host.log", *(board / "board.log" for board in self.boards)]
        return "\n".join(log.read_text(errors="replace")[-500:] for log in logs if log.exists())

    # The books

    def differences(self):
        """A line for everything that does not balance."""
        different = self.proxy.different
        lines = [
            f"two reports for round {number} of device {device}" for device, number in different
        ]
        with Store(self.path, create=False, beside=True) as store:
            return [*lines, *self._rounds(store), *self._ledgers(store)]

    def _rounds(self, store):
        # Computes the model after each round again, from the reports in the store, with code of the
        # device library.
        options = FedSGD.Options(data=f"devices:{D}", card=CARD.hex(), k=str(K))
        population = Population(
            schedule=Schedule(self.rounds), devices=self.clients, knows_records=False
        )
        algorithm = FedSGD(options, population)
        chosen, symbols = array("H", bytes(2 * K)), array("H", bytes(2 * K))
        bodies = {round_.number: round_.cohorts[0].body for round_ in store.rounds()}
        for number, _, reports in kept.ended_rounds(store):
            question = question_of(decode_body(bodies[number]))
            card = cards.decode(question.card)
            counts = np.zeros((D, card.symbols), np.int64)
            rows = store.reports(number)
            for device, payload in rows:
                digest = answers.question(self.keys[device], device, bodies[number])
                coordinates.choose(digest, D, K, chosen)
                report_frames.unpack(payload, K, card.symbols, symbols)
                for coordinate, symbol in zip(chosen, symbols, strict=True):
                    counts[coordinate, symbol] += 1
            if len(rows) != reports or len({device for device, _ in rows}) != reports:
                yield f"round {number}: {reports} reports, {len(rows)} rows"
            cohort = CohortCounts(card, K, counts, self.clients, question)
            algorithm.learn(RoundResult(number, COMPLETE, self.clients, reports, {}, [cohort]), [])
            if kept.weights(store, number) != algorithm.weights.astype("<f8").tobytes():
                yield f"round {number}: the counts are not those of the accepted reports"

    def _ledgers(self, store):
        numbers = range(1, store.last_round() + 1)
        stored = {
            (device, number): row for number in numbers for device, row in store.reports(number)
        }
        accepted = Counter(device for device, _ in stored)
        released = self.proxy.released()
        for device, account in kept.accounts(self.boards):
            if account.spent > min(account.budget, self.budget):
                yield f"device {device} has spent {account.spent} of {account.budget}"
            reports = max(accepted[device], released[device])
            if account.spent < COST * reports:
                yield f"device {device} has paid {account.spent} for {reports} reports"
            if account.spent > COST * store.last_round():
                yield f"device {device} has paid {account.spent} for {store.last_round()} rounds"
            recorded = bytes(account.report)[9 : -wire.TAG_BYTES]
            if recorded and stored.get((device, account.round), recorded) != recorded:
                yield f"device {device}: the report counted is not the one recorded"

    def summary(self):
        """The faults injected, and the fates of frames by the last status line of each host, as a
        dictionary.
        """
        fates, latest = Counter(), Counter()
        for line in (self.directory / "host.log").read_text().splitlines():
            try:
                status = json.loads(line)
            except ValueError:
                continue
            if "frames" not in status:  # a note, or the result
                continue
            if status["frames"].get("accepted", 0) < latest["accepted"]:  # the next process
                fates += latest
            latest = Counter(status["frames"])
        fates += latest
        with Store(self.path, create=False, beside=True) as store:
            accepted = store.report_count()
        return {
            "clients": self.clients,
            "boards": len(self.boards),
            "rounds": self.ended(),
            "injected": dict(self.faults.injected + self.happened + self._attacks()),
            "reports_sent": self.proxy.reports,
            "accepted": accepted,
            "refused": {fate: count for fate, count in fates.items() if fate != "accepted"},
            "refused_by_devices": dict(self.proxy.errors),
        }

    def _attacks(self):
        floods = sum(flood.sent for flood in self._floods)
        return self._liar.injected + Counter({"flood": floods, "slow reader": len(self._slow)})


def _wake(pid):
    with suppress(ProcessLookupError):  # killed meanwhile
        os.kill(pid, signal.SIGCONT)
