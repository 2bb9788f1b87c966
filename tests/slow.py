"""Writes slow.txt: the tests that `make check` leaves out, since each takes SECONDS or more.

python tests/slow.py [RESULTS]      RESULTS: of `make test`, which writes build/tests.xml

A test function with parameters counts with all of them; a device test with CPython and MicroPython
for unix, where `make check` runs it.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("slow.txt")
FOLDERS = ("unit", "bench", "papers", "device")  # with the tests that `make check` runs
SECONDS = 0.7


def name_of(case):
    """unit/test_card.py::test_vectors for a case of this function in a file of results."""
    folder, _, module = case.get("classname").removeprefix("tests.").rpartition(".")
    function = re.split(r"[\[@]", case.get("name"))[0]
    return f"{folder}/{module}.py::{function}"


def seconds_of(case):
    """The time of a case. A device test on MicroPython has a property with its own."""
    own = case.find("properties/property[@name='seconds']")
    if own is not None:
        return float(own.get("value"))
    return float(case.get("time"))


def is_on_a_chip(case):
    """Whether a case is a device test that ran on an emulated chip."""
    target = re.search(r"\[([\w-]+)\]@", case.get("name"))
    return ".device." in case.get("classname") and bool(target) and target[1] != "unix"


def main(results=LIST.parents[1] / "build" / "tests.xml"):
    seconds = Counter()
    for case in ElementTree.parse(results).iter("testcase"):
        if not is_on_a_chip(case):
            seconds[name_of(case)] += seconds_of(case)

    slow_tests = []
    for name, spent in seconds.items():
        if spent >= SECONDS and name.startswith(FOLDERS):
            slow_tests.append(name)
    LIST.write_text("\n".join(sorted(slow_tests)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
