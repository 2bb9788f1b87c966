"""`tern gateway run`: the gateway of a site, until it is stopped."""

from __future__ import annotations

import argparse
import json
import threading
import time
from pathlib import Path
from typing import Any

from ternhost import options as fields
from ternhost.command import add_command
from ternhost.errors import OK
from ternhost.reach.gateway.site_fleet import SiteFleet, opened
from ternhost.terminal import heeding_interrupts
from ternhost.text import visible

_LOOK = 0.5  # seconds between two looks at what the node says


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
    from ternhost.reach.gateway.flower import serve_site
    from ternhost.reach.gateway.flower.files import Site
    from ternhost.reach.gateway.flower.node_log import NodeLog

    site = Site.load(args.directory)
    directory = Path(args.directory)

    def tell(message: str, event: str = "note") -> None:
        print(json.dumps({"event": event, "message": message}) if args.json else visible(message), flush=True)

    runs = SiteFleet.of(directory, fields.given(args, SiteFleet))
    said = NodeLog(site)
    with (
        heeding_interrupts(),
        opened(directory, runs, tell) as gateway,
        serve_site(directory, gateway.handle),
    ):
        threading.Thread(target=_follow, args=(gateway, site, said, tell), daemon=True).start()
        try:
            gateway.run()
        except KeyboardInterrupt:
            tell("stopped; a round under way is taken up at the next start")
    return OK


def _follow(gateway: Any, site: Any, said: Any, tell: Any) -> None:
    """Tell when it can answer, and from then on how its node fares with the server."""
    if (count := gateway.ready()) is None:
        return
    tell(f"{site.name}: {count:,} devices; the server is {site.host} port {site.port}", "ready")
    while True:
        if news := said.news():
            tell(news, "node")
        time.sleep(_LOOK)
