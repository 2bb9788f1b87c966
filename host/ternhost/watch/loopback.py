"""Decides which requests a web server on a loopback port answers.

Every program on this machine can reach the port, and so can every website that is open in its
browser. The server answers only requests that name its own address and come from no other site.
"""

from collections import defaultdict
from collections.abc import Iterable

ADDRESS = "127.0.0.1"
REFUSED = b"This page is for its own address alone.\n"


def is_welcome(port: int, headers: Iterable[tuple[str, str]], socket: bool = False) -> bool:
    """Return whether a server on a loopback port answers a request with these headers.

    It refuses DNS rebinding (a website's name as Host), websockets of another Origin, and fetches
    and frames of other sites, which browsers mark with Sec-Fetch-Site. Other sites may only link
    here. headers: names and values; a name may come more than once. socket: the request opens a
    websocket.
    """
    values: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in headers:
        values[name.lower()].append(value.lower())

    # The host must be given once, and be this server.
    own_hosts = {f"{ADDRESS}:{port}", f"localhost:{port}"}
    hosts = values["host"]
    if len(hosts) != 1 or hosts[0] not in own_hosts:
        return False

    # The origin, if it is given, must be a page of this server.
    own_origins = {f"http://{host}" for host in own_hosts}
    origins = set(values["origin"])
    if not origins <= own_origins:
        return False

    # The site, if it is given, must be this one, unless the user follows a link to here. Browsers
    # of before 2023 do not send it, and neither do curl and Prometheus.
    sites = set(values["sec-fetch-site"])
    if sites <= {"none", "same-origin"}:
        return True
    is_navigation = values["sec-fetch-mode"] == ["navigate"]
    opens_a_page = values["sec-fetch-dest"] == ["document"]
    return is_navigation and opens_a_page and not socket
