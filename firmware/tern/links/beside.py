"""A slotted link beside the tasks of a program (shared_specs/storage.md, "Slot").

Such tasks hide nothing of the link's times.
"""

from tern.compat import TYPE_CHECKING, const, ticks_diff, ticks_ms

if TYPE_CHECKING:
    from tern.links.slot import Slotted
    from tern.recorder import Recorder

_LOOKS = const(4)  # for a frame, in a slot
_STEPS = const(8)  # of the link in a look, at most; each may take a part of a frame


def receive(link: "Slotted", recorder: "Recorder") -> "memoryview | None":
    """Return the next frame as link.receive(0), but look for one only at quarters of the slot.

    It is to be called more often than that. The recorder writes its records just after a look, so
    that the time of a write shows no more than that of a task.
    """
    if link.busy:  # an answer waits for its moment
        return link.receive(0)
    look = link.slot // _LOOKS
    now = link.until(look, 0)
    # Not yet time for a look. In the first quarter after the last one, the recorder may write.
    if now < 0:
        if ticks_diff(ticks_ms(), link.last) < look // _LOOKS:
            recorder.tend()
        return None
    for _ in range(_STEPS):
        frame = link.receive(0)
        link.busy = link.busy or frame is not None  # also for a HELLO_REQUEST
        if link.busy:
            break
    link.last = now
    return frame
