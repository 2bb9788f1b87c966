"""The node of a site, a process: takes questions from the SuperLink to the gateway's socket, and signed answers back.
It speaks Flower's Fleet protocol like a SuperNode, but runs no app, and can connect at once after a kill.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.date import now
from flwr.supercore.inflatable import inflatable_protobuf_utils as objects
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from ternhost.errors import TernError
from ternhost.reach.gateway.flower.children import end_with_parent, next_pause
from ternhost.reach.gateway.flower.files import AUTHORITY, NODE, NODE_KEY, GatewaySite, endpoint
from ternhost.reach.gateway.flower.sealed import NONCE, seal
from ternhost.reach.gateway.flower.serverapp import carried, content
from ternhost.reach.gateway.post import SOCKET, call

HEARTBEAT = 10.0  # seconds, the least that Flower allows; a site is gone after twice this time without one

_QUICK_POLL, _SLOW_POLL = 0.25, 2.0  # seconds between two polls: just after a question, and in the long run
_SLOWER = 60.0  # the pause grows by 1 s in this time without a question
_LONGEST_PAUSE = 5.0  # seconds before the SuperLink is tried again
_ANSWER = 3600.0  # seconds that a gateway may take
_MOST = 64  # questions at a time; others wait at the SuperLink


class SiteNode:
    """The node of one site; it prints its state on standard output, its log."""

    def __init__(self, site: GatewaySite) -> None:
        key = load_ssh_private_key((site.directory / NODE_KEY).read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self._site = site
        self._public = public_key_to_bytes(key.public_key())
        self._client = FleetHttpClient.from_server_address(
            endpoint(site.host, site.port),
            False,
            (site.directory / AUTHORITY).read_bytes(),
            [
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
            ],
        )
        self._free = threading.Semaphore(_MOST)
        self._asked = time.monotonic()
        self._state = ""

    def run(self) -> None:
        """Serve for ever, whatever goes wrong."""
        pause = 0.0
        while True:
            began = time.monotonic()
            self.attempt()
            pause = next_pause(pause, time.monotonic() - began, _LONGEST_PAUSE)
            time.sleep(pause)

    def attempt(self) -> None:
        """Serve until something goes wrong, and print it."""
        try:
            self.serve()
            self._tell("the SuperLink does not know this site any more")
        except httpx.HTTPStatusError as error:
            self._tell(*_refusal(error.response))
        except httpx.HTTPError as error:
            self._tell(f"the SuperLink does not answer: {error}")

    def _tell(self, state: str, more: str = "") -> None:
        # Prints each new state once; `more` may vary.
        if state != self._state:
            print(state + more, flush=True)
            self._state = state

    def serve(self) -> None:
        """Connect, and take questions. Raises httpx.HTTPError if the SuperLink does not answer, or refuses."""
        node = self._activate()
        self._tell(f"{self._site.name}: connected")
        beat = 0.0
        while True:
            looked = time.monotonic()
            if looked >= beat:
                request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT)
                if not self._client.SendNodeHeartbeat(request).success:
                    return
                beat = looked + HEARTBEAT * random.uniform(0.3, 0.5)
            if not self._take(node):
                time.sleep(min(_SLOW_POLL, _QUICK_POLL + (looked - self._asked) / _SLOWER))

    def _activate(self) -> Node:
        """Activate the site at the SuperLink, after ending the place of a node that was killed."""
        path = self._site.directory / NODE
        with suppress(OSError, ValueError, httpx.HTTPStatusError):
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=int(path.read_text())))
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        answer = self._client.ActivateNode(request)
        path.write_text(f"{answer.node_id}\n")
        return Node(node_id=answer.node_id)

    def _take(self, node: Node) -> bool:
        """Take a question, if there is one, and answer it in a thread."""
        if not self._free.acquire(blocking=False):
            return False
        answer = self._client.PullMessages(PullMessagesRequest(node=node))
        if not answer.messages_list:
            self._free.release()
            return False
        self._asked = time.monotonic()
        run = answer.messages_list[0].metadata.run_id
        tree = answer.message_object_trees[0]
        threading.Thread(target=self._answer, args=(node, run, tree), daemon=True).start()
        return True

    def _answer(self, node: Node, run: int, tree: Any) -> None:
        try:
            message: Message = pull_and_inflate_object_from_tree(
                tree,
                objects.make_pull_object_fn_protobuf(self._client.PullObject, node, run),
                objects.make_confirm_message_received_fn_protobuf(
                    self._client.ConfirmMessageReceived, node, run
                ),
                return_type=Message,
            )
            # Not sent: Flower's own nodes set it, too.
            message.metadata.__dict__["_message_id"] = tree.object_id
            question = carried(message)
            if question is None or len(question) < NONCE:
                print("a message was not a question of tern", flush=True)
                return
            self._push(node, run, Message(content(self._handled(question)), reply_to=message))
        except Exception as error:  # the question is lost; the host asks again
            print(f"lost a question: {type(error).__name__}: {error}", flush=True)
        finally:
            self._free.release()

    def _handled(self, question: bytes) -> bytes:
        try:
            answer = call(self._site.directory / SOCKET, question[NONCE:], _ANSWER)
        except TernError as error:
            return seal(self._key, question, True, error.message.encode())
        return seal(self._key, question, False, answer)

    def _push(self, node: Node, run: int, reply: Message) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            tree = get_object_tree(reply)
            nested = get_all_nested_objects(reply)
            answer = self._client.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[tree],
                    clientapp_runtime_list=[0.0],
                )
            )
            push_objects(
                nested,
                objects.make_push_object_fn_protobuf(self._client.PushObject, node, run, answer.session_id),
                object_ids_to_push=set(answer.objects_to_push),
            )


def _refusal(response: httpx.Response) -> tuple[str, str]:
    """Why the SuperLink refuses, in words, and the part that may vary from one time to the next."""
    refusal = f"the SuperLink refuses: {response.status_code} {response.text[:300]}".rstrip()
    if response.status_code != httpx.codes.UNAUTHORIZED:
        return refusal, ""
    try:
        ahead = (now() - parsedate_to_datetime(response.headers["Date"])).total_seconds()
    except (KeyError, ValueError, TypeError):
        return refusal, ""
    if ahead >= SYSTEM_TIME_TOLERANCE:
        return f"{refusal}: the clock of this site is ahead of the server's", f" by {ahead:.0f} s; set it"
    if ahead <= -TIMESTAMP_TOLERANCE:
        return f"{refusal}: the clock of this site is behind the server's", f" by {-ahead:.0f} s; set it"
    return f"{refusal}: the server has no site with this key", ""


if __name__ == "__main__":
    os.umask(0o077)
    end_with_parent()
    SiteNode(GatewaySite.load(sys.argv[1])).run()
