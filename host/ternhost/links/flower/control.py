"""What the server asks of its SuperLink: to register sites, and to run the ServerApp."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from ternhost.links.flower.files import AUTHORITY, CONTROL, SITES, Server, public_keys

HEADER = "x-tern-control"
FAILURES = (
    httpx.HTTPError,
    OSError,
    ValueError,
)  # what the methods of Control raise; `trouble` puts it into words

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
_SERVER_APP = "from ternhost.links.flower.serverapp import app\n\n__all__ = ['app']\n"
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
    files: dict[str, bytes | Path] = {
        "pyproject.toml": _PROJECT.encode(),
        "ternapp/__init__.py": b"",
        "ternapp/server.py": _SERVER_APP.encode(),
        "ternapp/client.py": _CLIENT_APP.encode(),
    }
    return build_fab_from_files(files)[0]


class _Secret:
    """Shows the SuperLink that we may control it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: Any, call_next: Any) -> Any:
        context.request.headers[HEADER] = self._secret
        return call_next(context)


class Control:
    """A client of the SuperLink's Control API. Its methods raise FAILURES."""

    def __init__(self, server: Server) -> None:
        self._server = server
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

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def trouble(self, error: Exception) -> str:
        """What an error means, for people."""
        where = f"the SuperLink at {self._server.here}"
        if isinstance(error, httpx.HTTPStatusError):
            return f"{where} refuses: {error.response.status_code} {error.response.text[:200]}".rstrip()
        if isinstance(error, httpx.HTTPError):
            return (
                f"{where} does not answer; 'tern gateway superlink {self._server.directory.parent}' runs it"
            )
        return f"{where}: {error if isinstance(error, FAILURES) else repr(error)}"

    def public_keys(self) -> dict[str, ec.EllipticCurvePublicKey]:
        """The key of each site of the directory, by its name."""
        return public_keys(self._server.directory / SITES)

    def sites(
        self, keys: Mapping[str, ec.EllipticCurvePublicKey]
    ) -> tuple[dict[str, tuple[int, bool]], set[int]]:
        """Of the sites with these keys: their numbers, if they are registered, and whether each is connected; and
        numbers that are no site's.
        """
        nodes = self._nodes()
        encoded = {name: public_key_to_bytes(key) for name, key in keys.items()}
        others = nodes.keys() - encoded.values()
        return {name: nodes[key] for name, key in encoded.items() if key in nodes}, {
            nodes[key][0] for key in others
        }

    def register(self) -> dict[str, bool]:
        """Have the SuperLink let in the sites of the directory, and nobody else; whether each is connected."""
        keys = self.public_keys()
        there, others = self.sites(keys)
        for name in keys.keys() - there.keys():
            self._client.RegisterNode(
                RegisterNodeRequest(public_key=public_key_to_bytes(keys[name]), name=name)
            )
        for node in others:
            self._client.UnregisterNode(UnregisterNodeRequest(node_id=node))
        return {name: name in there and there[name][1] for name in keys}

    def _nodes(self) -> dict[bytes, tuple[int, bool]]:
        answer = self._client.ListNodes(ListNodesRequest())
        return {
            node.public_key: (node.node_id, node.status == "online")
            for node in answer.nodes_info
            if node.status != "unregistered"  # which Flower remembers
        }

    def start(self, config: Mapping[str, str]) -> int:
        """Run our ServerApp; the number of the run."""
        content = app_archive()
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        answer = self._client.StartRun(
            StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(dict(config)))
        )
        if not answer.HasField("run_id"):
            raise ValueError("the ServerApp is not taken")
        return int(answer.run_id)

    def stop(self, run: int) -> None:
        """End a run."""
        self._client.StopRun(StopRunRequest(run_id=run))
