"""`tern cache`: shows what tern keeps between commands, and clears it."""

import argparse
from typing import Any

from ternhost import cache
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK
from ternhost.terminal import confirm


def add_parser(subparsers: Any) -> None:
    summary = "show what tern keeps between commands, and its size; clear it"
    example = "tern cache\ntern cache clear emulators --yes"
    parser = add_command(subparsers, "cache", summary, example, run_show)
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION")
    summary = "delete it; tern makes it again where a command needs it"
    clear = add_command(
        actions, "clear", summary, "tern cache clear\ntern cache clear datasets", run_clear
    )
    kinds = "; ".join(f"{name}: {what}" for name, what in cache.KINDS.items())
    text = f"only this kind (default: all but {cache.OWN}): {kinds}"
    clear.add_argument("kind", nargs="?", metavar="KIND", choices=cache.KINDS, help=text)
    add_option(clear, "--yes", "delete it without asking")


def run_show(args: argparse.Namespace) -> int:
    root, sizes = cache.cache_root(), cache.sizes()
    lines = [
        f"{name:10} {sizes[name] / 1e6:>9.1f} MB  {what}" for name, what in cache.KINDS.items()
    ]
    megabytes = sum(sizes.values()) / 1e6
    lines.append(f"{'in all':10} {megabytes:>9.1f} MB  in {root}; 'tern cache clear' deletes it")
    print_result({"directory": str(root), "bytes": sizes}, "\n".join(lines), args.json)
    return OK


def run_clear(args: argparse.Namespace) -> int:
    kinds = [args.kind] if args.kind else [kind for kind in cache.KINDS if kind != cache.OWN]
    before = {kind: held for kind, held in cache.sizes().items() if kind in kinds}
    if sum(before.values()) and not args.yes:
        confirm(
            f"delete {sum(before.values()) / 1e6:.1f} MB ({', '.join(kinds)}) in {cache.cache_root()}"
        )
    left = cache.clear(kinds)
    freed = {kind: before[kind] - now for kind, now in cache.sizes().items() if kind in kinds}
    text = f"freed {sum(freed.values()) / 1e6:.1f} MB in {cache.cache_root()}"
    text += f"; in use, so kept: {', '.join(left)}" if left else ""
    print_result(
        {"directory": str(cache.cache_root()), "freed": freed, "in_use": left}, text, args.json
    )
    return OK
