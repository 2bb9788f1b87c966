"""A run that is killed, or whose disk is full, before its first round can be resumed or is gone.

Then its name can be used again: no name is lost to a run that nobody can go on with.
"""

import pytest
from harness.disk_of_host import KILLED, full_disk, run_failing

from ternhost.cli import main
from ternhost.errors import OK, STORAGE
from ternhost.provision import keys
from ternhost.store.store import Store

BEGIN = (
    *("train", "fedsgd", "--data", "flights", "--fleet", "simulated:100", "--epsilon", "8"),
    *("--reports", "4", "--group", "2", "--no-report", "--quiet", "--name", "mine"),
)
RESUME = ("resume", "mine", "--no-report", "--quiet")

# The steps until the first round begins, and a few more: 31 make the directory, the store with its
# tables, and the run in it.
STEPS = range(1, 46)
SOME_STEPS = (1, 3, 5, 13, 29, 30, 31, 33)

pytestmark = pytest.mark.usefixtures("here")


def goes_on_or_is_gone():
    """Whether a user who resumes the run, or else begins it again by its name, has a result."""
    return main(RESUME) == OK or main(BEGIN) == OK


OTHER_STEPS = [step for step in STEPS if step not in SOME_STEPS]


@pytest.mark.parametrize(
    "step",
    [*SOME_STEPS, *(pytest.param(step, marks=pytest.mark.slow) for step in OTHER_STEPS)],
)
def test_the_name_of_a_run_that_was_killed_is_not_lost(step):
    assert run_failing(BEGIN, step) == KILLED
    assert goes_on_or_is_gone()


@pytest.mark.parametrize("step", SOME_STEPS)
def test_the_name_of_a_run_whose_disk_was_full_for_a_moment_is_not_lost(step):
    assert run_failing(BEGIN, step, full_disk) in (STORAGE, OK)
    assert goes_on_or_is_gone()


@pytest.mark.parametrize("step", SOME_STEPS)
def test_the_name_of_a_run_whose_disk_stayed_full_is_not_lost(step):
    assert run_failing(BEGIN, step, full_disk, for_good=True) == STORAGE
    assert goes_on_or_is_gone()


@pytest.mark.parametrize("step", [26, 29, 30, 31])
def test_a_run_in_a_store_elsewhere_is_not_lost(step):
    begin = (*BEGIN, "--store", "kept.sqlite")
    assert run_failing(begin, step) == KILLED
    assert main(RESUME) == OK or main(begin) == OK


def test_a_directory_with_other_files_is_never_taken_for_what_a_killed_run_left(tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    notes = tmp_path / "runs" / "mine" / "notes.txt"
    notes.write_text("of the user")
    assert main(BEGIN) != OK
    assert notes.read_text() == "of the user"


def test_a_store_with_keys_is_never_taken_for_what_a_killed_run_left(tmp_path):
    path = tmp_path / "runs" / "mine" / "store.sqlite"
    path.parent.mkdir(parents=True)
    with Store(path) as store:
        keys.add(store, [1])
    assert main(BEGIN) != OK
    with Store(path, create=False) as store:
        assert list(store.keys()) == [1]


def test_a_store_in_use_is_never_taken_for_what_a_killed_run_left(tmp_path):
    path = tmp_path / "runs" / "mine" / "store.sqlite"
    path.parent.mkdir(parents=True)
    with Store(path):
        assert main(BEGIN) != OK
    assert path.exists()
