"""Views of operands that are not read element by element."""

import numpy as np
import pytest

from ranum_falsify.operators.relations.views import View, _broadcast


@pytest.mark.parametrize("shape", [(4, 1, 1, 1), (2, 5), (4, 2, 1), (5,)])
def test_what_does_not_broadcast_has_no_view(shape: tuple[int, ...]) -> None:
    assert _broadcast(View(None, (4, 2, 5)), shape) is None


def test_what_broadcasts_repeats_its_places() -> None:
    view = _broadcast(View(None, (2, 1)), (3, 2, 4))
    assert view is not None and view.places is not None
    expected = np.broadcast_to(np.arange(2).reshape(2, 1), (3, 2, 4))
    np.testing.assert_array_equal(view.places.reshape(3, 2, 4).numpy(), expected)
