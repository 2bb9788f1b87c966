"""Twenty emulated wearable boards learn activities through a broker, all on this machine.

python examples/activity/run.py [--boards 20] [--windows 640] [--run-epsilon 4] [--unit device] [--json]

Each board runs main.py with a person of its own. Each run of 47 windows, about a minute, is
protected at (--run-epsilon, 1e-6) for life: the boards' ledgers hold that budget, and this run spends it.
With --unit device, one report of each board protects all its windows, with the epsilon --run-epsilon.
Then each board goes on with the model that it was sent, and counts how often it is right about new
windows of its own. Beside that stand what the host finds for the same model and the same people,
the model without privacy, and the answer that is always the most frequent activity.
"""

import argparse
import json
import sys
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.linear_model import LogisticRegression

from tern.features import Window
from tern.fixed import ONE
from ternhost import DeviceModel
from ternhost.run.guarantees import ClassGuarantees
from terntools.boards.policy import policy
from terntools.emulators.programs import ProgramFleet, UserProgram

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sensor import ACTIVITIES, Person, windows  # noqa: E402

D = 13
UNIT = 47  # windows, each 64 samples after the last: 60.2 s
DEVICE = "device"
DELTA = "1e-6"
ENOUGH = 400  # windows that a board judges
BOUT = 4  # as in main.py

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--boards", type=int, default=20)
parser.add_argument(
    "--windows", type=int, default=640, help="windows of a board; it keeps the newest"
)
parser.add_argument(
    "--run-epsilon",
    default="4",
    help=f"epsilon, at delta {DELTA}, of a run of about a minute for life",
)
parser.add_argument(
    "--unit",
    choices=(str(UNIT), DEVICE),
    default=str(UNIT),
    help=f"what is protected: each run of {UNIT} windows, or all that a board holds",
)
parser.add_argument("--speed", type=int, default=40, help="times as fast as life")
parser.add_argument("--json", action="store_true", help="print one JSON object in the end")
args = parser.parse_args()
RECORDS = f"--data devices:{D}:{len(ACTIVITIES)} --records {args.windows}"
if args.unit == DEVICE:
    OPTIONS = f"direct --model softmax {RECORDS} --epsilon {args.run_epsilon}"
    LIMITS = policy(args.run_epsilon, args.run_epsilon)
    UNIT_OF_BOARDS = 0  # all records
else:
    OPTIONS = f"{RECORDS} --unit {UNIT} --run-epsilon {args.run_epsilon} --delta {DELTA}"
    LIMITS = policy(None, args.run_epsilon, DELTA)
    UNIT_OF_BOARDS = UNIT


def say(*words):
    if not args.json:
        print(*words, flush=True)


def lived(seed, day, bouts):
    """Return features (n x 13, Q1.14) and activities of the windows of a simulated day.

    seed: the person; bouts: of one activity each.
    """
    window = Window(128, hop=64)
    row = array("h", bytes(2 * window.d))
    labels, rows = [], []
    for activity in windows(Person(seed, day), window, row, bouts):
        labels.append(activity)
        rows.append(list(row))
    return np.array(rows), np.array(labels)


def all_of(day, bouts):
    """Return features and activities of the windows of all people on a day."""
    days = [lived(seed, day, bouts) for seed in range(1, args.boards + 1)]
    return np.concatenate([x for x, _ in days]), np.concatenate([y for _, y in days])


with TemporaryDirectory(prefix="tern-activity-") as folder:
    program = UserProgram(HERE / "main.py", state_file="accuracy.json", arguments=[args.speed])
    boards = ProgramFleet(
        Path(folder),
        program,
        boards=args.boards,
        features=D,
        policy=LIMITS,
        unit=UNIT_OF_BOARDS,
        records=args.windows,
    )
    with boards as fleet:
        say(f"{args.boards} boards collect windows")
        fleet.wait_until(lambda board: board["windows"] >= args.windows)
        say("$ tern train --fleet mqtt:BROKER", OPTIONS)
        result = fleet.tern("train", OPTIONS)
        say("the boards judge new windows by the model that they were sent")
        live = fleet.wait_until(
            lambda board: board["model"] == [result["rounds"], True] and board["judged"] >= ENOUGH
        )

model = DeviceModel.of_result(result)  # predicts as the boards do, to the bit
again = (
    0  # the windows that the boards judged, once more at the desk: a simulated day can be repeated
)
for seed, board in enumerate(live, 1):
    x, y = lived(seed, 0, -(-board["windows"] // BOUT))
    judged = slice(board["windows"] - board["judged"], board["windows"])
    again += int((model.predict_numbers(x[judged]) == y[judged]).sum())
x, y = all_of(day=1, bouts=150)
held, labels = all_of(day=2, bouts=-(-args.windows // BOUT))
free = LogisticRegression(C=100, fit_intercept=False, max_iter=5000).fit(held / ONE, labels)
judged, right = (sum(board[name] for board in live) for name in ("judged", "right"))
each = sorted(board["right"] / board["judged"] for board in live)
guarantee = ClassGuarantees.from_json(result["guarantees"][0]).run
outcome = {
    "boards": args.boards,
    "rounds": result["rounds"],
    "reports": result["reports"],
    "bytes": result["bytes_per_report"],
    "unit": result.get("unit", 0),  # consecutive windows; 0: all of a board
    "guarantee": guarantee.as_json(),
    "rho": result.get("rho"),
    "heap_free": min(board["heap_free"] for board in live),
    "judged": judged,
    "live": right / judged,
    "live_each": each,
    "the_same_windows": again / judged,
    "host": float((model.predict_numbers(x) == y).mean()),
    "majority": float(np.bincount(y).max() / len(y)),
    "without_privacy": float(free.score(x / ONE, y)),
    "seconds": result["seconds"],
}
if args.json:
    print(json.dumps(outcome))
else:
    print(
        f"{outcome['reports']} reports of {outcome['bytes']} bytes in {outcome['rounds']} rounds and "
        f"{outcome['seconds']:.0f} s\n"
        f"{guarantee.words()}\n"
        f"accuracy on the boards, live  {outcome['live']:.3f}   of {judged} windows, {each[0]:.2f} to {each[-1]:.2f}\n"
        f"at the host, the same windows {outcome['the_same_windows']:.3f}\n"
        f"at the host, another day      {outcome['host']:.3f}\n"
        f"the most frequent activity    {outcome['majority']:.3f}\n"
        f"without privacy               {outcome['without_privacy']:.3f}"
    )
