"""Which requests a server on a loopback port answers: those for this address, from no page of
another site.
"""

from collections.abc import Iterable

ADDRESS = "127.0.0.1"
REFUSED = b"This page is for its own address alone.\n"


def is_welcome(port: int, headers: Iterable[tuple[str, str]], socket: bool = False) -> bool:
    """Whether to answer a request with these headers. socket: it opens a websocket.

    Refuses DNS rebinding (a website's name as Host), websockets with another Origin, and fetches
    and frames of other sites, which browsers mark by Sec-Fetch-Site: other sites may only link
    here.
    """
    hosts = [f"{name}:{port}" for name in (ADDRESS, "localhost")]
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(value.lower())
    right_host = values.get("host") in [[host] for host in hosts]
    right_origin = {*values.get("origin", ())} <= {f"http://{host}" for host in hosts}
    # A browser of before 2023 sends no Sec-Fetch-Site; curl and Prometheus never do.
    here = {*values.get("sec-fetch-site", ())} <= {"none", "same-origin"}
    link = (values.get("sec-fetch-mode"), values.get("sec-fetch-dest")) == (
        ["navigate"],
        ["document"],
    )
    return right_host and right_origin and (here or (link and not socket))
