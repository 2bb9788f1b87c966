"""Whether a client may answer: its largest cost, the slot, the certificate, its budget, its pause.

The order of the checks is that of shared_specs/ledger.md. No check looks at records.
"""

from tern import wire
from tern.card import certify
from tern.compat import const, ticks_diff
from tern.frames import FrameError
from tern.shapes import HIERARCHY, SUM, WINDOW
from tern.storage import read_fleet

_BASE_MS = const(240)  # that any report takes: modules, garbage, room on the flash
_MODULES_MS = const(50)  # more, for a report that needs many modules
_MANY = const(65535)  # records, where the board states no bound


def work_ms(request, card, size, bound, recorder=None):
    """Return an upper bound, in ms, on the time of a report on a Pico (storage.md, Slot).

    A board with slots refuses a request that might take longer than a slot. So that neither the
    refusal nor the time tells anything of the records, the bound depends on public values alone.
    Its constants were measured; divisions are shifts.

    request: the frames.Round. card: its card. size: bytes of packed symbols. bound: the most
    records of a client, 0 for no bound. recorder: that of a program, or None.
    """
    batch = request.batch
    k = request.k
    model = request.model
    shape = card.shape

    # Drawing and packing of k symbols, decoding and certifying of the card.
    work = _BASE_MS + (k >> 2) + (k * size >> 11)
    work += len(card.data) >> (3 if shape == HIERARCHY else 6)
    if shape > WINDOW:  # their draws take up to a ms longer
        work += k
    if model == wire.SOFTMAX_GRADIENT:
        many_modules = shape >= SUM
    else:
        many_modules = model == wire.LOCAL_SOFTMAX or (model == wire.VALUES and shape > SUM)
    if many_modules:
        work += _MODULES_MS

    # Records: each of `passes` passes reads `count` of them. `records` is how many are computed on
    # in all; in local training the end of each batch counts as one more.
    bound = bound or _MANY
    passes = 1
    count = bound
    if request.epochs:
        passes = request.epochs
        records = passes * (bound + bound // (batch or wire.MAX_BATCH) + 1)
    elif shape == SUM:
        records = bound
        work += card.body.work_ms(request, bound)
    else:
        # A batch of 0 has all records.
        records = count = 1 if model in wire.OF_ONE_RECORD else batch or bound

    work += records * record_work(request) >> 8  # from ms / 256
    if recorder:
        work += recorder.work_ms(count, passes)
    return work


def record_work(request):
    """Return an upper bound, in ms / 256, on the time of one record."""
    if request.model == wire.CATEGORIES:
        return 20 * request.d + 128  # each feature by itself
    return request.classes * (request.d + 64) + (224 if request.classes > 1 else 128)


class Policy:
    """What fleet.bin says (storage.md), and the checks of a report that is asked for.

    fleet_key, epoch: the fleet's key and its number; None and 0 without a fleet.
    slot_ms: how long after a request its answer is sent; 0: at once.
    bound: the public upper bound on the records of a client; 0: none.
    unit: the number of records of a run that is protected as a whole; 0: all of the client.
    ahead: for how many reports one write of the ledger pays.
    cost, at_once: of the report that was allowed last, its price in millionths, and for how many
    reports the write pays.
    paid: for each client, the time (ms) of the last ROUND that it paid for; empty if they need not
    pause.
    """

    def __init__(self):
        """Set what holds until `read` has found a fleet.bin; the class says what each field is."""
        self.fleet_key = None
        # Without a fleet answers are sent at once, the number of records has no bound, and the
        # whole of a client's records is protected.
        self.epoch = self.slot_ms = self.bound = self.unit = 0
        self.ahead = 1  # each report is paid for on its own
        # Of the report that was allowed last: its price, and for how many reports a write pays.
        self.cost = 0
        self.at_once = 1
        # A program that records samples sets its recorder, so that a slot has time to read them.
        self.recorder = None
        self._pause_ms = 0
        self.paid = []  # no client has to pause

    def read(self, path):
        """Read the fleet.bin at `path`; without one there is no fleet. Raises StorageError."""
        self.fleet_key, pause, self.slot_ms, self.ahead, self.epoch, self.bound, self.unit = (
            read_fleet(path)
        )
        self._pause_ms = 1000 * pause

    def begin(self, count, now):
        """Begin to serve `count` clients at `now` (ms).

        Nobody knows when they paid last, so all of them pause first.
        """
        if count > 1:
            self.ahead = 1
        if self._pause_ms:
            self.paid = [now] * count

    def check_card(self, client, report, request):
        """Raise FrameError if `client` must not give this `report` for its card.

        Checked are the cost and the shape, the slot, and the certificate.
        """
        card = report.card
        # client.shapes has bit i set if shape i is allowed; 0 allows all.
        if self.cost > client.largest or (client.shapes and not client.shapes >> card.shape & 1):
            raise FrameError(wire.ERR_POLICY, "too dear, or not this shape", client.largest)
        if self.slot_ms:
            self._check_slot(report, request)
        if card.certified is None:
            card.certified = certify(card)
        if not card.certified:
            raise FrameError(wire.ERR_NOT_CERTIFIED, "card does not keep its epsilon", card.epsilon)

    def _check_slot(self, report, request):
        """Raise FrameError if the report may take longer than the slot."""
        work = work_ms(request, report.card, report.packed_bytes, self.bound, self.recorder)
        if work > self.slot_ms:
            raise FrameError(wire.ERR_SLOT, "too long for the slot")

    def check_client(self, client, ledger, now):
        """Raise FrameError if the budget of `client` is spent, or if it pauses at `now` (ms).

        Else set `at_once`, the number of reports that one write of the ledger pays for.
        """
        # Few variables: with more than 11 words, those of a call included, MicroPython would
        # allocate the frame on the heap.
        left = ledger.budget
        if left > client.budget:
            left = client.budget
        left -= ledger.spent
        if self.cost > left:
            if left < 0:
                left = 0
            raise FrameError(wire.ERR_BUDGET, "budget spent", left)
        if self.paid:
            self._check_pause(self.paid[client.device - client.first], now)
        at_once = self.ahead
        if at_once > 1:
            at_once = min(at_once, left // self.cost)
        self.at_once = at_once

    def _check_pause(self, paid, now):
        """Raise FrameError if the client, which paid at `paid` (ms), still pauses at `now`.

        The detail is the rest of the pause, in seconds rounded up.
        """
        rest = self._pause_ms - ticks_diff(now, paid)
        if 0 < rest <= self._pause_ms:
            raise FrameError(wire.ERR_TOO_SOON, "the client pauses", (rest + 999) // 1000)
