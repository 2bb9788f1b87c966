"""What the two ends of the way over Flower make of what goes wrong: the server's registering, and a site's node."""

import pytest

pytest.importorskip("flwr")

import httpx
from flwr.proto.control_pb2 import ListNodesResponse
from flwr.proto.fleet_pb2 import ActivateNodeResponse
from flwr.proto.node_pb2 import NodeInfo

from ternhost.reach.gateway.flower.control import Control
from ternhost.reach.gateway.flower.files import GatewaySite, write_gateways
from ternhost.reach.gateway.flower.node import SiteNode


def test_each_site_is_registered_by_itself(tmp_path):
    class Client:
        """Stands for a SuperLink that refuses some sites."""

        def __init__(self):
            self.nodes = {}

        def ListNodes(self, request):
            return ListNodesResponse(nodes_info=[NodeInfo(public_key=key) for key in self.nodes.values()])

        def RegisterNode(self, request):
            if request.name in ("b", "d"):
                asked = httpx.Request("POST", "https://localhost")
                raise httpx.HTTPStatusError(
                    "", request=asked, response=httpx.Response(412, text="no", request=asked)
                )
            self.nodes[request.name] = request.public_key

    server = write_gateways(tmp_path, ["e", "a", "b", "d", "c"])
    (server.directory / "sites" / "broken.pub").write_bytes(b"x")
    with Control(server) as control:
        control._client = client = Client()
        client.close = lambda: None
        control.register()
        assert list(client.nodes) == ["a", "c", "e"]
        connected, wrong = control.register()
        assert connected == dict.fromkeys("abcde", False)
        assert sorted(wrong) == ["b", "broken", "d"]
        assert "refuses: 412 no" in wrong["b"]


def test_a_node_tells_a_problem_once_and_again_after_it_was_connected(tmp_path, capsys):
    class Client:
        """Stands for a SuperLink that ends, again and again."""

        there = False

        def DeactivateNode(self, request):
            pass

        def ActivateNode(self, request):
            if not self.there:
                raise httpx.ConnectError("refused")
            return ActivateNodeResponse(node_id=1)

        def SendNodeHeartbeat(self, request):
            raise httpx.ConnectError("refused")

    write_gateways(tmp_path, ["north"])
    node = SiteNode(GatewaySite.load(tmp_path / "north"))
    node._client = Client()
    for node._client.there in (False, False, True, False, True):
        node.attempt()
    problem = "the SuperLink does not answer: refused"
    assert capsys.readouterr().out.splitlines() == [problem, *2 * ["north: connected", problem]]
