"""A board opens the link whose configuration file it holds."""

import scratch
from checks import modules, raises, replaced

from tern import links
from tern.boards.emulated import Board


class Fake:
    """A link, and the module that defines it."""

    console = False

    def __init__(self, directory):
        self.directory = directory

    @staticmethod
    def open_link(board):
        return Fake(board.directory)


def test_a_configuration_file_chooses_a_registered_link():
    folder = scratch.folder()
    scratch.write(folder + "/fake.json", b"{}")
    with replaced(links, MODULES={"fake.json": "missing_link"}):
        raises(ImportError, Board(folder).link)  # there is no such module yet
        with modules({"missing_link": Fake}):
            assert Board(folder).link().directory == folder
