"""`make demo` installs the packages of tools/locks/demo.txt alone: the demo imports no other one."""

import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.utils import canonicalize_name

TESTS = Path(__file__).parents[1]
LOCK = TESTS.parent / "tools/locks/demo.txt"

# Runs the demo of test_demo.py where the modules of sys.argv[2:] cannot be imported.
SMALL_DEMO = """
import sys

class Absent:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent(set(sys.argv[2:])))

from dataclasses import replace
from pathlib import Path
from ternhost import demo
from ternhost.demo import jobs, page
from ternhost.demo.jobs import Spectator

def smaller(job, **options):
    return replace(job, options={**job.options, **options})

devices = smaller(jobs.DEVICES, fleet="emulated:1", reports=40, rounds=2)
boards = smaller(jobs.BOARDS, fleet="emulated:2", records=20)
print(page.write_report(demo.run(Spectator(), Path(sys.argv[1]), (devices, boards))))
"""


def modules_beyond_the_lock():
    """The top-level modules of all packages that are installed here, and that the lock lacks."""
    locked = {
        canonicalize_name(name)
        for name in re.findall(r"^([\w.-]+)==", LOCK.read_text(), re.MULTILINE)
    }
    locked.add("tern-ldp")
    return [
        module
        for module, packages in packages_distributions().items()
        if locked.isdisjoint(map(canonicalize_name, packages))
    ]


def test_the_demo_imports_no_package_that_its_lock_lacks(tmp_path, micropython):
    absent = modules_beyond_the_lock()
    assert "pytest" in absent
    command = [sys.executable, "-c", SMALL_DEMO, tmp_path, *absent]
    # An empty cache, so that the demo reads its flights as on a new machine.
    environment = {
        **os.environ,
        "TERN_CACHE": str(tmp_path / "cache"),
        "TERN_MICROPYTHON": str(micropython),
    }
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()).is_file()
