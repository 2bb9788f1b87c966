"""Make a board a member of a fleet: its key, what it may release, its records, and where its host
is.

The store has the key first, and clients.bin comes last, so that an interrupted command continues
with the same key. A ledger is never overwritten.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import numpy as np

from tern import links, storage, wire
from tern.ledger import IDLE, RHO, Ledger, LedgerError
from ternhost import datasets
from ternhost.count.questions import cost_of, decode_body
from ternhost.errors import RefusedError, UsageError
from ternhost.privacy import cards
from ternhost.privacy.accounting import MEASURES, Policy
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import covers, protected
from ternhost.provision import keys
from ternhost.provision.boards import Rows, board_files, fleet_file, new_keys
from ternhost.store import sleepers
from ternhost.store.fleet_key import OWN_KEY_ONLY, FleetKey, rotate_fleet
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from ternhost.text import counted
from terntools.boards import counter, deploy, lock, mpy, records, update_package
from terntools.boards.network import AUTHORITY, Broker
from terntools.boards.repl import FileProgress, Repl

SHAPES = {name: number for number, name in cards.SHAPES.items()}

_LEAST_BOUND = 64
_LOCKED = "a locked board runs tern's own main.py"
_NETWORK = """
try:
    import network
    print(not hasattr(network, "LAN") and not network.WLAN(network.STA_IF).isconnected())
except ImportError:
    print(False)
"""  # whether the board needs Wi-Fi, and has not joined any
_LINK = "link of device %d"  # in a store: the files that links of one's own have put on its board,
_LEDGER = "ledger of device %d"  # and budget (millionths) and measure of its first ledger
_ANOTHER_DEVICE = (
    "make it another device, only if other people own the board now, or, where it protects single records, if all of "
    "them are gone: another device has a budget of its own, and for the people whose data both hold the two add up"
)


@dataclass(frozen=True)
class Member:
    """The wanted state of a board: one client of a fleet. No `shapes` mean all."""

    device: int
    rows: Rows
    policy: Policy
    shapes: tuple[str, ...] = ()
    whole_fleet: bool = True  # it has the fleet's key, and so answers rounds for the whole fleet
    pause: int = 0  # as of fleet_file: s,
    slot: int = 0  # ms,
    reserve: int = 1  # reports
    most_records: int | None = None  # public upper bound; None: large enough for `rows`
    unit: int = 0  # records of a run that is protected; 0: the device
    broker: Broker | None = None
    lock: bool = False  # the board's console is closed
    counter: bool = False  # a new ledger is bound to the counter of its chip
    wake: int | None = None  # seconds from one wake to the next, if it sleeps
    link: Mapping[str, bytes] = field(
        default_factory=dict, repr=False
    )  # files of one's own link, by name
    again: bool = False  # a device that has lived before goes on, on a board without its ledger

    def __post_init__(self) -> None:
        keys.parse_ids([str(self.device)])
        if unknown := set(self.shapes) - set(SHAPES):
            raise UsageError(
                f"--mechanisms must be of {', '.join(SHAPES)}, not {sorted(unknown)[0]!r}",
                hint="separate them with commas",
            )
        if self.most_records is not None and not 1 <= self.most_records <= records.MOST:
            raise UsageError(f"--most-records must be 1 to {records.MOST}, not {self.most_records}")
        self._check_combinations()
        self.fleet_file(FleetKey(bytes(wire.KEY_BYTES), 1))
        records.check_fits(self.rows)

    def _check_combinations(self) -> None:
        if self.wake is not None and not 1 <= self.wake <= sleepers.LONGEST:
            raise UsageError(
                f"--wake-s must be 1 to {sleepers.LONGEST} seconds, not {self.wake}",
                hint="a board that does not sleep needs no --wake-s",
            )
        if self.wake and self.broker is None:
            raise UsageError(
                "--wake-s needs a broker: a sleeping board receives nothing at its port",
                hint="name the broker with --broker HOST[:PORT], which keeps the round until it wakes",
            )
        one = "leave out one of the two"
        for holds, options, why, hint in (
            (
                self.wake and self.reserve > 1,
                f"--reserve {self.reserve} and --wake-s",
                "a sleep is as a power cut, and each would throw away up to "
                f"{self.reserve - 1} reports that are paid for",
                "leave out --reserve: each report is then paid for by itself",
            ),
            (
                self.wake and self.pause > 0,
                f"--pause {self.pause} and --wake-s",
                f"a board that has just started waits {self.pause} s before it answers, and sleeps by then",
                "leave out --pause, and give the host that interval: tern serve --interval",
            ),
            (self.wake and self.lock, "--lock and --wake-s", f"{_LOCKED}, which never sleeps", one),
            (self.link and self.broker, "--link and --broker", "a board has one link", one),
            (
                self.link and self.lock,
                "--link and --lock",
                f"{_LOCKED}, which knows no other link",
                one,
            ),
        ):
            if holds:
                raise UsageError(f"{options} are at odds: {why}", hint=hint)

    @property
    def link_name(self) -> str:
        """The link that the board uses: "serial" for its port."""
        names = [name.removesuffix(".json") for name in self.link if name.endswith(".json")]
        return "mqtt" if self.broker else next(iter(names), "serial")

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules on demand that its board needs for its unit and its ledger."""
        return ("sums",) if self.unit or self.policy.measure == RHO else ()

    def fleet_file(self, fleet: FleetKey) -> bytes:
        """fleet.bin with the fleet's key. Raises UsageError."""
        # It is public and reveals little: the smallest power of two from 64 on that is not below
        # their number.
        enough = min(max(_LEAST_BOUND, 1 << (len(self.rows) - 1).bit_length()), records.MOST)
        most = self.most_records or enough
        return fleet_file(
            fleet.key, self.pause, self.slot, self.reserve, fleet.epoch, most, self.unit
        )


