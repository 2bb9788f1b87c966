"""One wake of a board that sleeps; prints its outcome and its time as a JSON object."""

import json
import sys
from array import array
from time import ticks_diff, ticks_us

from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

D = 6
recorder = Recorder(D, capacity=16, hold=1)
node = App(this_board(), recorder, Model())
recorder.append(array("h", range(D)), 16384)
opened = ticks_us()
outcome = {"done": node.once(int(sys.argv[1])), "reports": node.reports, "error": str(node.error)}
outcome["once_ms"] = ticks_diff(ticks_us(), opened) // 1000
print(json.dumps(outcome))
