"""Which requests a server on a loopback port answers: those for this address, from no page of another site."""

from __future__ import annotations

from collections.abc import Iterable

ADDRESS = "127.0.0.1"
REFUSED = "This page is for its own address alone.\n"
_NAMES = (ADDRESS, "localhost")


class Loopback:
    """The check of one port.

    Refuses DNS rebinding (a website's name as Host), websockets with another Origin, and fetches and frames of other
    sites, which browsers mark by Sec-Fetch-Site: other sites may only link here."""

    def __init__(self, port: int) -> None:
        self._hosts = {f"{name}:{port}" for name in _NAMES}
        self._origins = {f"http://{host}" for host in self._hosts}

    def welcomes(self, headers: Iterable[tuple[str, str]], socket: bool = False) -> bool:
        """Whether to answer a request with these headers. socket: it opens a websocket."""
        values: dict[str, list[str]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value.lower())
        host = values.get("host", [])
        right_host = len(host) == 1 and host[0] in self._hosts
        right_origin = all(origin in self._origins for origin in values.get("origin", ()))
        # A browser of before 2023 sends no Sec-Fetch-Site; curl and Prometheus never do.
        here = {*values.get("sec-fetch-site", ())} <= {"none", "same-origin"}
        link = (values.get("sec-fetch-mode"), values.get("sec-fetch-dest")) == (["navigate"], ["document"])
        return right_host and right_origin and (here or (link and not socket))