def dataset_records(name: str, device: int, count: int, *, classes: bool = False) -> Rows:
    """`count` training records of a data set for a trial: those that follow from the device's id."""
    dataset = datasets.held(name, classes=classes)
    at = (np.arange(count) + (device - 1) * count) % len(dataset.training)
    return dataset.records(dataset.training[at])


def plan(repl: Repl, member: Member, store: Store) -> deploy.Changes:
    """Changes that make the board this member.

    The device's key is that of `store`, or a new one for `apply` to store.

    Raises RefusedError where the board is another device, its ledger is lost or damaged, or the
    device has lived before, and UsageError.
    """
    if member.lock:
        lock.check(repl, network=member.broker is not None)
    if member.broker and member.broker.ssid is None:
        _check_network(repl)
    there = _device(repl)
    if there is not None and there != member.device:
        raise RefusedError(
            f"the board on {repl.name} is device {there} already, with a ledger of its own",
            hint=f"provision it as --device {there}; or erase it (tern flash --erase), and {_ANOTHER_DEVICE}",
        )
    ledger = "/" + storage.ledger_name(member.device)
    has_ledger = ledger in repl.directory("/" + storage.LEDGERS)
    spent, note, step = 0, "", 0
    if has_ledger:
        _keep_budget(store, member, _check_ledger(repl, ledger, member))
        _check_unit(repl, member)
    elif there is not None:
        # clients.bin is written last: there was a ledger, whatever the options are now.
        raise _ledger_refusal(repl, member, "has lost its ledger")
    else:
        spent, note = _check_life(repl, member, store)
        if member.counter:
            step, _ = counter.plan(repl, member.policy, member.reserve)
    key = None if note else store.keys().get(member.device)
    key = key or new_keys([member.device])[member.device]
    sleepers.set_wake(store, member.device, member.wake)
    # Instead of the fleet's key it gets one that nobody uses and that is never replaced; the same
    # each time.
    alone = FleetKey(hashlib.sha256(b"tern alone" + key).digest(), OWN_KEY_ONLY)
    # That of a fleet with a device that begins again is only made by `apply`.
    fleet = keys.fleet_key(store) if member.whole_fleet and not note else alone
    files = _files(member, key, fleet, last_number(store), spent, step)
    if has_ledger:
        del files[ledger]
    changes = deploy.compare(repl, files)
    earlier = store.state(_LINK % member.device) or []
    if new := member.link.keys() - set(earlier):
        store.save_state({_LINK % member.device: sorted({*earlier, *new})})
    optional = ["/" + name for name in (*links.MODULES, *earlier, AUTHORITY)] + [
        lock.BOOT
    ] * member.lock
    present = repl.hashes([path for path in optional if path not in files])
    return deploy.Changes(changes.write, tuple(present), note=note)


