"""An error of the operating system says what to do about its reason, and then what to do next."""

import errno

import pytest

from ternhost.errors import StorageError
from ternhost.files import path_text, storage_errors


def hint_for(code, **options):
    """The hint of the error that an OSError with this code becomes."""
    with pytest.raises(StorageError) as caught, storage_errors(what="x", **options):
        raise OSError(code, "it failed")
    return caught.value.hint


def test_a_full_disk_and_a_read_only_disk_have_different_remedies():
    full = hint_for(errno.ENOSPC, afterwards="then begin again")
    read_only = hint_for(errno.EROFS, afterwards="then begin again")
    assert full != read_only
    assert full.endswith("then begin again")
    assert read_only.endswith("then begin again")


def test_a_hint_that_is_given_stays_whatever_the_reason():
    assert hint_for(errno.ENOSPC, hint="name another file") == "name another file"


def test_a_path_stays_as_it_is():
    assert path_text("runs/mine", "a path") == "runs/mine"
