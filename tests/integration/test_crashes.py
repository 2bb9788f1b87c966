"""Runs that die and go on: by kill -9, Ctrl-C or a full disk.

No report is lost, counted twice or paid twice.
"""

import json
import resource
import signal

import pytest
import rig
from rig import Train

from ternhost.errors import INTERRUPTED, STORAGE, TERMINATED, USAGE
from ternhost.store import store_file
from ternhost.store.store import Store

REPORTS, GROUP = 240, 60  # four rounds
EPSILON = 2
SIZES = ("--reports", REPORTS, "--group", GROUP, "--epsilon", EPSILON)
OPTIONS = (*SIZES, "--fleet", "emulated:2", "--seed", 3)
NEVER = 0  # instead of a number of reports after which a host is stopped


@pytest.fixture
def run(tmp_path, micropython):
    """The directory of a run that has not begun."""
    return tmp_path / "runs" / "run"


def start(run, **options):
    words = (*OPTIONS, "--no-report", "--name", run.name)
    return Train(*words, cwd=run.parents[1], **options)


def resume(run, *more, **options):
    words = (run.name, "--no-report", *more)
    return Train(*words, cwd=run.parents[1], command="resume", **options)


def interrupted(run, after):
    """Begin a run, and end it by Ctrl-C once it has stored so many reports; return its error."""
    host = start(run, stop_after=after)
    host.wait_until_stopped()
    _, error = host.finish(INTERRUPTED, signal.SIGINT)
    return error


def stored_reports(run):
    """The reports in the store: device -> (round, packed symbols). No device may have two."""
    reports = {}
    with Store(run / store_file.NAME, create=False, beside=True) as store:
        for number in range(1, store.last_round() + 1):
            for device, payload in store.reports(number):
                assert device not in reports
                reports[device] = (number, payload)
    return reports


def assert_finished_exactly(run, before):
    """Assert that each device has reported and paid once, that the store has the report of its
    ledger, and those of `before`.
    """
    reports = stored_reports(run)
    assert sorted(reports) == list(range(1, REPORTS + 1))
    assert before.items() <= reports.items()
    ledgers = rig.ledgers_of_run(run)
    for device, (number, payload) in reports.items():
        spent, last_round, reported = ledgers[device]
        assert (last_round, reported) == (number, payload)
        assert 0 < spent <= 1_000_000 * EPSILON


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "kills",
    [[20, 70, 230], [1], [59, 60, 61, 120]],
    ids=["far apart", "at once", "at ends of rounds"],
)
def test_a_run_that_is_killed_in_a_round_learns_the_same_model_from_its_reports(run, kills):
    """A host is killed and resumed again and again, each time once so many reports (kills) are
    stored. The reports that were stored before a kill are still there at the end, each device has
    reported once, and the model is the one that all reports together give.
    """
    first_kill, *later_kills = kills
    host = start(run, stop_after=first_kill)
    for next_kill in [*later_kills, NEVER]:
        host.wait_until_stopped()
        host.finish(-signal.SIGKILL, signal.SIGKILL)
        before = stored_reports(run)
        host = resume(run, "--json", stop_after=next_kill)
    output, _ = host.finish()

    assert len(before) >= kills[-1]  # reports that were stored before the last kill
    assert_finished_exactly(run, before)
    result = json.loads(output)
    assert result["reports"] == REPORTS
    with Store(run / store_file.NAME) as store:
        weights = rig.replay(store).weights.tolist()  # learned again, from the stored reports
    assert result["weights"] == pytest.approx(weights, abs=1e-12)  # sums in another order


def test_ctrl_c_ends_a_run_and_says_how_to_resume_it(run):
    """Ten of 240 reports are stored when the user presses Ctrl-C; the resumed run keeps them."""
    error = interrupted(run, after=10)

    assert "what was reported so far is safe" in error
    assert f"tern resume {run.name}" in error
    before = stored_reports(run)
    resume(run).finish()
    assert_finished_exactly(run, before)


def test_sigterm_ends_a_run_which_has_its_store_to_itself_until_then(run):
    """A run under way keeps other programs from its store. After SIGTERM it can be resumed; who
    begins it anew instead is told how to resume it.
    """
    host = start(run, stop_after=10)
    host.wait_until_stopped()
    _, second_host_error = resume(run).finish(STORAGE)

    host.finish(TERMINATED, signal.SIGTERM)
    begun_anew = Train(*OPTIONS, "--store", run / store_file.NAME, cwd=run.parents[1])
    _, advice = begun_anew.finish(USAGE)

    assert "another program uses this store" in second_host_error
    assert f"tern resume {run.name}" in advice


def test_a_full_disk_ends_a_run_and_says_how_to_resume_it(run):
    """A limit on the size of files stands for a full disk. No report that was stored is lost, and
    once there is room the run can be resumed and finished.
    """
    interrupted(run, after=10)
    largest_file = (run / store_file.NAME).stat().st_size + 16_000  # for some of the reports

    def limit_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))

    _, error = resume(run, preexec_fn=limit_files).finish(STORAGE)

    assert "every accepted report is safe" in error
    assert "tern resume" in error
    before = stored_reports(run)
    assert len(before) < REPORTS
    resume(run).finish()  # with room again
    assert_finished_exactly(run, before)
