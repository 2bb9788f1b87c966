"""Twenty emulated wearable boards, a broker, and a model that learns activities: all on this machine.

python examples/activity/run.py [--boards 20] [--rounds 240] [--epsilon 4] [--json]

Each board runs main.py with a person of its own. When the rounds are over each board goes on with the model that it
was sent, and counts how often it is right about new windows of its own. Beside that stand what the host finds for the
same model and the same people, the model without privacy, and the answer that is always the most frequent activity.
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
from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO
from terntools.emulators.programs import ProgramFleet

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sensor import ACTIVITIES, Person, windows  # noqa: E402

D = 13
ENOUGH = 400  # windows that a board judges
BOUT = 4  # as in main.py

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--boards", type=int, default=20)
parser.add_argument("--rounds", type=int, default=240)
parser.add_argument("--epsilon", type=int, default=4, help="epsilon of a report")
parser.add_argument("--speed", type=int, default=40, help="times as fast as life")
parser.add_argument("--json", action="store_true", help="print one JSON object in the end")
args = parser.parse_args()
OPTIONS = (
    f"--rounds {args.rounds} --model softmax --dimension {D} --labels {len(ACTIVITIES)} "
    f"--epsilon {args.epsilon} --batch 32 --range 5"
)


def say(*words):
    if not args.json:
        print(*words, flush=True)


def lived(seed, day, bouts):
    """A simulated day of a person: features (n x 13, Q1.14) and activities of windows."""
    window = Window(128, hop=64)
    row = array("h", bytes(2 * window.d))
    labels, rows = [], []
    for activity in windows(Person(seed, day), window, row, bouts):
        labels.append(activity)
        rows.append(list(row))
    return np.array(rows), np.array(labels)


def all_of(day, bouts):
    """The same of all people."""
    parts = [lived(seed, day, bouts) for seed in range(1, args.boards + 1)]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def predicted(weights, x):
    """The predictions of devices (tern.model): scores in whole units of 2**-14, and the first of the largest."""
    return np.floor(x @ weights.T + 0.5).argmax(axis=1)


with TemporaryDirectory(prefix="tern-activity-") as folder:
    policy = Policy(args.epsilon * MICRO, args.epsilon * MICRO * args.rounds)
    arguments = (Path(folder), HERE / "main.py", args.boards, D, policy, args.speed)
    with ProgramFleet(*arguments, tells="accuracy.json") as fleet:
        say(f"{args.boards} boards collect windows")
        fleet.wait_until(lambda board: board["windows"] >= 200)
        say("$ tern serve --fleet mqtt:BROKER", OPTIONS)
        result = fleet.serve(OPTIONS)
        say("the boards judge new windows by the model that they were sent")
        live = fleet.wait_until(
            lambda board: board["round"] == result["rounds"] and board["judged"] >= ENOUGH
        )

weights = np.array(result["weights"]).reshape(len(ACTIVITIES), D)
again = 0  # the windows that the boards judged, once more at the desk: a simulated day can be repeated
for seed, board in enumerate(live, 1):
    x, y = lived(seed, 0, -(-board["windows"] // BOUT))
    judged = slice(board["windows"] - board["judged"], board["windows"])
    again += int((predicted(weights, x[judged]) == y[judged]).sum())
x, y = all_of(day=1, bouts=150)
held, labels = all_of(day=2, bouts=64)
free = LogisticRegression(C=100, fit_intercept=False, max_iter=5000).fit(held / ONE, labels)
judged, right = (sum(board[name] for board in live) for name in ("judged", "right"))
each = sorted(board["right"] / board["judged"] for board in live)
outcome = {
    "boards": args.boards,
    "rounds": result["rounds"],
    "reports": result["reports"],
    "epsilon_per_report": args.epsilon,
    "epsilon_per_board": args.epsilon * result["rounds"],
    "judged": judged,
    "live": right / judged,
    "live_each": each,
    "the_same_windows": again / judged,
    "host": float((predicted(weights, x) == y).mean()),
    "majority": float(np.bincount(y).max() / len(y)),
    "without_privacy": float(free.score(x / ONE, y)),
    "seconds": result["seconds"],
}
outcome["of_the_way"] = (outcome["live"] - outcome["majority"]) / (
    outcome["without_privacy"] - outcome["majority"]
)
if args.json:
    print(json.dumps(outcome))
else:
    print(
        f"{outcome['reports']} reports in {outcome['rounds']} rounds and {outcome['seconds']:.0f} s; "
        f"epsilon {args.epsilon} each, {outcome['epsilon_per_board']} per board\n"
        f"accuracy on the boards, live  {outcome['live']:.3f}   of {judged} windows, {each[0]:.2f} to {each[-1]:.2f}\n"
        f"at the host, the same windows {outcome['the_same_windows']:.3f}\n"
        f"at the host, another day      {outcome['host']:.3f}\n"
        f"the most frequent activity    {outcome['majority']:.3f}\n"
        f"without privacy               {outcome['without_privacy']:.3f}\n"
        f"{100 * outcome['of_the_way']:.0f} % of the way"
    )
