"""Which link a board has: that whose configuration file it holds."""

import sys

import scratch

from tern import links
from tern.boards.emulated import Board


class Fake:
    """A link, and the module that it comes from."""

    console = False

    def __init__(self, directory):
        self.directory = directory

    @staticmethod
    def open_link(board):
        return Fake(board.directory)


def test_a_configuration_file_chooses_a_registered_link():
    folder = scratch.folder()
    links.MODULES["fake.json"] = "fake_link"
    try:
        with open(folder + "/fake.json", "w") as file:
            file.write("{}")
        try:
            Board(folder).link()
            raise AssertionError("there is no such module")
        except ImportError:
            pass
        sys.modules["fake_link"] = Fake
        assert Board(folder).link().directory == folder
    finally:
        del links.MODULES["fake.json"]
        sys.modules.pop("fake_link", None)
