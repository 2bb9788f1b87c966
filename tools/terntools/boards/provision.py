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
from ternhost.reach.addresses import DEVICE_AUTHORITY
from ternhost.store import labels, sleepers
from ternhost.store.fleet_key import OWN_KEY_ONLY, FleetKey, rotate_fleet
from ternhost.store.round_numbers import last_number
from ternhost.store.store import Store
from terntools.boards import counter, file_changes, lifetime, lock, mpy, software
from terntools.boards.files import FileProgress
from terntools.boards.member import SHAPES, Member
from terntools.boards.repl import Repl

# Tells whether the board needs Wi-Fi, and has not joined any.
_NETWORK = """
try:
    import network
    print(not hasattr(network, "LAN") and not network.WLAN(network.STA_IF).isconnected())
except ImportError:
    print(False)
"""
# A key in a store, for a device: the names of the files that a user's own link has on its board.
_LINK_FILES = "link of device %d"
_CLIENTS = "/" + storage.CLIENTS
# Where clients.bin has the key of the first client, after its id.
_KEY_FIELD = slice(4, 4 + wire.KEY_BYTES)


def plan(repl: Repl, member: Member, store: Store) -> file_changes.Changes:
    """Find the changes to a board's files that make it this member of a fleet.

    The files have the device's key from `store`, or a new key, which `apply` then stores. Raises
    RefusedError if the board is another device already, if its ledger is lost or damaged, or if the
    device had another board before; and UsageError for options that do not fit the board.
    """
    # What the board is now.
    _check_connection(repl, member)
    device_on_board = _device_on_board(repl)
    if device_on_board is not None and device_on_board != member.device:
        raise RefusedError(
            f"the board on {repl.name} is device {device_on_board} already, with a ledger of its "
            "own",
            hint=f"provision it as --device {device_on_board}; or erase it (tern board flash --erase), "
            f"and {lifetime.ANOTHER_DEVICE}",
        )

    # Its ledger: it is kept, or a new one counts what the device has spent before.
    spent_before = 0
    life_note = ""
    counter_step = 0
    ledger_path = "/" + storage.ledger_name(member.device)
    has_ledger = ledger_path in repl.files.sizes("/" + storage.LEDGERS)
    if has_ledger:
        lifetime.check_ledger(repl, member, store)
    elif device_on_board is not None:
        # clients.bin is written last: there was a ledger, whatever the options are now.
        raise lifetime.ledger_refusal(repl, member, "has lost its ledger")
    else:
        spent_before, life_note = lifetime.spent_before(repl, member, store)
        if member.counter:
            counter_step, _ = counter.plan(repl, member.policy, member.settings.reserve)

    # The files that it gets.
    begins_again = bool(life_note)
    key, fleet = _keys(member, store, begins_again)
    sleepers.set_wake(store, member.device, member.wake)
    files = _files(
        member, key, fleet, last_round=last_number(store), spent=spent_before, step=counter_step
    )
    if has_ledger:
        del files[ledger_path]
    changes = file_changes.compare(repl, files)
    paths_to_remove = _files_of_other_links(repl, member, store, files)
    return file_changes.Changes(changes.write, paths_to_remove, note=life_note)


def _check_connection(repl: Repl, member: Member) -> None:
    """Raise UsageError if the board could not reach its host in the way that `member` says.

    Either a lock would shut its host out, or it needs Wi-Fi for its broker and has no network.
    """
    if member.lock:
        lock.check(repl, network=member.broker is not None)  # raises
    if member.broker is None or member.broker.ssid is not None:
        return
    needs_wifi = repl.run(_NETWORK).strip() == "True"
    programs = repl.files.digests([software.MAIN, software.PROGRAM])
    # A user's program may join a network by itself; tern's own main.py does not.
    runs_our_main = file_changes.digest(mpy.MAIN.read_bytes()) in programs.values()
    if runs_our_main and needs_wifi:
        raise UsageError(
            f"the board on {repl.name} reaches a broker over Wi-Fi, and no network is named",
            hint="add --ssid NAME, and --wifi-password-file FILE if the network has a password",
        )


