"""The network as a board that sleeps last found it, in lease.json (shared_specs/storage.md).

With its own address and the broker's, a board that wakes connects without asking DHCP and DNS.
"""

import json
import os

from tern.compat import const

LEASE = "lease.json"
# Of 256 wakes, so many ask DHCP all the same, so that it keeps the address for this board.
_RENEW = const(64)


class Lease:
    """The addresses of the board and of the broker, in lease.json.

    They are written only when they change, and forgotten once a connection with them fails.
    """

    def __init__(self, directory, station=None):
        """station: a wifi.Station, or None. A file that is missing or damaged counts as empty."""
        self._path = directory + "/" + LEASE
        self._station = station
        self._fixed = False  # whether the radio has the address from here
        self.connection = None  # the tcp.Connection that is being made
        try:
            with open(self._path) as file:
                self._known = known = json.load(file)
            # Raises unless these are texts: a list of address, netmask, gateway and name server, as
            # of ifconfig(), and the broker's address.
            "".join(known["address"] + [known["broker"]])
        except Exception:  # whatever is wrong with it: as if there were none
            self._known = {}

    @property
    def broker(self):
        """The broker's address of the last time, or None."""
        return self._known.get("broker")

    def take(self):
        """Give the radio its address of the last time, or let it ask for one."""
        if self._known and os.urandom(1)[0] >= _RENEW:
            try:
                self._station.radio.ifconfig(tuple(self._known["address"]))
                self._fixed = True
            except ValueError:  # these are no addresses
                self._known = {}
        elif self._fixed:
            self._station.radio.ipconfig(dhcp4=True)  # ifconfig("dhcp") would wait for the answer
            self._fixed = False

    def keep(self, hold=int):
        """Keep the addresses that have served.

        hold: a function that is called before the file is written, which takes a time that others
        must not see.
        """
        address = list(self._station.radio.ifconfig()) if self._station else [""] * 4
        known = {"address": address, "broker": self.connection.host}
        if known != self._known:
            self._known = known
            hold()
            try:
                with open(self._path, "w") as file:
                    json.dump(known, file)
            except OSError:  # the next start takes longer
                pass

    def forget(self):
        """Forget the addresses, since a connection with them failed."""
        if self._known:
            self._known = {}
            if self._fixed:
                self._station.radio.disconnect()  # to join anew, and ask for an address
            try:
                os.remove(self._path)
            except OSError:
                pass
