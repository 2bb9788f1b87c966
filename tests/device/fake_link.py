"""A link whose other end is a test."""


class Link:
    """Receives the frames of `given` and raises its exceptions, then `end`; keeps what is done with
    it.
    """

    def __init__(self, given=(), console=False, end=EOFError):
        self.given = list(given)
        self.console = console
        self.end = end
        self.sent = []
        self.waits = set()
        self.admitted = []
        self.closed = self.left = 0

    def receive(self, timeout_ms=-1):
        self.waits.add(timeout_ms)
        frame = self.given.pop(0) if self.given else self.end
        if isinstance(frame, type):
            raise frame("the records are 1, 2 and 3")
        return frame

    def send(self, reply, n):
        self.sent.append(bytes(reply[:n]))
        return True

    def admit(self, kind):
        self.admitted.append(kind)

    def waiting(self):
        return 0

    def disconnect(self):
        self.left += 1

    def close(self):
        self.closed += 1
