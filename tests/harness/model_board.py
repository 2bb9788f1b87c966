"""micropython model_board.py DIRECTORY: an emulated board (tern.boards.emulated) that also accepts
MODEL frames.
"""

import sys

from tern import wire
from tern.boards.emulated import Board
from tern.client import Client
from tern.model import Model


def main(directory):
    board = Board(directory)
    board.exceptions = board.restarts = 0
    model = Model()
    model.open(directory)
    link = board.link()
    client = Client(board)
    while True:
        frame = link.receive(-1)
        if frame is None:
            continue
        if len(frame) and frame[0] == wire.MODEL:
            clients = client.open_clients()
            clients.find(clients.first)
            of_fleet = frame[1:5] == b"\xff\xff\xff\xff"
            model.take_model(frame, client.policy.fleet_key if of_fleet else clients.key)
        else:
            client.respond(frame, link.send)


main(sys.argv[-1])
