"""Boards by their files, and ROUNDs by their fields, written without the library, which they check."""

import hashlib
from dataclasses import dataclass, field, fields

from spec.cards import THREE
from spec.files import client_row, fleet_file, key_of, ledger_file, records_file
from spec.frames import COLLECTIONS, FLEET, features, int16s, round_body, sealed

FLEET_KEY = hashlib.sha256(b"fleet").digest()


@dataclass(frozen=True)
class Board:
    """Clients from `first` on, each with `held` records of d features. fleet: the fields of
    fleet.bin after the key.
    """

    first: int = 7
    clients: int = 1
    d: int = 2
    held: int = 3
    largest: int = 10**9
    budget: int = 10**9
    shapes: int = 0
    start: int = 0
    ledgers: tuple = (ledger_file(),)  # of the clients; the last one of all further clients, too
    fleet: tuple | None = None  # pause, slot, ahead, epoch, records
    files: dict = field(default_factory=dict)  # instead of those above; None: missing

    def image(self):
        rows, files = b"", {}
        for i in range(self.clients):
            device = self.first + i
            start = self.start + i * self.held
            rows += client_row(device, self.largest, self.budget, start, self.held, self.shapes)
            files[f"ledger/{device:08x}"] = self.ledgers[min(i, len(self.ledgers) - 1)]
        count = self.clients * self.held
        values = [
            16384 - (3001 * i + 5171 * j) % 32769 for i in range(count) for j in range(self.d + 1)
        ]
        files = {"clients.bin": rows, "records.bin": records_file(self.d, values), **files}
        if self.fleet:
            files["fleet.bin"] = fleet_file(FLEET_KEY, *self.fleet)
        files |= self.files
        return {name: data for name, data in files.items() if data is not None}


@dataclass(frozen=True)
class Round:
    """The fields of a ROUND. parameters: all are made from these; in a collection the features
    asked for.
    """

    device: int = 7
    round: int = 1
    model: int = 2
    range: int = 0
    exponent: int = -14
    classes: int = 1
    d: int = 2
    k: int = 2
    batch: int = 0
    epochs: int = 0
    rate: int = 0
    tau: int = 0
    question: bytes | None = None  # instead of that of the parameters
    card: bytes = THREE
    length: int | None = None  # another value of the card's length field
    parameters: tuple = (3, -5)
    key: bytes | None = None

    def body(self):
        question = self.question
        if question is None and self.model in COLLECTIONS:
            question = features(self.parameters, self.d)
        elif question is None:
            n = self.classes * self.d
            question = int16s(
                [self.parameters[j % len(self.parameters)] + j // 2 for j in range(n)]
            )
        *head, epochs, rate, tau = (getattr(self, name) for name in FIELDS)
        return round_body(*head, (epochs, rate, tau), question, self.card, self.length)

    def frame(self):
        return sealed(
            self.key or (FLEET_KEY if self.device == FLEET else key_of(self.device)), self.body()
        )


FIELDS = tuple(each.name for each in fields(Round))[:12]  # up to tau, in the order of wire.md
