"""`tern dashboard`: a page on loopback over the store of a run, while it goes on or afterwards."""

import argparse
import os
from typing import Any

from ternhost import extras, long_running
from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK
from ternhost.listed_commands import DASHBOARD
from ternhost.long_running import ServiceNeeds

_PATIENCE = 5.0  # seconds that the process of the page gets to end by itself


def add_parser(subparsers: object) -> None:
    """Add `tern dashboard` to the commands."""
    example = """tern dashboard
        tern dashboard my-fleet/store.sqlite --port 8700
        tern dashboard runs/mine --json"""
    lines = "print one JSON object when the page is ready: url, store"
    parser = add_command(subparsers, DASHBOARD.name, DASHBOARD.summary, example, run, lines)
    text = "store, directory or name of a run, or directory with runs (default: the newest run in runs)"
    parser.add_argument("store", nargs="?", metavar="STORE", help=text)
    add_option(
        parser,
        "--port PORT",
        "port to listen on, on this machine alone (default: 8642, or a free one)",
        type=int,
    )
    long_running.add_options(parser, lambda _args: ServiceNeeds())


def run(args: argparse.Namespace) -> int:
    """Serve the page of a store until Ctrl-C."""
    extras.require("nicegui")
    from ternhost.store.reader import Reader
    from ternhost.watch import stores
    from ternhost.watch.page import server

    path, name = stores.find(args.store)
    with Reader(path, name) as reader:
        reader.snapshot()  # raises an error for a damaged store, before anything is served
        # NiceGUI reads this when it is imported: it must not leave a folder of its own.
        if "NICEGUI_STORAGE_PATH" not in os.environ:
            os.environ["NICEGUI_STORAGE_PATH"] = os.devnull
        from ternhost.watch.page.live_store import LiveStore
        from ternhost.watch.page.page import add_to

        live = LiveStore(reader)
        listener = server.listening(args.port)

        def add_page(app: Any) -> None:
            """Put the page on the web server."""
            add_to(app, live)

        def print_address(url: str) -> None:
            """Print where the page is, once it can be opened."""
            result = {"url": url, "store": str(path)}
            print_result(result, f"{path} is shown on {url} until Ctrl-C", args.json)
            long_running.ready(args)

        server.serve(listener, add_page, print_address)
    return OK
