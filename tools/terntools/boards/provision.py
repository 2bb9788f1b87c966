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
    """Find the changes that make the board this member.

    The device's key is that of `store`, or a new one for `apply` to store. Raises RefusedError if
    the board is another device, its ledger is lost or damaged, or the device has lived before, and
    UsageError.
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

    spent_before, life_note, counter_step = 0, "", 0
    ledger_path = "/" + storage.ledger_name(member.device)
    has_ledger = ledger_path in repl.directory("/" + storage.LEDGERS)
    if has_ledger:
        lifetime.check_ledger(repl, member, store)
    elif device_on_board is not None:
        # clients.bin is written last: there was a ledger, whatever the options are now.
        raise lifetime.ledger_refusal(repl, member, "has lost its ledger")
    else:
        spent_before, life_note = lifetime.spent_before(repl, member, store)
        if member.counter:
            counter_step, _ = counter.plan(repl, member.policy, member.settings.reserve)

    begins_again = bool(life_note)
    key, fleet = _keys(member, store, begins_again)
    sleepers.set_wake(store, member.device, member.wake)
    files = _files(
        member, key, fleet, last_round=last_number(store), spent=spent_before, step=counter_step
    )
    if has_ledger:
        del files[ledger_path]
    changes = deploy.compare(repl, files)
    paths_to_remove = _files_of_other_links(repl, member, store, files)
    return deploy.Changes(changes.write, paths_to_remove, note=life_note)


def _check_connection(repl: Repl, member: Member) -> None:
    """Raise UsageError if the board could not reach its host in the wanted way."""
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
    """Return the device's key, and the key that its board takes for the fleet's.

    begins_again: the device has lived before on another board. Then its own key is a new one, and
    `apply` makes a new fleet key. A device that answers no rounds for the whole fleet gets a key of
    its own in place of the fleet's.
    """
    device_key = None
    if not begins_again:
        device_key = store.keys().get(member.device)
    if device_key is None:
        device_key = new_keys([member.device])[member.device]
    if member.settings.whole_fleet and not begins_again:
        return device_key, keys.fleet_key(store)
    # Nobody uses this key. It follows from the device's, so that it is the same each time.
    unused_key = hashlib.sha256(b"tern alone" + device_key).digest()
    return device_key, FleetKey(unused_key, OWN_KEY_ONLY)


def _files(
    member: Member, key: bytes, fleet: FleetKey, *, last_round: int, spent: int, step: int
) -> dict[str, bytes]:
    """Return the member's files by their path on the board; clients.bin and the lock come last.

    fleet: the fleet's key. last_round: the last round that the device refuses. spent: millionths
    that count as spent in a new ledger. step: of the counter to which it is bound.
    """
    mask = 0  # a bit for each shape of card that the device answers; 0: all
    for shape in set(member.shapes):
        mask |= 1 << SHAPES[shape]
    settings = BoardSettings(mask, last_round, step)
    board_content = board_files(member.device, [key], member.rows, member.policy, settings, spent)

    files = {}
    for name in (storage.RECORDS, storage.ledger_name(member.device)):
        files["/" + name] = board_content[name]
    files["/" + storage.FLEET] = member.fleet_file(fleet)
    for name, content in member.link.items():
        files["/" + name] = content
    if member.broker:
        files.update(member.broker.files(member.wake))
    files[_CLIENTS] = board_content[storage.CLIENTS]
    if member.lock:  # after that there is no way back
        files.update(lock.files(network=member.broker is not None))
    return files


def _files_of_other_links(
    repl: Repl, member: Member, store: Store, files: dict[str, bytes]
) -> tuple[str, ...]:
    """Return the paths on the board of files that an earlier link has left there.

    files: those that the board gets. The store notes the files of this link.
    """
    earlier_files = store.state(_LINK_FILES % member.device) or []
    new_files = member.link.keys() - set(earlier_files)
    if new_files:
        store.save_state({_LINK_FILES % member.device: sorted({*earlier_files, *new_files})})

    optional_paths = ["/" + name for name in (*links.MODULES, *earlier_files, AUTHORITY)]
    if member.lock:
        optional_paths.append(lock.BOOT)
    return tuple(repl.hashes([path for path in optional_paths if path not in files]))


def apply(
    repl: Repl,
    changes: deploy.Changes,
    member: Member,
    store: Store,
    progress: FileProgress | None = None,
) -> None:
    """Make the changes of `plan`; new keys are in the store before they are on the board."""
    key = changes.write.get(_CLIENTS, b"")[_KEY_FIELD]
    if key and key != store.keys().get(member.device):
        store.add_devices({member.device: key})
    begins_again = bool(changes.note)
    if begins_again and member.settings.whole_fleet:
        changes.write["/" + storage.FLEET] = member.fleet_file(rotate_fleet(store))

    deploy.apply(repl, changes, progress)
    new_ledger = changes.write.get("/" + storage.ledger_name(member.device))
    if new_ledger:
        budget, measure = lifetime.budget_of(new_ledger)
        lifetime.keep_first_ledger(store, member.device, budget, measure)
