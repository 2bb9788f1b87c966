"""Keys of devices are added, rotated and revoked, even while a host has the store open."""

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from spec import answers

from tern import wire
from ternhost.count.aggregator import Aggregator
from ternhost.count.questions import Question, round_body
from ternhost.errors import StorageError, UsageError
from ternhost.privacy.mechanisms import design
from ternhost.provision import keys
from ternhost.reach.broker.roster import BoardKey
from ternhost.store.store import Store

CARD = design("three-outputs", epsilon_micro=1_000_000).card
QUESTION = Question(wire.LOGISTIC, [0] * 20, -14, CARD, 1)


def digest(key, device, number):
    return answers.question(key, device, round_body(number, QUESTION))


def report(key, device, number, symbol=1):
    return answers.report(digest(key, device, number), device, number, bytes((symbol,)))


def test_a_revoked_device_stays_listed_and_may_get_another_key(store):
    """A revoked device has no key, and none that could be rotated or revoked again; the list goes
    on to show it. Added once more, it gets a new key, never the old one.
    """
    device_keys = keys.add(store, [1, 2])
    keys.revoke(store, [1])

    assert set(store.keys()) == {2}
    valid = {device.id: device.revoked is None for device in keys.list_devices(store)}
    assert valid == {1: False, 2: True}
    for change in (keys.rotate, keys.revoke):
        with pytest.raises(UsageError, match="device 1 has no key"):
            change(store, [1])

    new_keys = keys.add(store, [1])
    assert new_keys[1] != device_keys[1]
    first_device, _ = keys.list_devices(store)
    assert first_device.revoked is None


def test_the_epochs_of_32_bits_end_with_an_error_and_the_last_key_stays(store, monkeypatch):
    monkeypatch.setattr(time, "time", datetime(2156, 1, 1, tzinfo=UTC).timestamp)
    last = keys.rotate_fleet(store)  # 2**32 seconds after 2020 are in 2156
    monkeypatch.setattr(time, "time", datetime(2157, 1, 1, tzinfo=UTC).timestamp)
    with pytest.raises(StorageError):
        keys.rotate_fleet(store)
    assert keys.fleet_key(store) == last


def xor(first, second):
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def masked_key(fleet_key, device, device_key):
    """The fleet key in its frame for a device, under a mask."""
    return fleet_key.frame(device, device_key)[9:41]


@pytest.fixture
def restored(store, tmp_path):
    """The path of a copy of the store, which has three devices and a fleet key."""
    keys.add(store, [1, 2, 3])
    keys.fleet_key(store)
    path = tmp_path / "copy.sqlite"
    with sqlite3.connect(path) as copy, sqlite3.connect(store.path) as original:
        original.backup(copy)
    path.chmod(0o600)
    return path


def test_a_restored_store_uses_no_epoch_again(store, restored, monkeypatch):
    """All boards share a fleet key, which is numbered by its epoch and sent to each board under a
    mask. Two fleet keys of one epoch would share a mask: the owner of one key could compute the
    other. So a store that is restored from a copy must not give a second key the epoch that was
    used since.
    """
    began = time.time()
    device_key = store.keys()[2]
    monkeypatch.setattr(time, "time", lambda: began + 60)

    before = keys.revoke(store, [3])
    monkeypatch.setattr(time, "time", lambda: began + 120)
    with Store(restored, create=False, beside=True) as beside:
        after = keys.revoke(beside, [1])  # a new fleet key, for the devices that are left

    # A board with the key of the lost store needs the new one, which has a higher epoch.
    board_key = BoardKey(before.epoch, answered_epoch=before.epoch)
    assert board_key.lacks(after.epoch)
    mask_before = xor(masked_key(before, 2, device_key), before.key)
    mask_after = xor(masked_key(after, 2, device_key), after.key)
    assert mask_before != mask_after


def test_each_epoch_has_one_key_even_if_several_processes_change_it_at_once(store, tmp_path):
    """The fleet key is replaced 30 times by three threads, each with the store opened for itself:
    ten times on purpose, and whenever one of 20 devices is revoked. Each key has an epoch, its
    number, of its own.
    """
    keys.add(store, range(1, 21))
    fleet_keys = [keys.fleet_key(store)]

    def rotate_ten_times():
        with Store(tmp_path / "store.sqlite", beside=True) as beside:
            for _ in range(10):
                fleet_keys.append(keys.rotate_fleet(beside))

    def revoke(devices):
        with Store(tmp_path / "store.sqlite", beside=True) as beside:
            for device in devices:
                fleet_keys.append(keys.revoke(beside, [device]))

    with ThreadPoolExecutor() as pool:
        changes = [
            pool.submit(rotate_ten_times),
            pool.submit(revoke, range(1, 11)),
            pool.submit(revoke, range(11, 21)),
        ]
    for change in changes:
        change.result()  # raises what the change raised

    by_epoch = {fleet.epoch: fleet for fleet in fleet_keys}
    # The first key, and one for each change.
    assert len(by_epoch) == len({fleet.key for fleet in fleet_keys}) == 1 + 30
    newest = max(by_epoch)
    assert keys.fleet_key(store) == by_epoch[newest]
    assert not store.keys(), "all devices are revoked"


