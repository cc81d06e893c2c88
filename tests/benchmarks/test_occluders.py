"""Patches of the face studies."""

import numpy as np
import pytest

from benchmarks.data.occluders import OBJECTS, occlude


@pytest.mark.parametrize("kind", [*OBJECTS, "any"])
@pytest.mark.parametrize("size", [32, 64])
def test_a_patch_is_a_square_of_the_size_asked_for_and_nothing_else_changes(kind, size):
    """Pixels are marked with a value that no object has; the input stays."""
    images = np.full((20, size, size), -1.0)
    for patch in (16, 28):
        found = occlude(images, patch, kind, seed=3)
        side = patch * size // 64
        assert (images == -1).all()
        for image in found:
            rows, columns = np.nonzero(image >= 0)
            assert len(rows) == side**2
            assert (np.ptp(rows), np.ptp(columns)) == (side - 1, side - 1)
            assert image.max() <= 1
            assert image[rows, columns].std() > 0.05
        assert np.array_equal(found, occlude(images, patch, kind, seed=3))
        assert not np.array_equal(found, occlude(images, patch, kind, seed=4))
    assert np.array_equal(occlude(images, 0, kind, seed=3), images)
