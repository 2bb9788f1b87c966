"""A store for tests and pictures of the dashboard: with a run, boards and an open round."""

import json
import random
import time

import numpy as np

from tern import wire
from ternhost.count.members import integers
from ternhost.count.questions import Question, round_body
from ternhost.count.rounds import Reports, StoredCohort, StoredRound
from ternhost.learn.models.fedsgd import Options
from ternhost.privacy import mechanisms
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import END, Watcher
from ternhost.store.boards import BoardRow
from ternhost.store.fleet_key import fleet_key
from ternhost.store.runs import EndedRound
from ternhost.store.store import Store

NAME = "greenhouses"
CARD = mechanisms.design("three-outputs", epsilon_micro=2_000_000).decode()
BODY = round_body(1, Question(wire.LOGISTIC, [0] * 28, wire.MAX_EXPONENT, bytes(CARD.data), 1))


def key_of(device):
    """A key that occurs nowhere by chance."""
    return random.Random(device).randbytes(32)


FLEET_KEY = random.Random("fleet").randbytes(32)


TEXTS = (
    "rp2040; micropython 1.28.0; tern 0.1.0; program greenhouse 3; 27 C",
    "Generic ESP32 module; micropython 1.28.0; tern 0.1.0; program greenhouse 2",
)


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
                "spent": 200_000,
                "measure": 0,
                "unit": 0,
                "epoch": 1,
                "heap": chance.randrange(60_000, 150_000),
                "exceptions": int(failed),
                "restarts": chance.choice((0, 0, 0, 1, 2)),
                "entropy": 1,
                "assessed": 1,
                "release": chance.choice(("0.1.0", "0.1.0", "0.1.0", "0.0.9")),
                "text": chance.choice(TEXTS),
                "records": 30,
            },
            int(failed),
            chance.choice(("budget", "timeout")) if failed else None,
        )


def make(parent, count=10_000, rounds=12, planned=20, **options):
    """Make a run below `parent` with `count` boards of one device each and an open round; return
    its directory.

    It was stopped after `rounds` of the `planned` rounds (or more). Each round asks other devices.
    """
    group = max(1, count // planned)
    options = RunOptions(
        "fedsgd", Options(reports=count, group=group, **options), f"simulated:{count}"
    )

    def watch(status):
        if status.event == END and status.round >= rounds:
            run.stop()

    with Run.begin(options, Place(NAME, parent), Watcher(status=watch)) as run:
        run.run()
        directory, path = run.directory, run.files.store
    with Store(path) as store:
        store.add_devices({device: key_of(device) for device in range(1, count + 1)})
        store.save_state({"fleet key": [FLEET_KEY.hex(), 1]})
        assert fleet_key(store).key == FLEET_KEY, "it is where the key of a fleet is"
        store.boards_seen(boards(count))
        store.save_run(NAME, asked={**store.run(NAME).asked, "fleet": f"mqtt:{NAME}"})
        first = rounds * group + 1
        begin_round(store, rounds + 1, range(first, first + group))
        report(store, rounds + 1, range(first, first + (3 * group + 4) // 5))
    return directory


def begin_round(store, number, devices, run=NAME):
    """Open a round that asks these devices."""
    store.open_round(StoredRound(number, [StoredCohort(BODY, devices)], len(devices), 3600.0, run))


def reports_of(number, payloads):
    """Make Reports from (device, packed symbols), one for each length."""
    by_size = {}
    for device, symbols in payloads:
        by_size.setdefault(len(symbols), []).append((device, symbols))
    return [
        Reports(
            number,
            integers([device for device, _ in rows]),
            np.frombuffer(b"".join([symbols for _, symbols in rows]), np.uint8).reshape(
                len(rows), size
            ),
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
    entry = {
        "round": number,
        "asked": count,
        "ended": "quorum",
        "reports": count,
        "refusals": 0,
        **figures,
    }
    ended = EndedRound(number, "quorum", entry, began=time.time() - 1)
    store.end_run_round(run, state, ended)


CANARY = "window.hostile = 1"
HOSTILE = (
    f"<script>{CANARY}</script>",
    f'<img src=x onerror="{CANARY}">',
    f'"><svg/onload="{CANARY}">',
    "</script></title></textarea><iframe src=//hostile.invalid>",
    f"'-({CANARY})-'",
    f"`${{{CANARY}}}`",
    f"{{{{constructor.constructor('{CANARY}')()}}}}",
    f"javascript:{CANARY}",
    "{a|%s}{0}\\\\u003cb>",
    "\u202e\u2066reversed\u200b\ufeff",
    "\x1b[2J\x1b]0;hostile\x07\r\nround 9: all is well\x9b31m\x00",
    "Z" + "\u0337" * 200,
    "wide" * 2500,
)


def fill_with_hostile_text(path, name=NAME):
    """Put HOSTILE wherever the store of a made run holds text of boards, sites and learners: in
    turn or as a whole.

    Returns the new name of the run.
    """
    whole = " ".join((name, *HOSTILE))
    with Store(path) as store:
        asked, number = store.run(name).asked, store.last_round() - 1
        references = {**asked["references"], "measures": [*asked["references"]["measures"], whole]}
        for each in references["classes"]:
            each |= {"mechanism": whole, "card_hash": whole}
        learning = {**asked["learning"], "data": whole}
        asked = {
            **asked,
            "algorithm": whole,
            "fleet": whole,
            "references": references,
            "learning": learning,
        }
        store.save_run(name, asked=asked)
        said = (
            {"budget": i, "entropy": 1, "release": text, "text": text}
            for i, text in enumerate(HOSTILE)
        )
        named = enumerate(zip(HOSTILE, said, strict=True), 1)
        now = time.time()
        store.boards_seen(
            BoardRow(text, i, 1, i > 1, now, hello, 1, text) for i, (text, hello) in named
        )
        with store.transaction():
            execute = store._db.execute
            (entry,) = execute("SELECT entry FROM history WHERE number = ?", (number,)).fetchone()
            entry = {
                **json.loads(entry),
                "ended": whole,
                "reasons": {whole: 3},
                whole: 0.5,
                "refusals": 3,
            }
            execute("UPDATE history SET entry = ? WHERE number = ?", (json.dumps(entry), number))
            execute("PRAGMA defer_foreign_keys = ON")
            for table, column in (
                ("run", "name"),
                ("history", "run"),
                ("model", "run"),
                ("round", "run"),
            ):
                execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (whole, name))
    return whole
