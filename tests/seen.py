"""A store with something to see, for tests and pictures of the dashboard: a run, boards, a round under way."""

import random
import time

from tern import wire
from ternhost import mechanisms
from ternhost.aggregate.board_table import BoardRow
from ternhost.aggregate.questions import Question, round_body
from ternhost.aggregate.report_log import reports_of
from ternhost.aggregate.run_table import RUNNING
from ternhost.aggregate.store import Cohort, Round, Store
from ternhost.algorithms.fedsgd import Options
from ternhost.runs.options import Where
from ternhost.runs.run import Run

CARD = mechanisms.design("three-outputs", epsilon_micro=2_000_000).decode()
BODY = round_body(1, Question(wire.LOGISTIC, [0] * 28, wire.MAX_EXPONENT, bytes(CARD.data), 1))


def key_of(device):
    """A key that is not found anywhere by chance."""
    return random.Random(device).randbytes(32)


FLEET_KEY = random.Random("fleet").randbytes(32)


def boards(count, now=None, seed=1):
    """What so many boards may say of themselves."""
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


def make(parent, count=10_000, reports=2_000, group=100, name="greenhouses"):
    """The directory of a run in `parent` with so many boards, whose last round is under way."""
    options = Options(reports=reports, group=group)
    with Run.begin("fedsgd", options, Where(fleet=f"simulated:{reports}"), name=name, parent=parent) as run:
        run.run()
        directory, path = run.directory, run.place.store
    with Store(path) as store:
        store.add_devices({device: key_of(device) for device in range(1, count + 1)})
        store.save_state({"fleet_key": FLEET_KEY.hex()})
        store.boards_seen(boards(count))
        asked = {
            **store.run(name).asked,
            "where": {**store.run(name).asked["where"], "fleet": "mqtt:greenhouses"},
        }
        store.save_run(name, status=RUNNING, asked=asked)
        begin_round(store, reports // group + 1, count, name)
        report(store, reports // group + 1, range(1, count * 3 // 5))
    return directory


def begin_round(store, number, count, run="greenhouses"):
    """Ask all of so many devices."""
    store.open_round(Round(number, [Cohort(BODY, range(1, count + 1))], count, 3600.0, run))


def report(store, number, devices):
    """Accept a report of each of these devices."""
    store.add_reports(reports_of(number, [(device, bytes([device % 3])) for device in devices]))


def end_round(store, number, count, run="greenhouses", **figures):
    """End a round of which the run has learned these figures."""
    state = store.run(run).state
    state = {**state, "rounds": state["rounds"] + 1, "reports": state["reports"] + count}
    entry = {"round": number, "asked": count, "ended": "quorum", "reports": count, "refusals": 0, **figures}
    store.end_run_round(run, number, "quorum", state, entry, None, (), time.time() - 1)
