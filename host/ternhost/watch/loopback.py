"""Which requests a server on a loopback port answers.

Those for this address, from no page of another site.
"""

from collections.abc import Iterable

ADDRESS = "127.0.0.1"
REFUSED = b"This page is for its own address alone.\n"


def is_welcome(port: int, headers: Iterable[tuple[str, str]], socket: bool = False) -> bool:
    """Decide whether a server on a loopback port answers a request with these headers.

    socket: the request opens a websocket. Refused are DNS rebinding (a website's name as Host),
    websockets with another Origin, and fetches and frames of other sites, which browsers mark by
    Sec-Fetch-Site: other sites may only link here.
    """
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(value.lower())
    hosts = f"{ADDRESS}:{port}", f"localhost:{port}"
    if values.get("host") not in [[host] for host in hosts]:
        return False
    origins = set(values.get("origin", ()))
    if not origins <= {f"http://{host}" for host in hosts}:
        return False

    # A browser of before 2023 sends no Sec-Fetch-Site; curl and Prometheus never do.
    sites = set(values.get("sec-fetch-site", ()))
    if sites <= {"none", "same-origin"}:
        return True
    is_navigation = values.get("sec-fetch-mode") == ["navigate"]
    opens_a_page = values.get("sec-fetch-dest") == ["document"]
    return is_navigation and opens_a_page and not socket
