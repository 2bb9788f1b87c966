"""Mosquitto as a kind of broker: one server, which other Mosquittos may be bridged to."""

import getpass
from pathlib import Path

from ternhost.reach.broker import mosquitto_files
from ternhost.reach.broker.access import CONFIG, Access
from ternhost.reach.broker.kinds import BrokerKind, BrokerUsers, hang_up


class MosquittoKind(BrokerKind):
    """One Mosquitto. A client's id is its user name, so that no board can take over another's
    session.
    """

    name = "mosquitto"
    title = "Mosquitto"
    about = "one Mosquitto"
    start = "tern broker run DIR, or mosquitto -c mosquitto.conf inside DIR"
    names_here = ("localhost", "127.0.0.1")

    def has(self, directory: Path, access: Access) -> bool:
        return not access.is_cluster

    def is_written(self, directory: Path) -> bool:
        return (directory / CONFIG).exists()

    def listening_address(self, directory: Path) -> str | None:
        listener = mosquitto_files.listening(directory)
        if listener is None:
            return None
        address, _port = listener
        return address

    def write(self, directory: Path, access: Access, *, address: str, boards: int) -> None:
        has_tls = access.authority is not None
        listener = mosquitto_files.Listener(address, access.port, has_tls)
        user = getpass.getuser()
        mosquitto_files.write_conf(directory, listener, boards=boards, user=user)

    def write_users(self, directory: Path, access: Access, users: BrokerUsers) -> None:
        sections = ""  # of the access list, one for each user that is not a board
        for user, rights in users.rights.items():
            sections += f"user {user}\n{rights.lines()}\n"
        sections += users.bridges
        mosquitto_files.write_access_list(directory, sections, users.boards, access.prefix)
        mosquitto_files.write_password_file(directory, users.passwords.items())

    def update(self, directory: Path, boards: int) -> None:
        mosquitto_files.modernise(directory)
        mosquitto_files.update_memory(directory, boards)

    def start_command(self, directory: str) -> str:
        return f"tern broker run {directory}, or mosquitto -c {CONFIG} inside {directory}"

    def reload(self, directory: Path) -> bool:
        return hang_up(directory, mosquitto_files.PID, mosquitto_files.PROGRAM)


MOSQUITTO = MosquittoKind()
