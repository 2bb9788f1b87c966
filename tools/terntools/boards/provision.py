"""Make a board a member of a fleet: its key, its policy, its records, and where its host is.

The store has the key first, and clients.bin comes last, so that an interrupted command continues
with the same key. A ledger is never overwritten.
"""

from __future__ import annotations

import hashlib

from tern import links, storage, wire
from ternhost.errors import RefusedError, UsageError
from ternhost.provision import keys
from ternhost.provision.boards import BoardSettings, board_files, new_keys
from ternhost.store import sleepers
from ternhost.store.fleet_key import OWN_KEY_ONLY, FleetKey, rotate_fleet
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from terntools.boards import counter, deploy, lifetime, lock, mpy
from terntools.boards.member import SHAPES, Member
from terntools.boards.network import AUTHORITY
from terntools.boards.repl import FileProgress, Repl

# Tells whether the board needs Wi-Fi, and has not joined any.
_NETWORK = """
try:
    import network
    print(not hasattr(network, "LAN") and not network.WLAN(network.STA_IF).isconnected())
except ImportError:
    print(False)
"""
# The key in a store of the files that links of one's own have put on a device's board.
_LINK_FILES = "link of device %d"
_CLIENTS = "/" + storage.CLIENTS
# Where the first client has its key in clients.bin.
_KEY_FIELD = slice(4, 4 + wire.KEY_BYTES)


def plan(repl: Repl, member: Member, store: Store) -> deploy.Changes:
    """Changes that make the board this member.

    The device's key is that of `store`, or a new one for `apply` to store. Raises RefusedError
    where the board is another device, its ledger is lost or damaged, or the device has lived
    before, and UsageError.
    """
    _check_connection(repl, member)
    device_on_board = _device_on_board(repl)
    if device_on_board is not None and device_on_board != member.device:
        raise RefusedError(
            f"the board on {repl.name} is device {device_on_board} already, with a ledger of its "
            "own",
            hint=f"provision it as --device {device_on_board}; or erase it (tern flash --erase), "
            f"and {lifetime.ANOTHER_DEVICE}",
        )

    spent, note, step = 0, "", 0
    ledger = "/" + storage.ledger_name(member.device)
    has_ledger = ledger in repl.directory("/" + storage.LEDGERS)
    if has_ledger:
        lifetime.check_ledger(repl, member, store)
    elif device_on_board is not None:
        # clients.bin is written last: there was a ledger, whatever the options are now.
        raise lifetime.ledger_refusal(repl, member, "has lost its ledger")
    else:
        spent, note = lifetime.spent_before(repl, member, store)
        if member.counter:
            step, _ = counter.plan(repl, member.policy, member.settings.reserve)

    begins_again = bool(note)
    key, fleet = _keys(member, store, begins_again)
    sleepers.set_wake(store, member.device, member.wake)
    files = _files(member, key, fleet, last_round=last_number(store), spent=spent, step=step)
    if has_ledger:
        del files[ledger]
    changes = deploy.compare(repl, files)
    removed = _files_of_other_links(repl, member, store, files)
    return deploy.Changes(changes.write, removed, note=note)


def _check_connection(repl: Repl, member: Member) -> None:
    """Raise UsageError where the board could not reach its host in the wanted way."""
    if member.lock:
        lock.check(repl, network=member.broker is not None)
    if member.broker is None or member.broker.ssid is not None:
        return
    needs_wifi = repl.run(_NETWORK).strip() == "True"
    programs = repl.hashes([deploy.MAIN, deploy.PROGRAM])
    runs_our_main = deploy.digest(mpy.MAIN.read_bytes()) in programs.values()
    if runs_our_main and needs_wifi:  # a program of one's own may join a network by itself
        raise UsageError(
            f"the board on {repl.name} reaches a broker over Wi-Fi, and no network is named",
            hint="add --ssid NAME, and --wifi-password-file FILE if the network has a password",
        )


def _device_on_board(repl: Repl) -> int | None:
    """The id of the device that the board is; None if it is none yet."""
    if _CLIENTS not in repl.directory("/"):
        return None
    return int.from_bytes(repl.read_file(_CLIENTS)[:4], "little")


def _keys(member: Member, store: Store, begins_again: bool) -> tuple[bytes, FleetKey]:
    """The device's key, and the key that its board takes for the fleet's.

    A device that begins again gets new ones; `apply` makes the fleet's.
    """
    key = None if begins_again else store.keys().get(member.device)
    if key is None:
        key = new_keys([member.device])[member.device]
    if member.settings.whole_fleet and not begins_again:
        return key, keys.fleet_key(store)
    # A key that nobody uses and that is never replaced; the same each time.
    return key, FleetKey(hashlib.sha256(b"tern alone" + key).digest(), OWN_KEY_ONLY)


def _files(
    member: Member, key: bytes, fleet: FleetKey, *, last_round: int, spent: int, step: int
) -> dict[str, bytes]:
    """The member's files by their path on the board, clients.bin last, but for the lock.

    last_round: the last round that the device refuses. spent: millionths that count as spent in a
    new ledger. step: of the counter to which it is bound.
    """
    mask = 0
    for shape in set(member.shapes):
        mask |= 1 << SHAPES[shape]
    settings = BoardSettings(mask, last_round, step)
    made = board_files(member.device, [key], member.rows, member.policy, settings, spent)

    files = {}
    for name in (storage.RECORDS, storage.ledger_name(member.device)):
        files["/" + name] = made[name]
    files["/" + storage.FLEET] = member.fleet_file(fleet)
    for name, content in member.link.items():
        files["/" + name] = content
    if member.broker:
        files.update(member.broker.files(member.wake))
    files[_CLIENTS] = made[storage.CLIENTS]
    if member.lock:  # after that there is no way back
        files.update(lock.files(network=member.broker is not None))
    return files


def _files_of_other_links(
    repl: Repl, member: Member, store: Store, files: dict[str, bytes]
) -> tuple[str, ...]:
    """The paths on the board that a link of before has left; the store notes those of this one."""
    earlier = store.state(_LINK_FILES % member.device) or []
    new = member.link.keys() - set(earlier)
    if new:
        store.save_state({_LINK_FILES % member.device: sorted({*earlier, *new})})

    optional = ["/" + name for name in (*links.MODULES, *earlier, AUTHORITY)]
    if member.lock:
        optional.append(lock.BOOT)
    return tuple(repl.hashes([path for path in optional if path not in files]))


def apply(
    repl: Repl,
    changes: deploy.Changes,
    member: Member,
    store: Store,
    progress: FileProgress | None = None,
) -> None:
    """Make the changes of `plan`; the store has a new key of device or fleet before the board."""
    key = changes.write.get(_CLIENTS, b"")[_KEY_FIELD]
    if key and key != store.keys().get(member.device):
        store.add_devices({member.device: key})
    begins_again = bool(changes.note)
    if begins_again and member.settings.whole_fleet:
        changes.write["/" + storage.FLEET] = member.fleet_file(rotate_fleet(store))

    deploy.apply(repl, changes, progress)
    ledger = changes.write.get("/" + storage.ledger_name(member.device))
    if ledger:
        budget, measure = lifetime.budget_of(ledger)
        lifetime.keep_first_ledger(store, member.device, budget, measure)
