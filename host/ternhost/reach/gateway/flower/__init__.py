"""Flower between a host and the gateways of its sites: it carries bytes, and runs nothing at a site.

The server runs Flower's SuperLink (`superlink`), to which sites connect, and a short ServerApp (`serverapp`), which
passes bytes between the SuperLink and the host's own process (`post`). A site runs our own node (`node`), which speaks
the SuperLink's Fleet protocol and hands each question to the gateway's socket. Flower's own SuperNode would run any
program that the server sends, beside the keys of the site; it asks for work every 3 s and starts a process for each
question; and after a kill it is refused for a minute.
"""

import flwr as _flwr  # noqa: F401, first, so that the error without it names the extra

from ternhost.reach.gateway.flower.post import FlowerPost
from ternhost.reach.gateway.flower.serving import serve_site, superlink

__all__ = ["FlowerPost", "serve_site", "superlink"]
