"""The heap that the client takes."""

import gc

import scratch
import small_board
from small_board import provision, round_frame

from tern import wire
from tern.client import Client
from tern.compat import MICROPYTHON


def test_the_loop_at_100_dimensions_fits_32_kib():
    # Small chips have little memory. With 32 KiB free and not more, a client with 100 features
    # answers three rounds, each asked five times. To test this, a chain of byte arrays (`ballast`)
    # fills all of the heap but `room`, which is then released.
    if not MICROPYTHON:
        return
    room = bytearray(32768)
    folder = scratch.folder()
    board = provision(folder, d=100, records=3)
    card = small_board.largest_card()
    requests = [round_frame(number, card, d=100, k=100) for number in range(1, 4)]
    gc.collect()
    ballast = None  # takes all the rest of the heap
    for size in (4096, 512, 64, 16):
        try:
            while True:
                ballast = (ballast, bytearray(size))
        except MemoryError:
            pass
    del room
    gc.collect()
    # 32 KiB and some scattered pieces are free.
    assert gc.mem_free() <= 32768 + 1024, gc.mem_free()
    before = gc.mem_alloc()
    client = Client(board)
    for request in requests:
        for _ in range(5):
            n = client.answer(request)
            assert client.reply[0] == wire.REPORT and n > 40
    gc.collect()
    print("client at d = 100 holds", gc.mem_alloc() - before, "bytes")
    assert ballast  # it was held all the time
