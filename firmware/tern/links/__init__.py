"""Links: how a host's frames reach a board, and its answers the host.

Each link is a module with a function open_link(board), which returns an object with the methods of links.serial.Serial,
and `console`: whether its port is the board's console.
"""

import os

# The configuration file of a link, among the board's files -> its module.
MODULES = {"mqtt.json": "tern.links.mqtt"}


def open_link(board):
    """Return the link whose configuration file is in board.directory; that of the console where there is none.

    Raises what the link's own open_link raises, and ImportError where the board lacks its module.
    """
    module = "tern.links.serial"
    for name in MODULES:
        try:
            os.stat(board.directory + "/" + name)
            module = MODULES[name]
        except OSError:
            pass
    return __import__(module, None, None, ("open_link",)).open_link(board)
