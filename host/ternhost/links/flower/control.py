"""What the server asks of its SuperLink: to register sites, and to run the ServerApp."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ternhost import extras
from ternhost.links.flower.files import AUTHORITY, CONTROL, SITES, Server

HEADER = "x-tern-control"

_PROJECT = """
[project]
name = "tern"
version = "1.0.0"
description = "Carries bytes between tern's host and its gateways"
license = "MIT"
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "tern"
[tool.flwr.app.components]
serverapp = "ternapp.server:app"
clientapp = "ternapp.client:app"
[tool.flwr.app.config]
socket = ""
"""
_SERVER_APP = "from ternhost.links.flower.relay import app\n\n__all__ = ['app']\n"
# Flower wants one. Our nodes run none; another SuperNode may be told so.
_CLIENT_APP = """
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message, context):
    raise RuntimeError("a site of tern runs 'tern gateway run', not flower-supernode")
"""


def app_archive() -> bytes:
    """The FAB with our apps. The same bytes each time."""
    from flwr.cli.build import build_fab_from_files

    files: dict[str, bytes | Path] = {
        "pyproject.toml": _PROJECT.encode(),
        "ternapp/__init__.py": b"",
        "ternapp/server.py": _SERVER_APP.encode(),
        "ternapp/client.py": _CLIENT_APP.encode(),
    }
    return build_fab_from_files(files)[0]


def public_keys(directory: Path) -> dict[str, Any]:
    """The public key of each site, by its name. Raises OSError and ValueError."""
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    return {
        path.stem: load_ssh_public_key(path.read_bytes()) for path in sorted((directory / SITES).glob("*.pub"))
    }


class _Secret:
    """Shows the SuperLink that we may control it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: Any, call_next: Any) -> Any:
        context.request.headers[HEADER] = self._secret
        return call_next(context)


class Control:
    """A client of the SuperLink's Control API. Its methods raise httpx.HTTPError."""

    def __init__(self, server: Server) -> None:
        extras.require("flwr")
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        self._client = ControlHttpClient.from_server_address(
            server.here,
            False,
            (server.directory / AUTHORITY).read_bytes(),
            [
                RuntimeVersionHttpInterceptor(component_name="flwr"),
                _Secret((server.directory / CONTROL).read_text().strip()),
            ],
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def nodes(self) -> dict[bytes, tuple[int, bool]]:
        """The public key of each registered site -> its number, and whether it is connected."""
        from flwr.proto.control_pb2 import ListNodesRequest

        answer = self._client.ListNodes(ListNodesRequest())
        return {node.public_key: (node.node_id, node.status == "online") for node in answer.nodes_info}

    def register(self, key: bytes, name: str) -> None:
        """Let the site with this public key in."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        self._client.RegisterNode(RegisterNodeRequest(public_key=key, name=name))

    def unregister(self, node: int) -> None:
        """Let it in no more."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self._client.UnregisterNode(UnregisterNodeRequest(node_id=node))

    def start(self, config: Mapping[str, str]) -> int:
        """Run our ServerApp; the number of the run."""
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        content = app_archive()
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        answer = self._client.StartRun(
            StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(dict(config)))
        )
        if not answer.HasField("run_id"):
            raise ValueError("the SuperLink does not run the ServerApp")
        return int(answer.run_id)

    def stop(self, run: int) -> None:
        """End a run."""
        from flwr.proto.control_pb2 import StopRunRequest

        self._client.StopRun(StopRunRequest(run_id=run))
