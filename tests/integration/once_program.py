"""One wake of a board that sleeps; prints its outcome and its times as a JSON object."""

# ruff: noqa: E402 - the time of the imports is measured

from time import ticks_diff, ticks_us

began = ticks_us()
import json
import sys
from array import array

from tern.app import App
from tern.boards.this import this_board
from tern.model import Model
from tern.recorder import Recorder

D = 6
imported = ticks_us()
recorder = Recorder(D, capacity=16, hold=1)
node = App(this_board(), recorder, Model())
recorder.append(array("h", range(D)), 16384)
opened = ticks_us()
done = node.once(int(sys.argv[1]))
ended = ticks_us()
print(
    json.dumps(
        {
            "done": done,
            "reports": node.reports,
            "round": node.model.round,
            "error": str(node.error),
            "import_ms": ticks_diff(imported, began) // 1000,
            "open_ms": ticks_diff(opened, imported) // 1000,
            "once_ms": ticks_diff(ended, opened) // 1000,
        }
    )
)