def apply(
    repl: Repl,
    changes: deploy.Changes,
    member: Member,
    store: Store,
    progress: FileProgress | None = None,
) -> None:
    """Make the changes of `plan`; the store has the device's key before the board, and the fleet's,
    if that is new.
    """
    key = changes.write.get("/" + storage.CLIENTS, b"")[4 : 4 + wire.KEY_BYTES]
    if key and key != store.keys().get(member.device):
        store.add_devices({member.device: key})
    if changes.note and member.whole_fleet:  # it begins again
        changes.write["/" + storage.FLEET] = member.fleet_file(rotate_fleet(store))
    deploy.apply(repl, changes, progress)
    if ledger := changes.write.get("/" + storage.ledger_name(member.device)):
        _keep_budget(store, member, (int.from_bytes(ledger[4:8], "little"), ledger[49]))


def _keep_budget(store: Store, member: Member, budget: tuple[int, int]) -> None:
    if store.state(_LEDGER % member.device) is None:
        store.save_state({_LEDGER % member.device: list(budget)})


def _check_life(repl: Repl, member: Member, store: Store) -> tuple[int, str]:
    """What a device without a ledger has spent before, at most, millionths; and what the user
    should know of that.

    A new device: 0, "". Its budget is for all lives of its board. Raises RefusedError and
    UsageError.
    """
    first = store.state(_LEDGER % member.device)
    bodies = [
        each.body
        for round_ in store.rounds()
        for each in round_.cohorts
        if member.device in each.devices
    ]
    measure = member.policy.measure
    # It may have paid also where no report arrived.
    asked = [decode_body(body) for body in bodies]
    spent = sum(cost_of(request, measure) for request in asked)
    what = MEASURES[measure]
    rounds = f"{counted(len(bodies), 'round')} that asked it, for {what} {spent / MICRO:g} at most"
    lived = [rounds] * bool(bodies)
    if first is not None:
        lived.insert(0, f"a ledger of {MEASURES[first[1]]} {first[0] / MICRO:g}")
    lived += ["updates of its program"] * (
        store.state(update_package.STATE % member.device) is not None
    )
    if not lived:
        return 0, ""
    known = f"device {member.device} has lived before, and the board on {repl.name} has no ledger of it; "
    known += f"the store knows of {', '.join(lived)}"
    new, budget = (
        f"{_ANOTHER_DEVICE} (--device with an id that no board has had)",
        member.policy.budget / MICRO,
    )
    if not member.again:
        hint = "go on with --again: it gets a new key, and what it may have spent is taken off its budget; or "
        hint += new
        raise RefusedError(known, hint=hint)
    if member.counter:
        raise UsageError(
            "--again makes a ledger with what was spent, which no counter can bind", hint=new
        )
    if any(not covers(cards.unit_of(request.card), member.unit) for request in asked) or (
        first is not None and first[1] == RHO != measure
    ):
        text = f"{known}: they have no epsilon, or protected a smaller unit"
        raise RefusedError(text, hint=new)
    if first is not None and first[1] != measure == RHO:  # what it may have spent is reckoned anew
        first = None
    if first is not None:
        _check_budget(member, *first)
    if spent >= member.policy.budget:
        raise RefusedError(f"{known}: nothing is left of {budget:g}", hint=new)
    text = f"device {member.device} begins again: {what} {spent / MICRO:g} of {budget:g} counts as spent"
    text += ", and its key" + (" and the fleet's are" if member.whole_fleet else " is")
    return spent, f"{text} new; 'tern broker config' brings sites and relays its new password"


