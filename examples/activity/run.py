"""Twenty emulated boards that somebody wears, a broker, and a model that learns what they do: all on this machine.

python examples/activity/run.py [--boards 20] [--rounds 200] [--json]

Each board runs main.py with a person of its own. When the rounds are over each board goes on with the model that it
was sent, and counts how often it is right about new windows of its own. Beside that stand what the host finds for the
same model and the same people, the model without privacy, and the answer that is always the most frequent activity.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from array import array
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import tern
from tern.features import Window
from tern.fixed import ONE
from ternhost.aggregate.store import Store
from ternhost.fleet import attach, broker
from ternhost.fleet.provision import board_directories, provision_fleet
from ternhost.links.access import Access, host_file
from ternhost.mechanisms.accounting import Policy
from terntools.emulators.micropython import device_command, find_micropython
from terntools.mosquitto import ensure_running, reload

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from sensor import ACTIVITIES, Person, windows  # noqa: E402

D = 13
EPSILON = 4
LARGEST_MICRO = EPSILON * 1_000_000
ENOUGH = 400  # windows that a board judges
BOUT = 4  # as in main.py

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--boards", type=int, default=20)
parser.add_argument("--rounds", type=int, default=200)
parser.add_argument("--speed", type=int, default=40, help="times as fast as life")
parser.add_argument("--json", action="store_true", help="print one JSON object in the end")
args = parser.parse_args()


def lived(seed, day, bouts):
    """What a person does on a day, at the desk: features (n x 13, Q1.14) and activities of windows."""
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
    """What devices predict (tern.model): scores in whole units of 2**-14, and the first of the largest."""
    return np.floor(x @ weights.T + 0.5).argmax(axis=1)


def start(stack, directory, seed):
    """A board: MicroPython for 32 bits, with the heap of a Pico, on main.py."""
    log = stack.enter_context((directory / "board.log").open("ab"))
    command = device_command(find_micropython(), HERE / "main.py", directory, str(seed), str(args.speed))
    path = os.pathsep.join([str(Path(tern.__path__[0]).parent), str(HERE), ".frozen"])
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**os.environ, "MICROPYPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def accuracy_of(directory):
    """What a board has told last, or nothing."""
    try:
        return json.loads((directory / "accuracy.json").read_text())
    except (OSError, ValueError):  # not yet, or just being written
        return {}


def wait_until(processes, boards, what, seconds=300):
    """Wait until all boards have told `what` at least so often."""
    end = time.monotonic() + seconds
    name, least = what
    while not all(accuracy_of(board).get(name, 0) >= least for board in boards):
        ended = [
            board for board, process in zip(boards, processes, strict=True) if process.poll() is not None
        ]
        if ended:
            sys.exit(f"a board has ended: see {ended[0]}/board.log")
        if time.monotonic() > end:
            sys.exit(f"the boards do not tell {name}: see board.log in {boards[0].parent}")
        time.sleep(0.2)


with ExitStack() as stack:
    say = (lambda *words: None) if args.json else print
    folder = Path(tempfile.mkdtemp(prefix="tern-activity-"))
    place = folder / "broker"
    stack.enter_context(ensure_running(place, lambda message: say(message, file=sys.stderr)))
    store = Path(Access.load(host_file(place)).store)
    boards = board_directories(folder, args.boards)
    policy = Policy(LARGEST_MICRO, LARGEST_MICRO * (args.rounds + 1))
    with Store(
        store, beside=True
    ) as keys:  # the record of zeros is that of the library: the recorder has the others
        provision_fleet(keys, boards, np.zeros((args.boards, D + 1), np.int16), policy)
    broker.configure(place)
    reload(place)
    attach.attach(boards, place, store)
    processes = [start(stack, board, seed) for seed, board in enumerate(boards, 1)]
    say(f"{args.boards} boards are in {folder}; they collect windows")
    wait_until(processes, boards, ("windows", 200))
    command = (
        f"tern serve --fleet mqtt:{place} --rounds {args.rounds} --model softmax --dimension {D} "
        f"--labels {len(ACTIVITIES)} --epsilon {EPSILON} --batch 32 --range 5 --quiet --no-report --name activity"
    )
    say("$", command)
    began = time.monotonic()
    tool = [sys.executable, "-c", "import sys; from ternhost.cli import main; sys.exit(main())"]
    done = subprocess.run([*tool, *command.split()[1:], "--json"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    result = json.loads(done.stdout.splitlines()[-1])
    seconds = time.monotonic() - began
    wait_until(processes, boards, ("round", result["rounds"]))
    wait_until(processes, boards, ("judged", ENOUGH))
    live = [accuracy_of(board) for board in boards]

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
found = {
    "boards": args.boards,
    "rounds": result["rounds"],
    "reports": result["reports"],
    "epsilon_per_report": EPSILON,
    "epsilon_per_board": EPSILON * result["rounds"],
    "judged": judged,
    "live": right / judged,
    "live_each": each,
    "the_same_windows": again / judged,
    "host": float((predicted(weights, x) == y).mean()),
    "majority": float(np.bincount(y).max() / len(y)),
    "without_privacy": float(free.score(x / ONE, y)),
    "seconds": round(seconds, 1),
}
found["of_the_way"] = (found["live"] - found["majority"]) / (found["without_privacy"] - found["majority"])
if args.json:
    print(json.dumps(found))
else:
    print(
        f"{found['reports']} reports in {found['rounds']} rounds and {seconds:.0f} s, each at epsilon {EPSILON}: "
        f"{found['epsilon_per_board']} of a board\n"
        f"accuracy on the boards, live  {found['live']:.3f}   of {judged} windows, {each[0]:.2f} to {each[-1]:.2f}\n"
        f"at the host, the same windows {found['the_same_windows']:.3f}\n"
        f"at the host, another day      {found['host']:.3f}\n"
        f"the most frequent activity    {found['majority']:.3f}\n"
        f"without privacy               {found['without_privacy']:.3f}\n"
        f"{100 * found['of_the_way']:.0f} % of the way; files are in {folder}"
    )
