"""Flower's SuperLink behind a guard, a process. Of the protocols on its port, Flower requires a key only for Fleet, for
sites: anybody could start programs over Control, or replace the ServerApp over Runtime. So the guard allows these only
from this machine, with a secret. Nothing is on disk: with a database, a question takes three times as long with ten
sites. After a loss of the process, sites are registered again, and the host repeats its questions.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from ternhost.reach.gateway.flower.children import end_with_parent
from ternhost.reach.gateway.flower.files import AUTHORITY, CERTIFICATE, CONTROL, EXECUTOR, KEY, SITES, Server
from ternhost.reach.gateway.flower.guard import Connection, Guard

_SUPEREXEC = "from flwr.supercore.cli import flower_superexec as run; run()"  # its command may not be found
_MOST_CONNECTIONS = 1024  # at a time; a site has about ten


def main() -> None:
    """Serve until SIGTERM."""
    end_with_parent()
    server = Server.load(sys.argv[1])
    where = server.directory
    sys.argv = [
        "flower-superlink",
        *("--host", server.address, "--port", str(server.port)),
        *("--ssl-ca-certfile", str(where / AUTHORITY)),
        *("--ssl-certfile", str(where / CERTIFICATE)),
        *("--ssl-keyfile", str(where / KEY)),
        "--enable-supernode-auth",
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(where / EXECUTOR)),
        "--disable-runtime-dependency-installation",
    ]
    import uvicorn
    from flwr.superlink.main import create_app

    # From here on like Flower's own command, but with the guard, and without logging each request.
    command = importlib.import_module("flwr.superlink.cli.flower_superlink")  # a function has the same name
    config = command._parse_superlink_lifespan_config()
    app = create_app(config, command.SuperLinkLifespan)
    threading.Thread(target=_execute, args=(server,), daemon=True).start()
    uvicorn.run(
        Guard(app, (where / CONTROL).read_text().strip(), where / SITES),
        host=server.address,
        port=server.port,
        http=Connection,
        ws="none",
        access_log=False,
        proxy_headers=False,  # the client's address counts, whatever a header says
        log_level="warning",
        limit_concurrency=_MOST_CONNECTIONS,
        ssl_certfile=config.ssl_certfile,
        ssl_keyfile=config.ssl_keyfile,
        workers=1,
    )


def _execute(server: Server) -> None:
    """Run Flower's SuperExec, which starts the ServerApp, and restart it. It is in this process's group, and killed
    with it: otherwise it would look for a new SuperLink at ever longer intervals.
    """
    host, _, port = server.here.rpartition(":")
    while True:
        with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), 1.0):
            break
        time.sleep(0.1)
    while True:
        subprocess.run(
            [
                *(sys.executable, "-c", _SUPEREXEC, "--runtime-api-address", server.here),
                *("--root-certificates", str(server.directory / AUTHORITY)),
                *("--superexec-auth-secret-file", str(server.directory / EXECUTOR)),
                *("--parent-pid", str(os.getpid())),
            ],
            check=False,
        )
        time.sleep(1.0)


if __name__ == "__main__":
    os.umask(0o077)
    main()
