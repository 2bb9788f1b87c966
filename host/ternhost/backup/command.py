"""`tern backup`: saves what a host needs to go on elsewhere, and restores it."""

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_group, print_result, warn
from ternhost.errors import OK
from ternhost.listed_commands import BACKUP
from ternhost.text import counted

_DIRECTORY = "directory of a broker, of a store or of a run"
_MEGABYTE = 1e6  # bytes


def add_parser(subparsers: Any) -> None:
    """Add the command `tern backup` with its actions `save` and `restore`."""
    actions = add_group(
        subparsers, BACKUP.name, BACKUP.summary, "tern backup save my-broker fleet.backup"
    )

    summary = "save a directory as one file, and check the copy; its programs may run meanwhile"
    save = add_command(
        actions, "save", summary, "tern backup save my-broker /media/disk/fleet.backup", run_save
    )
    save.add_argument("directory", metavar="DIR", help=_DIRECTORY)
    save.add_argument(
        "file",
        metavar="FILE",
        help="file to write, which contains keys; it replaces an earlier backup",
    )

    summary = (
        "make a new directory from a backup; the host then asks the boards what they have spent, "
        "and uses no round number twice"
    )
    restore = add_command(
        actions, "restore", summary, "tern backup restore fleet.backup my-broker", run_restore
    )
    restore.add_argument("file", metavar="FILE", help="file that 'tern backup save' has written")
    restore.add_argument(
        "directory", metavar="DIR", help="directory to make; it must not exist yet"
    )


def run_save(args: argparse.Namespace) -> int:
    """Run `tern backup save`."""
    from ternhost.backup.save import save  # here: it imports all that runs need

    saved = save(Path(args.directory), Path(args.file))
    stores = {name: asdict(figures) for name, figures in saved.manifest.stores.items()}
    text = f"{saved.path}: {counted(len(saved.manifest.files), 'file')}"
    text += f", {saved.size / _MEGABYTE:.1f} MB, checked"
    for name, figures in saved.manifest.stores.items():
        text += (
            f"\n  {name}: {counted(figures.devices, 'device')}, {counted(figures.rounds, 'round')}, "
            f"{counted(figures.reports, 'report')}"
        )
    text += "\n  it holds the keys of the devices: keep it where nobody else can read it"
    if saved.boards:
        warn(
            f"left out the files of {counted(saved.boards, 'board')}: an "
            "old ledger would give a board its budget back"
        )
    result = {
        "file": str(saved.path),
        "directory": args.directory,
        "saved": saved.manifest.saved,
        "bytes": saved.size,
        "files": len(saved.manifest.files),
        "stores": stores,
        "boards_left_out": saved.boards,
    }
    print_result(result, text, args.json)
    return OK


def run_restore(args: argparse.Namespace) -> int:
    """Run `tern backup restore`."""
    from ternhost.backup.restore import restore  # here: it imports all that runs need

    restored = restore(Path(args.file), Path(args.directory))
    manifest = restored.manifest
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(manifest.saved))
    text = (
        f"{args.directory}: as of {when}\n"
        f"  the next round has number {restored.next_round} or more: boards have answered rounds that "
        "this copy does not know\n"
        "  what boards have spent is unknown until the host reaches them; then they say it\n"
        "  what changed since is not in it: revoke again what was revoked, and provision again the "
        "boards that got new keys\n"
        f"  never use it beside the original, {manifest.directory}"
    )
    result = {
        "directory": args.directory,
        "saved": manifest.saved,
        "release": manifest.release,
        "files": len(manifest.files),
        "stores": {name: asdict(figures) for name, figures in manifest.stores.items()},
        "next_round": restored.next_round,
    }
    print_result(result, text, args.json)
    return OK
