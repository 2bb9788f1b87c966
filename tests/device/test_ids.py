"""Ids and numbers around 2**30 and 2**31, where the small integers of a 32-bit MicroPython end."""

import struct

import scratch
import small_board
from small_board import EPSILON, ask, ask_all, error_of, key_of, provision, round_frame, spent

from tern import frames, host_frames, storage, wire
from tern.client import Client

IDS = (7, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32 - 2)
FLEET_KEY = bytes(range(100, 132))


def board(folder, first, count, key=FLEET_KEY, **options):
    made = provision(folder, clients=count, first=first, **options)
    with open(folder + "/" + storage.FLEET, "wb") as file:
        file.write(struct.pack(storage.FLEET_FIELDS, storage.FLEET_MAGIC, key, 0, 0, 1, 1, 0))
    return made


def test_every_id_answers_its_own_rounds_and_those_of_the_fleet():
    for device in IDS:
        for count in (1, 3):
            first = device - count + 1
            folder = scratch.folder()
            client = Client(board(folder, first, count))
            announced = round_frame(1, small_board.THREE, device=wire.FLEET, key=FLEET_KEY)
            found = ask_all(client, announced)
            assert [frames.address(report) for report in found] == [(first + i, 1) for i in range(count)]
            for report in found:
                who = frames.address(report)[0]
                assert report[0] == wire.REPORT
                frames.verify(small_board.answer_key(who), report)
                assert spent(folder, who) == 4 * EPSILON
            alone = ask(client, round_frame(1, small_board.THREE, device=device))
            assert alone == found[-1]
            assert ask(client, round_frame(2, small_board.THREE, device=device))[0] == wire.REPORT
            client = Client(client.board)
            assert ask(client, round_frame(2, small_board.THREE, device=device))[0] == wire.REPORT
            assert spent(folder, device) == 8 * EPSILON
            assert error_of(ask(client, round_frame(1, small_board.THREE, device=device)), device) == (4, 2)


def test_every_id_pauses():
    for device in IDS:
        folder = scratch.folder()
        made = provision(folder, clients=2, first=device - 1)
        with open(folder + "/" + storage.FLEET, "wb") as file:
            file.write(struct.pack(storage.FLEET_FIELDS, storage.FLEET_MAGIC, FLEET_KEY, 60, 0, 1, 1, 0))
        answer = ask(Client(made), round_frame(1, small_board.THREE, device=device))
        assert error_of(answer, device) == (wire.ERR_TOO_SOON, 60)


def test_an_id_beyond_the_board_is_refused():
    for device in IDS:
        client = Client(board(scratch.folder(), device - 1, 1))
        assert error_of(ask(client, round_frame(1, small_board.THREE, device=device)), 0) == (3, device)


def test_nonces_epochs_and_heaps():
    out = bytearray(128)
    for nonce in IDS:
        client = Client(board(scratch.folder(), 7, 1))
        n = frames.encode_hello_request(out, nonce)
        hello = host_frames.Hello(bytes(client.reply[: client.answer(memoryview(out)[:n])]))
        assert (hello.nonce, hello.first) == (nonce, 7)


def test_a_fleet_key_of_a_later_epoch_replaces_the_one_before():
    for device in IDS:
        folder = scratch.folder()
        client = Client(board(folder, device, 1))
        out = bytearray(128)
        new = bytes(range(32, 64))

        def bring(epoch, key, signed=None, to=device, out=out, client=client):
            n = host_frames.encode_fleet_key(out, signed or key_of(to), to, epoch, key)
            return bytes(client.reply[: client.answer(memoryview(out)[:n])])

        assert bring(2, new, FLEET_KEY)[0] == wire.ERROR
        assert bring(2, new, to=device - 1)[0] == wire.ERROR
        assert host_frames.Hello(bring(2, new)).epoch == 2
        assert host_frames.Hello(bring(2, FLEET_KEY)).epoch == 2
        assert host_frames.Hello(bring(1, FLEET_KEY)).epoch == 2
        for again in (client, Client(client.board)):
            old = round_frame(1, small_board.THREE, device=wire.FLEET, key=FLEET_KEY)
            assert error_of(ask_all(again, old)[0], 0) == (wire.ERR_DEVICE, wire.FLEET)
            now = round_frame(1, small_board.THREE, device=wire.FLEET, key=new)
            assert ask_all(again, now)[0][0] == wire.REPORT
        assert host_frames.Hello(bring(2**31, new)).epoch == 2**31
        assert host_frames.Hello(bring(2**32 - 2, new)).epoch == 2**32 - 2
        assert host_frames.Hello(bring(2**31, new)).epoch == 2**32 - 2
        assert spent(folder, device) == 4 * EPSILON


def test_a_board_of_its_own_key_only_takes_no_fleet_key():
    folder = scratch.folder()
    made = provision(folder)
    out = bytearray(128)
    n = host_frames.encode_fleet_key(out, key_of(7), 7, 5, FLEET_KEY)
    client = Client(made)  # without fleet.bin
    assert host_frames.Hello(bytes(client.reply[: client.answer(memoryview(out)[:n])])).epoch == 0
    with open(folder + "/" + storage.FLEET, "wb") as file:
        row = (storage.FLEET_MAGIC, bytes(32), 0, 0, 1, 2**32 - 1, 0)
        file.write(struct.pack(storage.FLEET_FIELDS, *row))
    client = Client(made)
    assert host_frames.Hello(bytes(client.reply[: client.answer(memoryview(out)[:n])])).epoch == 2**32 - 1
    assert storage.read_fleet(folder + "/" + storage.FLEET)[0] == bytes(32)


def test_a_model_asks_for_no_answer():
    client = Client(board(scratch.folder(), 7, 1))
    out = bytearray(128)
    n = host_frames.encode_model(out, FLEET_KEY, wire.FLEET, 3, wire.LINEAR, (1, 2, 3, 4), -14)
    assert ask_all(client, memoryview(out)[:n]) == []
