"""Rounds over ptys with real MicroPython, while boards die and their lines fail."""

import os
import queue
import signal
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
import rig
from harness.raw_client import wait_for

from tern import card as cards
from tern import storage, wire
from ternhost.count.rounds import COMPLETE, DEADLINE
from ternhost.errors import DeviceError, RefusedError
from ternhost.privacy.mechanisms import design
from ternhost.provision.boards import fleet_file
from ternhost.reach.ports.link import SerialLink
from terntools.emulators.unix_fleet import FIRMWARE, EmulatedBoard

ALL = range(1, 41)


@pytest.mark.parametrize(
    ("name", "levels", "k"),
    [
        ("duchi", None, 1),
        ("pm-sub", 255, 3),
        ("three-outputs", None, 6),
        ("optimal", 16, 1),
    ],  # the largest
)
def test_a_round_of_any_mechanism_counts_each_device_once(site, name, levels, k):
    card = design(name, 1, levels).card
    cost = k * cards.decode(card).epsilon
    fleet = site(largest=cost, budget=cost)
    with fleet.boards() as boards:
        result, aggregator = fleet.round(boards.ports, ALL, card=card, k=k)
    assert (result.ended, result.reports, result.asked) == (COMPLETE, 40, 40)
    assert vars(aggregator.statistics) == {
        **dict.fromkeys(vars(aggregator.statistics), 0),
        "accepted": 40,
    }
    assert result.cohorts[0].counts.sum() == 40 * k
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, ALL, cost)


def left(board):
    return board.hello["budget"] - board.spent


def test_devices_answer_round_after_round_until_their_budget_is_spent(site):
    fleet = site(clients=10, boards=1, budget=3 * rig.COST + 1)
    with fleet.boards() as boards:
        for number in (1, 2, 3):
            assert fleet.round(boards.ports, range(1, 11), number)[0].reports == 10
            assert [left(board) for board in fleet.store.boards()] == [(3 - number) * rig.COST + 1]
        with pytest.raises(
            RefusedError, match="10 of 10 devices refuse: their budget is spent"
        ) as caught:
            fleet.round(boards.ports, range(1, 11), 4)
    assert [left(board) for board in fleet.store.boards()] == [1]
    assert "1e-06 of it is left" in caught.value.message
    assert {spent for spent, _, _ in fleet.ledgers().values()} == {3 * rig.COST}


def test_devices_that_refuse_do_not_stop_the_others(site):
    fleet = site(clients=10, boards=1, budget=rig.COST)
    with fleet.boards() as boards:
        fleet.round(boards.ports, range(1, 6), 1)
        result, _ = fleet.round(boards.ports, range(1, 11), 2)
    assert result.reports == 5
    assert sorted(result.refusals) == [1, 2, 3, 4, 5]
    assert {refusal.code for refusal in result.refusals.values()} == {wire.ERR_BUDGET}


@pytest.mark.parametrize(
    ("largest", "claimed", "message"),
    [
        (rig.COST - 1, rig.COST, "more than they allow"),
        (rig.COST, rig.COST // 2, "does not keep its claim"),
    ],
)
def test_a_card_that_is_refused_costs_nothing(site, largest, claimed, message):
    card = rig.CARD[:1] + claimed.to_bytes(4, "little") + rig.CARD[5:]
    fleet = site(clients=5, boards=1, largest=largest, budget=9 * rig.COST)
    with fleet.boards() as boards, pytest.raises(RefusedError, match=message) as caught:
        fleet.round(boards.ports, range(1, 6), card=card)
    assert caught.value.exit_code == 4
    assert {spent for spent, _, _ in fleet.ledgers().values()} == {0}


def test_an_old_round_is_refused(site):
    fleet = site(clients=5, boards=1, budget=2 * rig.COST)
    with fleet.boards() as boards:
        fleet.round(boards.ports, range(1, 6), 7)
        keys = fleet.store.keys()
        fleet.store.close()
        fleet.store.path.unlink()
        fleet.store = type(fleet.store)(
            fleet.store.path
        )  # a new store that knows the keys, and no rounds
        fleet.store.add_devices(keys)
        with pytest.raises(RefusedError, match="say that they have seen round 7 already") as caught:
            fleet.round(boards.ports, range(1, 6), 3)
    assert "--after-round 7" in caught.value.hint


def test_boards_with_keys_of_another_store_are_refused(site):
    fleet = site(clients=3, boards=1)
    fleet.store.add_devices({device: bytes(32) for device in (1, 2, 3)})
    with fleet.boards() as boards, pytest.raises(RefusedError, match="have other keys"):
        fleet.round(boards.ports, (1, 2, 3))
    assert {spent for spent, _, _ in fleet.ledgers().values()} == {0}


def test_a_round_waits_for_clients_that_must_pause(site):
    fleet = site(clients=6, boards=1, budget=2 * rig.COST)
    (fleet.directories[0] / storage.FLEET).write_bytes(fleet_file(bytes(wire.KEY_BYTES), pause=2))
    with fleet.boards() as boards:
        fleet.round(boards.ports, range(1, 7), 1)
        result, aggregator = fleet.round(boards.ports, range(1, 7), 2)
    assert result.reports == 6
    assert aggregator.statistics.unread > 0
    assert {spent for spent, _, _ in fleet.ledgers().values()} == {2 * rig.COST}


# Boards that die


class _During:
    """Calls `act` once, when a round has `reports` reports."""

    def __init__(self, reports, act):
        self._reports, self._act, self.done = reports, act, False

    def __call__(self, progress):
        if progress.reports >= self._reports and not self.done:
            self.done = True
            self._act()


def test_a_board_that_loses_power_again_and_again(site):
    devices, fleet = range(1, 61), site(clients=60)
    frames = cuts = 0
    with fleet.boards() as boards:
        board = boards.boards[0]

        def cut_power(data):
            nonlocal frames, cuts
            frames += data.count(0)
            if frames >= 10 * (cuts + 1):
                board.restart()
                cuts += 1
            return data

        with rig.Proxy(board.port, up=cut_power) as proxy:
            result, aggregator = fleet.round([proxy.port, *boards.ports[1:]], devices)
    assert cuts > 1
    assert (result.ended, result.reports) == (COMPLETE, 60)
    assert aggregator.statistics.accepted == 60
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, devices)


