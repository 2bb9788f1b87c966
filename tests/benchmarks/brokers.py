"""Brokers for benchmarks, on this machine: one, or a central one and the bridged broker of a site."""

import asyncio
import re
from contextlib import contextmanager

from ternhost.errors import DeviceError
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import CONFIG
from ternhost.reach.broker.link import MqttLink
from ternhost.reach.broker.mosquitto import Mosquitto, free_port
from ternhost.reach.broker.mosquitto_files import ACCESS
from ternhost.reach.broker.sites import SITES
from ternhost.store import store_file
from ternhost.store.store import Store

_SITE = "site"
_LINK = 20.0  # s that a bridge may take to connect


@contextmanager
def running(directory, keys, bridge=False, may_write_all=False):
    """A context with the host's Access to a broker, and the port for boards with `keys`.

    directory: a new one, for the broker's files. bridge: boards use the broker of a site.
    may_write_all: each board may write to the topics of all boards. There is no TLS, and no limit to
    the queue of the host. Raises DeviceError.
    """
    directory.mkdir(mode=0o700)
    with Store(directory / store_file.NAME) as store:
        store.add_devices(keys)
    access = configuration.configure(directory, port=free_port(), tls=False)
    conf = (directory / CONFIG).read_text()
    conf = re.sub(r"(?m)^(max_queued_messages|max_queued_bytes|memory_limit) .*", r"\1 0", conf)
    (directory / CONFIG).write_text(conf.replace("persistence true", "persistence false"))
    if may_write_all:
        with (directory / ACCESS).open("a") as access_list:
            access_list.write("pattern write #\n")
    if not bridge:
        with Mosquitto(directory):
            yield access, access.port
        return
    port = free_port()
    configuration.add_site(directory, _SITE, bridge=True, port=port)
    site = directory / SITES / _SITE
    with Mosquitto(directory), Mosquitto(site):
        asyncio.run(_wait(access, site))
        yield access, port


async def _wait(access, site):
    link = MqttLink(access)
    await link.connect()
    try:
        async with asyncio.timeout(_LINK):
            while not link.sites.get(_SITE):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise DeviceError(
            "the bridge does not connect", hint=f"see {site / 'mosquitto.log'}"
        ) from None
    finally:
        await link.close()
