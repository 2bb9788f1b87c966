"""What all tests share: how much of them runs, in which order, and which of them go together under pytest-xdist.

`@pytest.mark.exhaustive` leaves a test to `--exhaustive`, `@pytest.mark.sampled(n)` runs n of its parameters without,
and the fixture `sampled` gives a test n of the values that it would go through with it. What is `@pytest.mark.slow`
begins early, so that no process is left with it alone in the end; `make check` leaves it out.
"""

import gc
import re
import signal
from collections import defaultdict
from pathlib import Path

import pytest

# A shell without job control starts background programs deaf to Ctrl-C, and their children inherit that: these tests
# press Ctrl-C, so they must not depend on how they were started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_frozen_for = [None]


def pytest_configure(config):
    for line in (
        "exhaustive: runs with --exhaustive alone",
        "sampled(n): without --exhaustive, n of the test's parameters run",
        "slow: takes some two seconds or more; begins early, and `make check` leaves it out",
    ):
        config.addinivalue_line("markers", line)


def spread(values, n):
    """n of the values, from the first to the last at equal distances; all where there are fewer."""
    values = list(values)
    if len(values) <= n:
        return values
    return [values[i * (len(values) - 1) // (n - 1)] for i in range(n)] if n > 1 else values[:1]


@pytest.fixture(scope="session")
def sampled(pytestconfig):
    """`sampled(values, n)`: all the values with --exhaustive, n of them without."""
    everything = pytestconfig.getoption("exhaustive")
    return lambda values, n: list(values) if everything else spread(values, n)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pytest_terminal_summary(terminalreporter):
    """The seconds of each part, of all processes together."""
    seconds = defaultdict(float)
    for report in [one for found in terminalreporter.stats.values() for one in found]:
        if isinstance(report, pytest.TestReport):
            folder = Path(report.location[0]).parent.name
            target = re.search(r"\[([\w-]+)\](@[\w-]+)?$", report.nodeid) if folder == "device" else None
            seconds[f"device on {target[1]}" if target else folder] += report.duration
    if sum(seconds.values()) > 10:
        parts = sorted(seconds.items(), key=lambda part: -part[1])
        terminalreporter.write_line("seconds: " + ", ".join(f"{name} {spent:.0f}" for name, spent in parts))


def pytest_itemcollected(item):
    if shared := _shared(item):
        item.add_marker(pytest.mark.xdist_group(shared))


def pytest_collection_modifyitems(config, items):
    if not config.getoption("exhaustive"):
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_rank)


def _left_out(items):
    found = {item for item in items if item.get_closest_marker("exhaustive")}
    cases = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            cases[item.path, item.originalname, *mark.args].append(item)
    for (*_, n), of_test in cases.items():
        found |= {*of_test} - {*spread(of_test, n)}
    return found


def _shared(item):
    """The group of a test that shares a fixture with others of its file, by the value that the fixture has."""
    definitions = getattr(item, "_fixtureinfo", None)
    names = definitions.name2fixturedefs if definitions else {}
    modules = [name for name, found in names.items() if found[-1].scope == "module"]
    if not modules:
        return None
    values = getattr(getattr(item, "callspec", None), "indices", {})
    return "-".join([item.path.stem, *(str(values[name]) for name in modules if name in values)])


def _rank(item):
    """Long work first: what is slow, then emulated boards, and in the end what needs no other process."""
    if item.get_closest_marker("slow"):
        return 0
    target = getattr(item, "target", "unix")  # of a device test
    if target != "unix":
        return 1 if target == "pico" else 2
    return 3 if item.path.parent.name in ("integration", "hil") else 4


def pytest_runtest_setup(item):
    """What is there by now stays: the device library often collects garbage, and need not walk through pytest."""
    if item.path != _frozen_for[0]:
        _frozen_for[0] = item.path
        gc.collect()
        gc.freeze()