def test_a_board_that_is_unplugged_is_left_out_with_a_warning(site):
    fleet, warnings = site(clients=80), []
    with fleet.boards() as boards:
        board = boards.boards.pop()
        unplug = _During(20, board.close)
        # While somebody has it open, no board of another test gets a port of its name.
        with closing(board), open(board.port, "rb", buffering=0):
            ports = [*boards.ports, board.port]
            result, _ = fleet.round(
                ports, range(1, 81), report=unplug, warn=warnings.append, silence=3.0
            )
    assert unplug.done
    assert 40 <= result.reports < 80
    assert any("gone" in warning and board.port in warning for warning in warnings)
    assert any(f"{board.port} is left out" in warning for warning in warnings), warnings
    assert {device for device, _ in fleet.store.reports(1)} >= set(range(1, 41))


def test_the_last_board_that_is_unplugged_is_an_error(site):
    fleet = site(clients=4, boards=1)
    with fleet.boards() as boards:
        board, ports = boards.boards[0], boards.ports

        def stop():  # silent before the first report
            os.kill(board.pid, signal.SIGSTOP)

        unplug = _During(0, board.close)
        with pytest.raises(DeviceError):
            fleet.round(ports, range(1, 5), report=unplug, before=stop, silence=1.0)
    assert unplug.done


# Lines that damage bytes and frames


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["both", "down", "up"])
def test_a_line_that_damages_bytes_loses_and_doubles_no_report(site, way):
    devices, fleet = range(1, 101), site(clients=100, boards=1)
    down, up = rig.Damage(1, 0.001), rig.Damage(2, 0.004)  # a device is asked 12 times at most
    down.on, up.on = way != "up", way != "down"
    with fleet.boards() as boards, rig.Proxy(boards.ports[0], down, up) as proxy:
        result, aggregator = fleet.round([proxy.port], devices)
    assert down.done + up.done > 5
    assert (result.ended, result.reports) == (COMPLETE, 100)
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, devices)
    assert aggregator.statistics.accepted == 100


class _Some:
    """Picks every `n`th frame, but none twice: a device is asked 12 times at most."""

    def __init__(self, n):
        self._n, self._passed, self._picked = n, 0, set()

    def __call__(self, frame):
        self._passed += 1
        if self._passed % self._n or frame in self._picked:
            return False
        self._picked.add(frame)
        return True


class _Frames:
    """Whole COBS frames, zero included, through `change`: frame -> bytes."""

    def __init__(self, change):
        self._change, self._rest = change, b""

    def __call__(self, data):
        *frames, self._rest = (self._rest + data).split(b"\x00")
        return b"".join(self._change(frame + b"\x00") for frame in frames)


@pytest.mark.parametrize(("way", "longer_than"), [("up", 1), ("down", 60)])
def test_repeated_frames_count_and_cost_once(site, way, longer_than):
    """Reports, which go up; and requests, the long frames that go down."""
    fleet = site()
    thrice = _Frames(lambda frame: 3 * frame if len(frame) > longer_than else frame)
    with fleet.boards() as boards, rig.Proxy(boards.ports[0], **{way: thrice}) as proxy:
        result, aggregator = fleet.round([proxy.port, boards.ports[1]], ALL)
    assert result.reports == 40
    assert aggregator.statistics.duplicate >= 38
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, ALL)


