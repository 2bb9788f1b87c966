"""Learning on data sets that tern does not bundle: what a user meets on the way to a model."""

import pytest

from foreign.sets import FOREIGN, SETS, write

MOST_RECORDS = 12_000  # of a table in these tests


@pytest.fixture(scope="module", params=SETS)
def files(request, tmp_path_factory):
    """The files of each set, written once."""
    assert FOREIGN.is_dir(), "packages with data sets are missing: sh tools/setup.sh device tests"
    folder = tmp_path_factory.mktemp(request.param)
    return write(SETS[request.param], folder, MOST_RECORDS)


def test_describe_takes_the_schema_with_all_its_bounds_as_public(files, tern):
    described = tern("data", "describe", str(files.table), "--json").json
    assert not described["written"]
    assert not any(column["computed"] for column in described["columns"])
