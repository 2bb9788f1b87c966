"""The law of a report about the whole vector, with all numbers of both draws; devices check fewer
vectors.
"""

import pytest
from spec import projection as spec
from test_projection import check_laws, check_sign

from tern.fixed import ONE


@pytest.mark.parametrize(
    ("n", "d", "levels"),
    [
        (1, 2, (-ONE, -20, -3, 0, 4, 12, ONE)),
        (2, 4, (-20, 0, 12)),
        (3, 3, (-20, 0, 12)),
        (3, 2, (-ONE, 0, 3, ONE)),
    ],
)
def test_the_law_is_exact(n, d, levels, pytestconfig):
    check_laws(n, d, levels, 20 if pytestconfig.getoption("exhaustive") else 1)


@pytest.mark.parametrize("radius", [2047, 1 << 15])
@pytest.mark.parametrize("values", [[0], [-ONE, ONE], [4001, 300]])
def test_the_mean_of_the_sign_is_the_length(radius, values):
    check_sign(radius, values)


@pytest.mark.parametrize("n", range(1, 8))
def test_the_rotation_keeps_angles(n):
    """A device turns its vector by a random rotation of whole numbers before it reports a
    direction. It must not distort: unit vectors are turned into orthogonal ones, of N ** 1.5 times
    the length, N = 2 ** n.
    """
    size = 2**n
    columns = []  # of its matrix, the first 9 at most
    for j in range(min(size, 9)):
        unit_vector = [0] * size
        unit_vector[j] = ONE
        columns.append(spec.rotated(unit_vector, size, bytes([n])))
    for i, column in enumerate(columns):
        for j, other in enumerate(columns):
            product = sum(a * b for a, b in zip(column, other, strict=True))
            assert product == (size**3 * ONE**2 if i == j else 0)
