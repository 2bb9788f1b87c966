"""Emulated thermostats that sleep learn what a room does next, all on this machine.

python examples/thermostat/run.py [--boards 20] [--rounds 24] [--epsilon 4] [--hour-ms 1000]
                                  [--wake 1] [--json]

A board reads sixty times an hour, then asks the broker for what is new, answers it, and sleeps
again. In the end each tells how far off its predictions were, in 1/100 degree, and how far off it
is to say that nothing changes.
"""

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from ternhost.privacy.accounting import Policy
from ternhost.privacy.base import MICRO
from ternhost.run.guarantees import ClassGuarantees
from terntools.emulators.programs import ProgramFleet, UserProgram

D = 7
ENOUGH = 288  # readings that a board judges: a day

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--boards", type=int, default=20)
parser.add_argument("--rounds", type=int, default=24)
parser.add_argument("--epsilon", type=int, default=4, help="epsilon of a report")
parser.add_argument(
    "--hour-ms", type=int, default=1000, help="milliseconds in which an hour passes"
)
parser.add_argument(
    "--wake", type=int, default=1, help="hours from one wake of the radio to the next"
)
parser.add_argument("--json", action="store_true", help="print one JSON object in the end")
args = parser.parse_args()
OPTIONS = f"--rounds {args.rounds} --deadline 30 --data devices:{D} --model linear --epsilon {args.epsilon} --batch 32"


def say(*words):
    if not args.json:
        print(*words, flush=True)


with TemporaryDirectory(prefix="tern-thermostat-") as folder:
    policy = Policy(args.epsilon * MICRO, args.epsilon * MICRO * args.rounds)
    program = UserProgram(
        Path(__file__).with_name("main.py"),
        state_file="error.json",
        arguments=[args.hour_ms, args.wake],
    )
    # Boards that sleep: the broker keeps what is for them, and the host knows when they wake.
    boards = ProgramFleet(
        Path(folder), program, boards=args.boards, features=D, policy=policy, wake_s=2
    )
    with boards as fleet:
        say(f"{args.boards} boards collect readings")
        fleet.wait_until(lambda board: board["hours"] >= 8)
        say("$ tern serve --fleet mqtt:BROKER", OPTIONS)
        result = fleet.tern("serve", OPTIONS)
        say("the boards judge new readings by the model that they were sent")
        live = fleet.wait_until(
            lambda board: board["model"] == [result["rounds"], True] and board["judged"] >= ENOUGH
        )

judged = sum(board["judged"] for board in live)
guarantee = ClassGuarantees.from_json(result["guarantees"][0]).run
outcome = {
    "boards": args.boards,
    "rounds": result["rounds"],
    "reports": result["reports"],
    "guarantee": guarantee.as_json(),
    "judged": judged,
    "off": sum(board["off"] for board in live) / judged,
    "off_as_now": sum(board["off_as_now"] for board in live) / judged,
    "seconds": result["seconds"],
}
if args.json:
    print(json.dumps(outcome))
else:
    print(
        f"{outcome['reports']} reports in {outcome['rounds']} rounds\n"
        f"{guarantee.words()}\n"
        f"ten minutes ahead the boards are off by {outcome['off']:.1f} hundredths of a degree, "
        f"and by {outcome['off_as_now']:.1f} with no change"
    )
