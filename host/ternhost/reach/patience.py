"""How long a host waits for the answers of boards at ports ("How a host waits" in wire.md).

A board with a slot answers at the end of its slot. Nothing that a board sends says how long its slot
is, so a host measures how long a board takes.
"""

LONGEST_SLOT = 65.535  # seconds
_SLOTS_UNTIL_ANSWER = 2  # at most, if nothing else is to be answered first: its slot, and its looks

# Until a board has said HELLO, in seconds:
HELLO_EVERY = 1.0  # between the first two requests
GROWTH = 1.5  # each further pause between two requests is so many times as long
AFTER_SIGN = _SLOTS_UNTIL_ANSWER * LONGEST_SLOT  # from a sign that the board reads to its HELLO
MOST_WAIT = 300.0  # in all, whatever comes from the port


def patience_for(answer_seconds: float, least: float) -> float:
    """Return how many seconds to wait for an answer of a board.

    answer_seconds: how long the board took for an earlier answer, or its slot; 0 if neither is
    known. least: how many seconds a board gets that answers at once.
    """
    return least + _SLOTS_UNTIL_ANSWER * answer_seconds
