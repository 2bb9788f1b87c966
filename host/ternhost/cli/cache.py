"""`tern cache`: shows what tern keeps between commands, and clears it."""

import argparse
from typing import Any

from ternhost import cache
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK
from ternhost.listed_commands import CACHE
from ternhost.terminal import confirm


def add_parser(subparsers: Any) -> None:
    """Add `tern cache` and its action to the commands."""
    example = "tern cache\ntern cache clear emulators --yes"
    parser = add_command(subparsers, CACHE.name, CACHE.summary, example, run_show)
    parser.usage = f"{parser.prog} [ACTION ...]"
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", prog=parser.prog
    )
    summary = "delete it; tern makes it again where a command needs it"
    example = "tern cache clear\ntern cache clear datasets"
    clear = add_command(actions, "clear", summary, example, run_clear)
    kinds = "; ".join(f"{name}: {what}" for name, what in cache.KINDS.items())
    text = f"only this kind (default: all but {cache.OWN}): {kinds}"
    clear.add_argument("kind", nargs="?", metavar="KIND", choices=cache.KINDS, help=text)
    add_option(clear, "--yes")


def run_show(args: argparse.Namespace) -> int:
    """Print where the cache is, and how much of each kind it holds."""
    root = cache.cache_root()
    sizes = cache.sizes()  # in bytes, by kind
    lines = []
    for kind, description in cache.KINDS.items():
        lines.append(f"{kind:10} {sizes[kind] / 1e6:>9.1f} MB  {description}")
    megabytes = sum(sizes.values()) / 1e6
    lines.append(f"{'in all':10} {megabytes:>9.1f} MB  in {root}; 'tern cache clear' deletes it")
    print_result({"directory": str(root), "bytes": sizes}, "\n".join(lines), args.json)
    return OK


def run_clear(args: argparse.Namespace) -> int:
    """Delete the named kind of entries from the cache, and print how much room that has made.

    Without a name all kinds are deleted, except for files that users have put there themselves.
    Unless --yes is given, the user is asked first.
    """
    root = cache.cache_root()
    if args.kind:
        kinds = [args.kind]
    else:
        kinds = [kind for kind in cache.KINDS if kind != cache.OWN]
    bytes_before = cache.sizes()
    bytes_to_delete = sum(bytes_before[kind] for kind in kinds)
    if bytes_to_delete > 0 and not args.yes:
        # Raises an error unless the user agrees.
        confirm(f"delete {bytes_to_delete / 1e6:.1f} MB ({', '.join(kinds)}) in {root}")

    entries_in_use = cache.clear(kinds)
    bytes_after = cache.sizes()
    freed = {}
    for kind in kinds:
        freed[kind] = bytes_before[kind] - bytes_after[kind]
    result = {"directory": str(root), "freed": freed, "in_use": entries_in_use}
    text = f"freed {sum(freed.values()) / 1e6:.1f} MB in {root}"
    if entries_in_use:
        text += f"; in use, so kept: {', '.join(entries_in_use)}"
    print_result(result, text, args.json)
    return OK