def _device_on_board(repl: Repl) -> int | None:
    """Return the id of the device that the board is; None if it is not provisioned yet."""
    if _CLIENTS not in repl.files.sizes("/"):
        return None
    device_field = repl.files.read(_CLIENTS)[:4]
    return int.from_bytes(device_field, "little")


def _keys(member: Member, store: Store, begins_again: bool) -> tuple[bytes, FleetKey]:
    """Return the device's own key, and the key that its board takes for the fleet's key.

    With the fleet's key a host authenticates rounds for all devices at once. A device whose user
    wants no such rounds gets a key in its place that nobody else has.

    store: the host's store, with the keys. begins_again: whether the device had a board before,
    which may be in other hands. Then its own key is a new one; and the key for the fleet is a
    placeholder here, since `apply` makes a new fleet key.
    """
    device_key = None
    if not begins_again:
        device_key = store.keys().get(member.device)
    if device_key is None:
        device_key = new_keys([member.device])[member.device]
    if member.settings.whole_fleet and not begins_again:
        return device_key, keys.fleet_key(store)
    # Nobody uses this key. It follows from the device's key, so that it is the same each time.
    unused_key = hashlib.sha256(b"tern alone" + device_key).digest()
    return device_key, FleetKey(unused_key, OWN_KEY_ONLY)


def _files(
    member: Member, key: bytes, fleet: FleetKey, *, last_round: int, spent: int, step: int
) -> dict[str, bytes]:
    """Return the files of a member, by their path on the board, in the order of writing.

    clients.bin comes last, since a board with it counts as provisioned; only the files that lock the
    board follow, since nothing can be written after them.

    key: the device's own key. fleet: the fleet's key. last_round: the device refuses all rounds up
    to this number, which were before its time. spent: how much of the budget counts as spent in a
    new ledger, in millionths of epsilon or rho. step: the step of the chip's counter to which a new
    ledger is bound; 0 for no counter.
    """
    # A bit for each kind of mechanism that the device accepts; 0 for all.
    mask = 0
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
    """Return the paths of files on the board that an earlier link has left there.

    files: those that the board gets now. As a side effect the store notes the files of this link,
    so that they can be found later.
    """
    earlier_files = store.state(_LINK_FILES % member.device) or []
    all_files = {*earlier_files, *member.link}
    if all_files != set(earlier_files):
        store.save_state({_LINK_FILES % member.device: sorted(all_files)})

    optional_paths = ["/" + name for name in (*links.MODULES, *earlier_files, DEVICE_AUTHORITY)]
    if member.lock:
        optional_paths.append(lock.BOOT)
    unwanted_paths = [path for path in optional_paths if path not in files]
    existing_paths = repl.files.digests(unwanted_paths).keys()
    return tuple(existing_paths)


def apply(
    repl: Repl,
    changes: file_changes.Changes,
    member: Member,
    store: Store,
    progress: FileProgress | None = None,
) -> None:
    """Make the changes that `plan` has found.

    New keys are stored before the board gets them, so that no board has a key that its host does not
    know. A device that begins again, after it had another board, also gets a new fleet key.
    """
    # The device's key, as it stands in the new clients.bin; b"" if that file stays as it is.
    key = changes.write.get(_CLIENTS, b"")[_KEY_FIELD]
    if key and key != store.keys().get(member.device):
        store.add_devices({member.device: key})
    begins_again = bool(changes.note)  # the note says what the device has spent before
    if begins_again and member.settings.whole_fleet:
        changes.write["/" + storage.FLEET] = member.fleet_file(rotate_fleet(store))

    labels.keep(store, member.device, member.device, labels.classes_in(member.rows[:, -1]))
    file_changes.apply(repl, changes, progress)
    new_ledger = changes.write.get("/" + storage.ledger_name(member.device))
    if new_ledger:
        budget, measure = lifetime.budget_of(new_ledger)
        lifetime.keep_first_ledger(store, member.device, budget, measure)
