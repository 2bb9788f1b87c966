"""A store for tests and pictures of the dashboard: with a run, boards and an open round."""

import random
import time

import numpy as np

from tern import wire
from ternhost.count.members import integers
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import Cohort, Reports, Round
from ternhost.learn.fedsgd import Options
from ternhost.privacy import mechanisms
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import END, Watcher
from ternhost.store.boards import BoardRow
from ternhost.store.store import Store

NAME = "greenhouses"
CARD = mechanisms.design("three-outputs", epsilon_micro=2_000_000).decode()
BODY = round_body(1, Question(wire.LOGISTIC, [0] * 28, wire.MAX_EXPONENT, bytes(CARD.data), 1))


def key_of(device):
    """A key that occurs nowhere by chance."""
    return random.Random(device).randbytes(32)


FLEET_KEY = random.Random("fleet").randbytes(32)


def boards(count, now=None, seed=1):
    """Yield the rows of `count` boards, with plausible values."""
    now, chance = now or time.time(), random.Random(seed)
    for i in range(count):
        failed = chance.random() < 0.02
        yield BoardRow(
            f"greenhouse-{i + 1:05d}",
            i + 1,
            1,
            chance.random() < 0.97,
            now - chance.expovariate(1 / 20),
            {
                "budget": int(1e6 * (2 * chance.randint(1, 4) - 0.2)),
                "epoch": 1,
                "heap": chance.randrange(60_000, 150_000),
                "exceptions": int(failed),
                "restarts": chance.choice((0, 0, 0, 1, 2)),
                "entropy": 1,
                "assessed": 1,
                "release": chance.choice(("0.1.0", "0.1.0", "0.1.0", "0.0.9")),
                "text": chance.choice(("rp2 1.25", "esp32 1.25")),
                "records": 30,
            },
            int(failed),
            chance.choice(("budget", "timeout")) if failed else None,
        )


def make(parent, count=10_000, rounds=12, planned=20, **options):
    """Make a run below `parent` with `count` boards of one device each and an open round; return its directory.

    It was stopped after `rounds` of the `planned` rounds (or more). Each round asks other devices.
    """
    group = max(1, count // planned)
    options = RunOptions("fedsgd", Options(reports=count, group=group, **options), f"simulated:{count}")

    def watch(status):
        if status.event == END and status.round >= rounds:
            run.stop()

    with Run.begin(options, name=NAME, parent=parent, watcher=Watcher(status=watch)) as run:
        run.run()
        directory, path = run.directory, run.files.store
    with Store(path) as store:
        store.add_devices({device: key_of(device) for device in range(1, count + 1)})
        store.save_state({"fleet_key": FLEET_KEY.hex()})
        store.boards_seen(boards(count))
        store.save_run(NAME, asked={**store.run(NAME).asked, "fleet": f"mqtt:{NAME}"})
        first = rounds * group + 1
        begin_round(store, rounds + 1, range(first, first + group))
        report(store, rounds + 1, range(first, first + (3 * group + 4) // 5))
    return directory


def begin_round(store, number, devices, run=NAME):
    """Open a round that asks these devices."""
    store.open_round(Round(number, [Cohort(BODY, devices)], len(devices), 3600.0, run))


def reports_of(number, payloads):
    """Make Reports from (device, packed symbols), one for each length."""
    by_size = {}
    for device, symbols in payloads:
        by_size.setdefault(len(symbols), []).append((device, symbols))
    return [
        Reports(
            number,
            integers([device for device, _ in rows]),
            np.frombuffer(b"".join([symbols for _, symbols in rows]), np.uint8).reshape(len(rows), size),
        )
        for size, rows in by_size.items()
    ]


def report(store, number, devices):
    """Add a report of each of these devices."""
    store.add_reports(reports_of(number, [(device, bytes([device % 3])) for device in devices]))


def end_round(store, number, count, run=NAME, **figures):
    """End a round, from which the run has learned these figures."""
    state = store.run(run).state
    state = {**state, "rounds": state["rounds"] + 1, "reports": state["reports"] + count}
    entry = {"round": number, "asked": count, "ended": "quorum", "reports": count, "refusals": 0, **figures}
    store.end_run_round(run, number, "quorum", state, entry, None, (), time.time() - 1)
