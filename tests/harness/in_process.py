"""A fleet for tests of whole runs: the device library itself on files that tern makes, without processes."""

from ternhost.drivers.ports import Ports
from ternhost.fleet import KINDS, Fleet


class InProcess(Fleet):
    form, about = "inprocess:N", "N boards in this process"
    provisions = True
    knows_records = True
    most_clients = 40

    def __init__(self, text):
        super().__init__(text)
        self.count = self.number("boards", 100)

    def boards(self, directories, modules=(), whole=False):
        return Ports([f"inprocess:{directory}" for directory in directories])


KINDS.register("inprocess", InProcess)
