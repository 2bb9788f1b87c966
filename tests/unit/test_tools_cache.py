"""An entry in the cache of builds is complete or absent, whatever happens to its builder."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ternhost import cache
from ternhost.cache import Recipe

RECIPE = Recipe(name="thing", version="1", options={"colour": "grey"}, products=("thing",))
quiet = str  # shows no line


def make(work, out):
    (out / "thing").write_text("made")
    return {"compiler": "hand"}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_entry_is_built_once_and_recorded():
    assert cache.find_entry(RECIPE) is None
    entry = cache.build_entry(RECIPE, make, quiet)
    assert (entry / "thing").read_text() == "made"
    record = json.loads((entry / cache.RECORD).read_text())
    assert (record["options"], record["built_with"]) == ({"colour": "grey"}, {"compiler": "hand"})
    assert cache.build_entry(RECIPE, lambda work, out: pytest.fail("built again"), quiet) == entry


@pytest.mark.parametrize("file", ["thing", cache.RECORD])
@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: path.write_text("{")], ids=["remove", "garble"]
)
def test_a_damaged_entry_is_built_again(file, damage):
    damage(cache.build_entry(RECIPE, make, quiet) / file)
    assert cache.find_entry(RECIPE) is None
    assert (cache.build_entry(RECIPE, make, quiet) / "thing").read_text() == "made"


KILLED_IN_A_BUILD = """
import sys, time
from ternhost import cache

def make(work, out):
    (out / 'thing').write_text('half')
    print('in', flush=True)
    time.sleep(60)

recipe = cache.Recipe(name='thing', version='1', options={'colour': 'grey'}, products=('thing',))
cache.build_entry(recipe, make, print)
"""


def folders(root):
    return [path for path in root.iterdir() if path.is_dir()]


def test_a_killed_build_leaves_no_entry_and_is_removed_later(root):
    """Emulators are built once and kept in a cache. A build that is killed half-way is never taken
    for a whole one; the next build removes what it has left.
    """
    command = [sys.executable, "-c", KILLED_IN_A_BUILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as builder:
        assert builder.stdout.readline() == "in\n"
        builder.send_signal(signal.SIGKILL)

    assert len(folders(root)) == 1, "what it has built so far"
    assert cache.find_entry(RECIPE) is None

    entry = cache.build_entry(RECIPE, make, quiet)
    assert folders(root) == [entry]


def test_simultaneous_builds_build_once():
    """Two processes that need the same emulator do not both build it: while the first builds, the
    second says that it waits, and then takes the first one's result.
    """
    lines, builds = [], []
    started, go_on = threading.Event(), threading.Event()

    def slow(work, out):
        started.set()
        assert go_on.wait(30)
        builds.append(1)
        return make(work, out)

    def note(line):
        lines.append(line)
        go_on.set()

    # The first build goes on once the second has said that it waits.
    first = threading.Thread(target=cache.build_entry, args=(RECIPE, slow, quiet))
    first.start()
    assert started.wait(30)
    cache.build_entry(RECIPE, slow, note)
    first.join()
    assert builds == [1]
    assert lines == ["waiting for another process that builds the same"]
