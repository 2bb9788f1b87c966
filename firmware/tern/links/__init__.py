"""Links: each is a module with a function open_link(board).

It returns an object with the methods of links.serial.Serial, and `console`: whether its port is the
board's console.
"""

import os

# The configuration file of a link, among the board's files -> its module.
MODULES = {"mqtt.json": "tern.links.mqtt"}


def open_link(board):
    """Return the link that a file in board.directory configures, else the console's.

    Raises as that link's open_link(), or ImportError without its module.
    """
    module = "tern.links.serial"
    for name in MODULES:
        try:
            os.stat(board.directory + "/" + name)
            module = MODULES[name]
        except OSError:
            pass
    return __import__(module, None, None, ("open_link",)).open_link(board)
