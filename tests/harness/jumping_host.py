"""`tern` on a machine whose wall clock jumps: the first argument is a file that holds its error in
seconds.
"""

import sys
import time
from pathlib import Path

from ternhost.cli import main

_clock = Path(sys.argv.pop(1))
_true_time = time.time


def _jumping_time():
    return _true_time() + float(_clock.read_text())


time.time = _jumping_time
sys.exit(main())
