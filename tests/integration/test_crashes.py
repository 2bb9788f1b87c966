"""Runs that die and go on: by kill -9, Ctrl-C or a full disk.

No report is lost, counted twice or paid twice.
"""

import json
import resource
import signal

import pytest
import rig
from rig import Train

from ternhost.store import store_file
from ternhost.store.store import Store

BOARDS, REPORTS, GROUP = 2, 600, 150
FLEET = f"emulated:{BOARDS}"
OPTIONS = ("--reports", REPORTS, "--group", GROUP, "--epsilon", 2, "--fleet", FLEET, "--seed", 3)


@pytest.fixture
def run(tmp_path, micropython):
    return tmp_path / "runs" / "run"


def start(run, *more, **options):
    return Train(*OPTIONS, "--no-report", *more, "--name", run.name, cwd=run.parents[1], **options)


def assert_seen(run):
    """Assert that the store has the boards, times and counts of the run for observers."""
    with Store(run / store_file.NAME, create=False, beside=True) as store:
        boards = store.boards()
        assert [(board.clients, board.online, board.errors) for board in boards] == [
            (300, False, 0)
        ] * BOARDS
        assert all(board.hello["release"] and board.hello["entropy"] == 1 for board in boards)
        for entry in store.history("run"):
            (tally,) = store.tallies(entry["round"])
            assert tally.asked == tally.reports == entry["reports"] == GROUP
            assert tally.counts.sum() == GROUP * tally.question.k
        times = store._db.execute("SELECT began, finished FROM history ORDER BY number").fetchall()
    assert times == sorted(times)
    assert all(began < finished for began, finished in times)


def resume(run, *more, **options):
    return Train("--resume", run.name, "--no-report", *more, cwd=run.parents[1], **options)


def stored_reports(run):
    """The reports in the store: device -> (round, packed symbols). No device may have two."""
    with Store(run / store_file.NAME, create=False, beside=True) as store:
        numbers = range(1, store.last_round() + 1)
        rows = [
            (device, number, payload)
            for number in numbers
            for device, payload in store.reports(number)
        ]
    assert len({device for device, _, _ in rows}) == len(rows)
    return {device: (number, payload) for device, number, payload in rows}


def assert_finished_exactly(run, before=None):
    """Assert that each device has reported and paid once, and that the store has the report of its
    ledger.
    """
    reports = stored_reports(run)
    assert sorted(reports) == list(range(1, REPORTS + 1))
    ledgers = rig.ledgers_of_run(run)
    for device, (number, payload) in reports.items():
        spent, last_round, reported = ledgers[device]
        assert (last_round, reported) == (number, payload)
        assert 0 < spent <= 2_000_000
    assert len({spent for spent, _, _ in ledgers.values()}) == 1
    for device, report in (before or {}).items():
        assert reports[device] == report


@pytest.mark.sampled(1)
@pytest.mark.parametrize("after", [[20, 140, 160, 430, 590], [1]])
def test_a_run_that_is_killed_in_a_round_learns_the_same_model_from_its_reports(run, after):
    host = start(run, stop_after=after[0])
    for count, following in zip(after, (*after[1:], 0), strict=True):
        host.wait_until_stopped()
        host.finish(-signal.SIGKILL, signal.SIGKILL)
        before = stored_reports(run)
        assert len(before) >= count
        host = resume(run, "--json", stop_after=following)
    result = json.loads(host.finish()[0])
    assert result["reports"] == REPORTS
    assert_finished_exactly(run, before)
    assert_seen(run)
    with Store(run / store_file.NAME) as store:
        assert result["weights"] == pytest.approx(rig.replay(store).weights.tolist(), abs=1e-12)


def test_sigterm_and_ctrl_c_end_a_run_and_say_how_to_resume_it(run):
    """They also end its boards and free their directories.

    Neither the run nor its store can be begun again.
    """
    host = start(run, stop_after=10)
    host.wait_until_stopped()
    host.finish(143, signal.SIGTERM)
    host = resume(run, stop_after=60)
    host.wait_until_stopped()
    _, err = resume(run).finish(5)  # while the run goes on
    assert "another program uses this store" in err
    out, err = host.finish(130, signal.SIGINT)
    assert out == ""
    assert "reports so far are safe" in err
    assert f"tern train --resume {run.name}" in err
    before = stored_reports(run)
    assert "--resume" in start(run).finish(2)[1]
    _, err = Train(*OPTIONS, "--store", run / store_file.NAME, cwd=run.parents[1]).finish(2)
    assert f"resume it: tern train --resume {run.name}" in err
    resume(run).finish()
    assert_finished_exactly(run, before)


def test_a_full_disk_ends_a_run_and_says_how_to_resume_it(run):
    host = start(run, stop_after=10)
    host.wait_until_stopped()
    host.finish(130, signal.SIGINT)
    room = (run / store_file.NAME).stat().st_size + 40_000

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    _, err = resume(run, preexec_fn=limit).finish(5)
    assert "every accepted report is safe" in err
    assert "--resume" in err
    before = stored_reports(run)
    assert len(before) < REPORTS
    resume(run).finish()
    assert_finished_exactly(run, before)
