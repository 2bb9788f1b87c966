"""The server's requests to its SuperLink: register sites, run the ServerApp."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest, StopRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from ternhost.reach.gateway.flower.files import AUTHORITY, CONTROL, SITES, Server, public_keys

HEADER = "x-tern-control"
FAILURES = (httpx.HTTPError, OSError, ValueError)  # of the methods of Control; `trouble` puts them into words

_SERVER_APP = "from ternhost.reach.gateway.flower.serverapp import app\n\n__all__ = ['app']\n"
# Flower requires one. Our nodes do not run it; it tells any other SuperNode so.
_CLIENT_APP = """
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message, context):
    raise RuntimeError("a site of tern runs 'tern gateway run', not flower-supernode")
"""


def app_archive() -> bytes:
    """The FAB with our apps, always the same bytes."""
    files: dict[str, bytes | Path] = {
        "pyproject.toml": Path(__file__).with_name("app.toml").read_bytes(),
        "ternapp/__init__.py": b"",
        "ternapp/server.py": _SERVER_APP.encode(),
        "ternapp/client.py": _CLIENT_APP.encode(),
    }
    return build_fab_from_files(files)[0]


class _Secret:
    """Sends the secret of the Control API with each request."""

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
        """An error in words."""
        where = f"the SuperLink at {self._server.here}"
        if isinstance(error, httpx.HTTPStatusError):
            return f"{where} refuses: {error.response.status_code} {error.response.text[:200]}".rstrip()
        if isinstance(error, httpx.HTTPError):
            return f"{where} does not answer; run it: tern gateway superlink {self._server.directory.parent}"
        return f"{where}: {error if isinstance(error, FAILURES) else repr(error)}"

    def public_keys(self) -> tuple[dict[str, ec.EllipticCurvePublicKey], dict[str, str]]:
        """By site, its key, or the reason why it has none."""
        return public_keys(self._server.directory / SITES)

    def sites(self, keys: Mapping[str, ec.EllipticCurvePublicKey]) -> dict[str, tuple[int, bool]]:
        """By registered site, its node id and whether it is connected."""
        answer = self._client.ListNodes(ListNodesRequest())
        nodes = {node.public_key: (node.node_id, node.status == "online") for node in answer.nodes_info}
        encoded = {name: public_key_to_bytes(key) for name, key in keys.items()}
        return {name: nodes[key] for name, key in encoded.items() if key in nodes}

    def register(self) -> tuple[dict[str, bool], dict[str, str]]:
        """Register the sites of the directory; return, by site, whether it is connected, or why it is not admitted. The
        guard refuses removed sites: Flower never accepts a site again that was unregistered.
        """
        keys, wrong = self.public_keys()
        there = self.sites(keys)
        for name in sorted(keys.keys() - there.keys()):
            request = RegisterNodeRequest(public_key=public_key_to_bytes(keys[name]), name=name)
            try:
                self._client.RegisterNode(request)
            except httpx.HTTPStatusError as error:
                wrong[name] = self.trouble(error)
        return {name: name in there and there[name][1] for name in keys}, wrong

    def start(self, config: Mapping[str, str]) -> int:
        """Run our ServerApp; return the number of the run."""
        content = app_archive()
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(dict(config)))
        answer = self._client.StartRun(request)
        if not answer.HasField("run_id"):
            raise ValueError("it does not accept the ServerApp")
        return int(answer.run_id)

    def stop(self, run: int) -> None:
        self._client.StopRun(StopRunRequest(run_id=run))