@pytest.mark.parametrize(
    ("every", "longer_than", "share"), [(5, 20, 0.5), (4, 1, 0)], ids=["truncated", "lost"]
)
def test_truncated_and_lost_frames_lose_and_double_no_report(site, every, longer_than, share):
    fleet, picked = site(), _Some(every)

    def hurt(frame):
        if len(frame) <= longer_than or not picked(frame):
            return frame
        return frame[: int(len(frame) * share)] + b"\x00" if share else b""

    with (
        fleet.boards() as boards,
        rig.Proxy(boards.ports[0], _Frames(hurt), _Frames(hurt)) as proxy,
    ):
        result, aggregator = fleet.round([proxy.port, boards.ports[1]], ALL)
    assert result.reports == 40
    statistics = aggregator.statistics
    assert not share or statistics.unread + statistics.damaged + statistics.forged > 0
    rig.assert_counted_once(fleet.store, fleet.ledgers(), 1, ALL)


# Late reports


def test_late_reports_are_recognised_and_not_counted(site, monkeypatch):
    fleet = site(clients=20, boards=2, budget=2 * rig.COST)
    clock = SimpleNamespace(ahead=0.0, monotonic=lambda: time.monotonic() + clock.ahead)
    monkeypatch.setattr("ternhost.reach.ports.driver.time", clock)
    slow, delayed = threading.Event(), []

    def hold(frame):  # reports, until the hello of the next round
        if slow.is_set() and 1 < len(frame) < 40:
            delayed.append(frame)
            return b""
        if len(frame) >= 40 and not slow.is_set():
            frame = b"".join([*delayed, frame])
            delayed.clear()
        return frame

    def end(progress):  # once the other board has answered
        if progress.reports == 10 and len(delayed) >= 10:
            clock.ahead = 60.0

    with fleet.boards() as boards, rig.Proxy(boards.ports[1], up=_Frames(hold)) as proxy:
        ports = [boards.ports[0], proxy.port]
        first, _ = fleet.round(ports, range(1, 21), 1, deadline=60.0, report=end, before=slow.set)
        assert (first.ended, first.reports) == (DEADLINE, 10)
        assert [device for device, _ in fleet.store.reports(1)] == list(range(1, 11))
        slow.clear()
        second, aggregator = fleet.round(ports, range(1, 21), 2)
    assert second.reports == 20
    assert fleet.store.reports(1) == sorted(fleet.store.reports(1))
    assert len(fleet.store.reports(1)) == 10
    assert aggregator.statistics.late >= 10
    assert all(
        spent == 2 * rig.COST or number == 2 for spent, number, _ in fleet.ledgers().values()
    )


# Ports


def test_a_port_that_another_program_has_open_is_busy(site):
    fleet = site(clients=1, boards=1)
    with fleet.boards() as boards:
        with (
            closing(SerialLink(boards.ports[0], queue.SimpleQueue())),
            pytest.raises(DeviceError, match="busy"),
        ):
            fleet.round(boards.ports, [1])
        assert fleet.round(boards.ports, [1])[0].reports == 1  # the port is free again


def test_silence_on_a_port_is_an_error(monkeypatch, site):
    monkeypatch.setattr("ternhost.reach.ports.driver._HELLO_TIMEOUT", 1.0)
    fleet = site(clients=1, boards=1)
    with fleet.boards() as boards:
        boards.boards[0].kill()
        with pytest.raises(DeviceError, match="no tern device answers"):
            fleet.round(boards.ports, [1])


def test_a_board_that_crashes_says_why(tmp_path, micropython):
    with closing(EmulatedBoard(micropython, tmp_path, firmware=tmp_path)) as board:
        wait_for(lambda: os.waitid(os.P_PID, board.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        assert "ended with status 1: ImportError" in str(board.failure())


@pytest.mark.parametrize(
    ("old", "new", "advice"),
    [
        ("VERSION = const(2)", "VERSION = const(3)", "update this host"),
        ("VERSION = const(2)", "VERSION = const(1)", "update the board"),
        ("MAX_BATCH = const(32)", "MAX_BATCH = const(31)", "same version"),
    ],
)
def test_a_board_of_another_schema_is_refused_with_advice(site, tmp_path, old, new, advice):
    fleet, changed = site(clients=1, boards=1), tmp_path / "firmware"
    for path in (FIRMWARE / "tern").rglob("*.py"):
        copy = changed / path.relative_to(FIRMWARE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text()
        if path.name == "wire.py":
            assert old in text
            text = text.replace(old, new)
        copy.write_text(text)
    with (
        closing(EmulatedBoard(fleet.micropython, fleet.directories[0], firmware=changed)) as board,
        pytest.raises(RefusedError, match="another schema") as caught,
    ):
        fleet.round([board.port], [1])
    assert advice in caught.value.hint
    assert caught.value.exit_code == 4


def test_two_boards_never_share_a_ledger(site, monkeypatch):
    monkeypatch.setattr("terntools.emulators.unix_fleet._LOCK_TIMEOUT", 0.2)
    fleet = site(clients=1, boards=1)
    with fleet.boards(), pytest.raises(DeviceError, match="another process"):
        EmulatedBoard(fleet.micropython, fleet.directories[0])


def test_leaving_a_fleet_ends_its_processes(site):
    fleet, pids = site(clients=2, boards=2), []

    def fail():
        with fleet.boards() as boards:
            pids.extend(board.pid for board in boards.boards)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
