"""`tern gateway run`: the gateway of a site, until it is stopped."""

from __future__ import annotations

import argparse
import json
import threading
from pathlib import Path
from typing import Any

from ternhost import options as fields
from ternhost.cli import add_command
from ternhost.cli.terminal import heeding_interrupts
from ternhost.errors import OK
from ternhost.gateways.site_fleet import SiteFleet, opened
from ternhost.text import visible


def add_action(actions: Any) -> None:
    run_ = add_command(
        actions,
        "run",
        "ask a site's devices what the server asks of them, until Ctrl-C; a later start needs no option",
        """tern gateway run north --fleet port:/dev/ttyACM0,/dev/ttyACM1 --store fleet/store.sqlite
        tern gateway run north --fleet mqtt:my-broker
        tern gateway run north --fleet simulated:1000 --dataset flights --first-id 1001
        tern gateway run north""",
    )
    run_.add_argument("directory", metavar="DIR", help="of the site: 'tern gateway init' has written it")
    fields.add_arguments(run_, SiteFleet)
    run_.add_argument("--json", action="store_true", help="print one JSON object a line")
    run_.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    from ternhost.links.flower import serve_site
    from ternhost.links.flower.files import Site

    site = Site.load(args.directory)
    directory = Path(args.directory)

    def tell(message: str, event: str = "note") -> None:
        print(json.dumps({"event": event, "message": message}) if args.json else visible(message), flush=True)

    runs = SiteFleet.of(directory, fields.given(args, SiteFleet))
    with (
        heeding_interrupts(),
        opened(directory, runs, tell) as gateway,
        serve_site(directory, gateway.handle),
    ):
        ready = threading.Thread(target=_tell_when_ready, args=(gateway, site, tell), daemon=True)
        ready.start()
        try:
            gateway.run()
        except KeyboardInterrupt:
            tell("stopped; a round under way is taken up at the next start")
    return OK


def _tell_when_ready(gateway: Any, site: Any, tell: Any) -> None:
    if (count := gateway.ready()) is not None:
        tell(f"{site.name}: {count:,} devices; the server is {site.host} port {site.port}", "ready")
