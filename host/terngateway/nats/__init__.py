"""NATS between a host and the gateways of its sites: servers that nobody had to write, and two ends
that are ours. Each site is an account of its own, in which the host asks and the site answers, and
neither can do more.
"""

import cryptography as _cryptography  # noqa: F401, first, so that the error without them names the extra
import nats as _nats  # noqa: F401

from terngateway.nats.post import NatsPost
from terngateway.nats.site import serve_site

__all__ = ["NatsPost", "serve_site"]
