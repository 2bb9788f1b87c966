"""Sleeping devices: the store knows how often each wakes, and rounds wait for them."""

import pytest

from ternhost.errors import UsageError
from ternhost.learn.schedule import Schedule, Terms
from ternhost.provision import keys
from ternhost.run.options import RunOptions
from ternhost.run.serve import fit_deadline_to_sleepers
from ternhost.run.status import Watcher
from ternhost.store import sleepers

SLEEPS, STAYS = 1, 2  # devices, each on a separate board
HOUR = 3600
# A wake takes 60 s at most, and the clock of a sleeping ESP32 drifts by 5 %.
DEADLINE = HOUR + HOUR // 20 + 60


@pytest.fixture
def store(store):
    keys.add(store, [SLEEPS, STAYS, 3])
    sleepers.set_wake(store, SLEEPS, HOUR)
    return store


@pytest.fixture
def deadline_of(store):
    """`deadline_of(notes, interval=..., deadline=...)`: the deadline with which rounds are served."""

    def deadline(notes, interval=4000, **terms):
        options = RunOptions(
            "fedsgd", None, "mqtt:x", Terms(**terms), Schedule(every=str(interval))
        )
        return fit_deadline_to_sleepers(options, store, Watcher(note=notes.append)).terms.deadline

    return deadline


def test_the_default_deadline_is_prolonged_for_sleepers_with_a_note(deadline_of):
    notes = []
    assert deadline_of(notes) == DEADLINE
    assert notes == [
        f"1 sleeping device, up to 3600 s at a time: rounds have {DEADLINE} s, not 120 (--deadline)"
    ]


@pytest.mark.parametrize("deadline", [5000, None])
def test_a_longer_deadline_stays(deadline_of, deadline):
    assert deadline_of([], deadline=deadline) == deadline


def test_a_deadline_before_the_next_wake_is_refused_and_the_least_named(deadline_of):
    with pytest.raises(UsageError) as caught:
        deadline_of([], deadline=600)
    assert f"--deadline {DEADLINE}" in caught.value.hint


def test_a_revoked_device_prolongs_no_round(deadline_of, store):
    keys.revoke(store, [SLEEPS])
    assert deadline_of([], deadline=600) == 600
