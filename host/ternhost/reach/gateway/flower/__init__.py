"""Flower between a host and the gateways of its sites: it carries bytes, and runs nothing at a site. The server runs
Flower's SuperLink and a short ServerApp, which passes bytes to the host's process (`post`). A site runs our own `node`:
Flower's SuperNode would run any program that the server sends, beside the keys of the site; it starts a process for
each question; and after a kill it is refused for a minute.
"""

import flwr as _flwr  # noqa: F401, first, so that the error without it names the extra

from ternhost.reach.gateway.flower.post import FlowerPost
from ternhost.reach.gateway.flower.serving import serve_site, superlink

__all__ = ["FlowerPost", "serve_site", "superlink"]
