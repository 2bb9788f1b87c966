"""Selects and sorts all tests, and groups them for pytest-xdist.

`@pytest.mark.exhaustive`: the test needs `--exhaustive`. `@pytest.mark.sampled(n)`: without that, n
of its parameters run; the fixture `sampled` selects n values inside a test. `@pytest.mark.slow`:
the test starts early, so that it is not the last one that runs; `make check` leaves it out. Tests
in slow.txt, which slow.py writes, have this mark, too.
"""

import gc
import json
import re
import signal
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from tern.boards import emulated
from ternhost.cli import main

# A shell without job control lets background programs ignore Ctrl-C, and their children inherit
# that. These tests press Ctrl-C, so they must not depend on how they were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
SLOW_TESTS = set((TESTS / "slow.txt").read_text().split())
_frozen_for = [None]


def pytest_configure(config):
    for line in (
        "exhaustive: runs with --exhaustive only",
        "sampled(n): without --exhaustive, n of the test's parameters run",
        "slow: starts early, and `make check` leaves it out",
    ):
        config.addinivalue_line("markers", line)


def spread(values, n):
    """n of the values at equal distances, from the first to the last; all of them if there are no
    more.
    """
    values = list(values)
    if len(values) <= n:
        return values
    return [values[i * (len(values) - 1) // (n - 1)] for i in range(n)] if n > 1 else values[:1]


@pytest.fixture(scope="session")
def sampled(pytestconfig):
    """`sampled(values, n)`: all values with --exhaustive, n of them without."""
    everything = pytestconfig.getoption("exhaustive")
    return lambda values, n: list(values) if everything else spread(values, n)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Printed(NamedTuple):
    """What a command printed."""

    out: str
    err: str
    code: int

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def tern(capsys):
    """`tern(*words, code=0)`: what the command prints, which ends with this code; None: with any."""

    def run(*words, code=0):
        capsys.readouterr()
        ended = main([*words])
        printed = Printed(*capsys.readouterr(), ended)
        assert code in (None, ended), printed.err
        return printed

    return run


@pytest.fixture(autouse=True)
def _boards_of_this_process_end_with_their_test():
    yield
    while emulated._held:
        for part in emulated._held.popitem()[1]:
            part.close()


def pytest_terminal_summary(terminalreporter):
    """Print the seconds of each folder and target, summed over all processes."""
    seconds = defaultdict(float)
    for report in [report for reports in terminalreporter.stats.values() for report in reports]:
        if isinstance(report, pytest.TestReport):
            folder = Path(report.location[0]).parent.name
            target = (
                re.search(r"\[([\w-]+)\](@[\w-]+)?$", report.nodeid) if folder == "device" else None
            )
            seconds[f"device on {target[1]}" if target else folder] += report.duration
    if sum(seconds.values()) > 10:
        parts = sorted(seconds.items(), key=lambda part: -part[1])
        terminalreporter.write_line(
            "seconds: " + ", ".join(f"{name} {spent:.0f}" for name, spent in parts)
        )


def pytest_itemcollected(item):
    if _is_slow(item):
        item.add_marker(pytest.mark.slow)
    if shared := _shared(item):
        item.add_marker(pytest.mark.xdist_group(shared))


def _is_slow(item):
    """Whether slow.txt has this test."""
    # A device test has a `test_name`, another function with parameters an `originalname`.
    name = getattr(item, "test_name", None) or getattr(item, "originalname", item.name)
    return f"{item.path.relative_to(TESTS).as_posix()}::{name}" in SLOW_TESTS


def pytest_collection_modifyitems(config, items):
    if not config.getoption("exhaustive"):
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_rank)


def _left_out(items):
    left_out = {item for item in items if item.get_closest_marker("exhaustive")}
    cases = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            cases[item.path, item.originalname, *mark.args].append(item)
    for (*_, n), of_test in cases.items():
        left_out |= {*of_test} - {*spread(of_test, n)}
    return left_out


def _shared(item):
    """The group of tests that share a module's fixture with the same parameter; None: the test has
    no such fixture.
    """
    definitions = getattr(item, "_fixtureinfo", None)
    names = definitions.name2fixturedefs if definitions else {}
    modules = [name for name, fixtures in names.items() if fixtures[-1].scope == "module"]
    if not modules:
        return None
    values = getattr(getattr(item, "callspec", None), "indices", {})
    return "-".join([item.path.stem, *(str(values[name]) for name in modules if name in values)])


def _rank(item):
    """Long tests first: slow ones, then those on emulated boards, and last those without other
    processes.
    """
    if item.get_closest_marker("slow"):
        return 0
    target = getattr(item, "target", "unix")  # of a device test
    if target != "unix":
        return 1 if target == "pico" else 2
    return 3 if item.path.parent.name in ("integration", "hil") else 4


def pytest_runtest_setup(item):
    """Freeze all objects so far: the device library collects garbage often, and need not walk
    through pytest's.
    """
    if item.path != _frozen_for[0]:
        _frozen_for[0] = item.path
        gc.collect()
        gc.freeze()
