"""A slotted link beside the tasks of a program, which hide nothing then (shared_specs/storage.md, "Slot")."""

from tern.compat import TYPE_CHECKING, const, ticks_diff, ticks_ms

if TYPE_CHECKING:
    from typing import Any

    from tern.recorder import Recorder

_LOOKS = const(4)  # in a slot
_STEPS = const(8)  # of the link in a look, at most
_NEAR_MS = const(8)  # a look so near is waited for


class Beside:
    """`link`, a Slotted, that looks for a frame only at quarters of its slot: to be asked more often than that.

    The recorder writes its records just after a look, so that the time of a write shows no more than that of a task.
    """

    def __init__(self, link: "Any", recorder: "Recorder") -> None:
        self._link = link
        self._recorder = recorder
        recorder.patient = True

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._link, name)

    def receive(self, timeout_ms: int) -> "memoryview | None":
        """As the link's with a timeout of 0, whatever it is."""
        link = self._link
        if link.busy:
            return link.receive(0)
        look = link.slot // _LOOKS
        while (waited := ticks_diff(now := ticks_ms(), link.last)) < look:
            if look - waited > _NEAR_MS:
                if waited < look // _LOOKS:
                    self._recorder.tend()
                return None
        link.last = now = now - waited % look
        for _ in range(_STEPS):
            frame = link.receive(0)
            if frame is not None:
                link.begin(now)  # a HELLO_REQUEST, too
                break
        return frame