def _files(
    member: Member, key: bytes, fleet: FleetKey, last: int, spent: int, step: int
) -> dict[str, bytes]:
    # Path on the board -> content; clients.bin last, but for the lock: after that there is no way
    # back.
    mask = sum(1 << SHAPES[shape] for shape in set(member.shapes))
    made = board_files(
        member.device, [key], member.rows, member.policy, mask, last, step, spent=spent
    )
    files = {
        "/" + name: made[name] for name in (storage.RECORDS, storage.ledger_name(member.device))
    }
    files["/" + storage.FLEET] = member.fleet_file(fleet)
    files.update({"/" + name: content for name, content in member.link.items()})
    if member.broker:
        files.update(member.broker.files(member.wake))
    files["/" + storage.CLIENTS] = made[storage.CLIENTS]
    if member.lock:
        files.update(lock.files(network=member.broker is not None))
    return files


def _check_network(repl: Repl) -> None:
    """Raise UsageError where the board has no way to a broker unless --ssid names it."""
    needs_wifi = repl.run(_NETWORK).strip() == "True"
    stock = (
        deploy.digest(mpy.MAIN.read_bytes()) in repl.hashes([deploy.MAIN, deploy.PROGRAM]).values()
    )
    if stock and needs_wifi:  # a program of one's own may join a network by itself
        raise UsageError(
            f"the board on {repl.name} reaches a broker over Wi-Fi, and no network is named",
            hint="add --ssid NAME, and --wifi-password-file FILE if the network has a password",
        )


def _device(repl: Repl) -> int | None:
    path = "/" + storage.CLIENTS
    return (
        int.from_bytes(repl.read_file(path)[:4], "little") if path in repl.directory("/") else None
    )


def _check_ledger(repl: Repl, path: str, member: Member) -> tuple[int, int]:
    """Return budget and measure of the ledger at `path`. Raises RefusedError and UsageError."""
    account = Ledger()
    data = repl.read_file(path)
    with tempfile.TemporaryDirectory(prefix="tern-provision-") as folder:
        copy = Path(folder, "ledger")
        copy.write_bytes(data)
        try:
            account.load(str(copy))
        except LedgerError as error:
            raise _ledger_refusal(repl, member, f"has a bad ledger ({error})") from error
    if step := int.from_bytes(data[52:54], "little"):
        begun, done, _ = counter.look(repl)
        if not (
            step == done or step == begun > done or (account.state == IDLE and step == begun + 1)
        ):
            raise _ledger_refusal(
                repl, member, "has an old copy of its ledger, by the counter of its chip"
            )
    if member.counter and not step:
        raise _ledger_refusal(repl, member, "has a ledger that is not bound to a counter")
    _check_budget(member, account.budget, account.measure)
    return int(account.budget), int(account.measure)


def _check_unit(repl: Repl, member: Member) -> None:
    """Raise UsageError where a board with a ledger protects another unit: its account is that of
    its own unit.
    """
    path = "/" + storage.FLEET
    data = repl.read_file(path) if path in repl.directory("/") else b""
    unit = int.from_bytes(data[-2:], "little") if data[:4] == storage.FLEET_MAGIC else member.unit
    if unit != member.unit:
        raise UsageError(
            f"device {member.device} protects {protected(unit)} for life",
            hint=f"name that --unit; or, on erased flash, {_ANOTHER_DEVICE}",
        )


def _check_budget(member: Member, budget: int, measure: int) -> None:
    if member.policy.measure != measure:
        raise UsageError(
            f"the ledger of device {member.device} counts {MEASURES[measure]} for life",
            hint="leave out --delta and --budget-rho"
            if measure != RHO
            else f"name --budget-rho {Decimal(budget) / MICRO:f} or less",
        )
    # The device would enforce the smaller of the two budgets, while the user believes in the larger
    # one.
    if member.policy.budget > budget:
        fixed, wanted = (f"{Decimal(micro) / MICRO:f}" for micro in (budget, member.policy.budget))
        raise UsageError(
            f"the budget of device {member.device} was set to {fixed} for life and cannot be raised to {wanted}",
            hint=f"name --budget{'-rho' * (measure == RHO)} {fixed} or less: it is the promise to the people whose "
            "data the device holds",
        )


def _ledger_refusal(repl: Repl, member: Member, what: str) -> RefusedError:
    return RefusedError(
        f"device {member.device} on {repl.name} {what}: nobody knows what it has released",
        hint=f"count its whole budget as spent; or, on erased flash, {_ANOTHER_DEVICE}",
    )