def test_a_device_is_revoked_and_the_fleet_key_replaced_or_neither(store, monkeypatch):
    """Whoever has a revoked device knows the fleet key, so that a new one belongs to each
    revocation. If one of the devices is unknown, or the new key cannot be saved, no device is
    revoked.
    """
    keys.add(store, [1, 2])
    before = keys.fleet_key(store)

    with pytest.raises(UsageError, match="device 3 has no key"):
        keys.revoke(store, [1, 3])
    monkeypatch.setattr(store, "save_state", lambda state: 1 / 0)  # fails
    with pytest.raises(ZeroDivisionError):
        keys.revoke(store, [1])

    assert set(store.keys()) == {1, 2}
    assert keys.fleet_key(store) == before


def test_the_command_for_a_board_with_a_rotated_key_names_its_records(store, tern):
    keys.add(store, [7])
    path = str(store.path)
    store.close()
    rotated = tern("keys", "rotate", "7", "--store", path, "--output", f"{path}-keys")
    assert "--device 7 --data" in rotated.out


@pytest.mark.parametrize(
    "words",
    [
        ["5-3"],
        ["4294967295"],  # the fleet's
        ["1-3", "2"],
        ["1-4294967294"],  # a range that is too large is refused before it takes memory
    ],
    ids=" ".join,
)
def test_invalid_ids_are_refused(words):
    with pytest.raises(UsageError):
        keys.parse_ids(words)


@pytest.fixture
def changed(store, tmp_path):
    """A host whose open round has a report of device 1, after another process changed keys.

    Device 2 was revoked, and device 3 has a new key. (the host, old keys, new keys)
    """
    old, aggregator = keys.add(store, [1, 2, 3]), Aggregator(store)
    aggregator.open(1, [(QUESTION, [1, 2, 3])], 0.0)
    aggregator.accept([report(old[1], 1, 1)], 0.0)
    before = store.changes()
    with Store(tmp_path / "store.sqlite", beside=True) as beside:
        keys.revoke(beside, [2])
        new = keys.rotate(beside, [3])
    assert store.changes() != before
    aggregator.reload_keys()
    return aggregator, old, new


def test_in_an_open_round_a_revoked_device_is_unknown_and_a_new_key_is_too_early(changed):
    """The fixture has opened round 1 for the devices 1, 2 and 3, of which 1 has reported; then 2
    was revoked, and 3 got a new key. Reports count under the keys with which devices were asked:
    the one of 2 no longer, and that of 3 under its old key alone.
    """
    aggregator, old, new = changed

    of_revoked, under_new_key = report(old[2], 2, number=1), report(new[3], 3, number=1)
    aggregator.accept([of_revoked, under_new_key], 0.0)
    assert aggregator.statistics.unknown == 1
    assert aggregator.statistics.forged == 1

    aggregator.accept([report(old[3], 3, number=1)], 0.0)
    result = aggregator.ended(1, 0.0)
    assert result.reports == 2
    assert result.ended == "complete", "nothing is expected of 2"


def test_in_the_next_round_only_the_new_key_counts(changed, store):
    aggregator, old, new = changed
    store.end_round(1, "complete")
    aggregator.open(2, [(QUESTION, [1, 3])], 0.0)
    aggregator.accept([report(old[3], 3, 2), report(new[3], 3, 2)], 0.0)
    assert aggregator.reports(2) == 1
    assert aggregator.statistics.forged == 1


def test_a_refusal_signed_before_a_rotation_still_counts(store):
    """A device may refuse a question, here because its budget is spent. A refusal under the key
    with which the device was asked counts after a rotation, until the device is revoked; one under
    no key of the device never counts.
    """
    device_keys, aggregator = keys.add(store, [1, 2]), Aggregator(store)
    aggregator.open(1, [(QUESTION, [1, 2])], 0.0)
    new = keys.rotate(store, [1])
    aggregator.reload_keys()

    def counted_refusals(key):
        refusal = answers.error(digest(key, 1, 1), 1, 1, wire.ERR_BUDGET)
        return aggregator.accept([refusal], 0.0).refusals

    assert not counted_refusals(bytes(32)), "under a key of nobody"
    (counted,) = counted_refusals(device_keys[1])
    assert counted.code == wire.ERR_BUDGET

    keys.revoke(store, [1])
    aggregator.reload_keys()
    assert not counted_refusals(device_keys[1])
    assert not counted_refusals(new[1])

    statistics = aggregator.statistics
    assert (statistics.refused, statistics.forged, statistics.unknown) == (1, 1, 2)


@pytest.mark.parametrize("jump", [-1e9, 1e9], ids=["backwards", "forwards"])
def test_a_resumed_round_keeps_the_keys_of_its_opening_whatever_the_clock_says(
    store, monkeypatch, jump
):
    """A host opens a round, takes the reports of the devices 1, 2 and 3, and stops. Before it
    resumes the round, keys of 1 and 3 are replaced, 2 and 4 are revoked, and the clock has jumped
    by 30 years. The reports still count, although two of them are under keys that are no longer
    valid.
    """
    device_keys, aggregator = keys.add(store, [1, 2, 3, 4]), Aggregator(store)
    aggregator.open(1, [(QUESTION, [1, 2, 3, 4])], 0.0)
    reports = [report(device_keys[device], device, 1, symbol=2) for device in (1, 2, 3)]
    aggregator.accept(reports, 0.0)

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + jump)
    keys.rotate(store, [1, 3])
    keys.revoke(store, [2, 4])

    resumed = Aggregator(store)
    resumed.resume(0.0)
    result = resumed.ended(1, 0.0)

    assert result.cohorts[0].counts.sum() == 3
    assert result.ended == "complete", "nothing is expected of 4 any more"
