"""The files of a finished run's emulated boards are packed into an archive, or stay."""

import tarfile

from ternhost.provision.boards import FLEET_NAME
from ternhost.run import directory

LEDGER = f"{FLEET_NAME}/board-00000001/ledger/00000001.bin"


def pack(run):
    """Pack the boards of a run that has one; return the warnings, and the names in the archive."""
    ledger = run / LEDGER
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b"spent")
    warnings = []
    directory.pack_boards(run, warnings.append)
    with tarfile.open(run / directory.PACKED_NAME) as archive:
        return warnings, archive.getnames()


def test_the_boards_of_a_finished_run_are_in_an_archive(tmp_path):
    warnings, names = pack(tmp_path)
    assert not warnings
    assert LEDGER in names


def test_the_boards_are_in_the_archive_even_if_the_user_has_a_tape_drive(tmp_path, monkeypatch):
    monkeypatch.setenv("TAPE", str(tmp_path / "tape"))
    _warnings, names = pack(tmp_path)
    assert LEDGER in names


def test_the_boards_stay_if_they_cannot_be_packed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # without tar
    ledger = tmp_path / LEDGER
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b"spent")
    warnings = []
    directory.pack_boards(tmp_path, warnings.append)
    assert "the program tar, which packs them, is not installed" in warnings[0]
    assert ledger.exists()
