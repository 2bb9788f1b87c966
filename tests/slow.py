"""Writes slow.txt: the tests that `make check` leaves out, since each takes a second or more.

python tests/slow.py [RESULTS]      RESULTS: of `make test`, which writes build/tests.xml

A test function with parameters counts with all of them.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
FOLDERS = (
    "unit",
    "bench",
    "papers",
)  # of the tests that `make check` runs, but for those of devices
SECONDS = 1.0


def name_of(case):
    """unit/test_card.py::test_vectors for a case of this function in a file of results."""
    folder, _, module = case.get("classname").removeprefix("tests.").rpartition(".")
    function = case.get("name").partition("[")[0].partition("@")[0]
    return f"{folder}/{module}.py::{function}"


def main(results=LIST.parents[1] / "build" / "tests.xml"):
    seconds = Counter()
    for case in ElementTree.parse(results).iter("testcase"):
        seconds[name_of(case)] += float(case.get("time"))

    slow_tests = []
    for name, spent in seconds.items():
        if spent >= SECONDS and name.startswith(FOLDERS):
            slow_tests.append(name)
    LIST.write_text("\n".join(sorted(slow_tests)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
