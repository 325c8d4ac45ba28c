"""Fixtures of the tests of the zoo."""

import pytest

from ranum_falsify.zoo.catalogue import FUZZED, MODELS
from tests.zoo.pair import Pair


@pytest.fixture(scope="session", params=(*MODELS, *FUZZED), ids=lambda model: model.id)
def pair(request: pytest.FixtureRequest) -> Pair:
    """Each model of the catalogue in turn, those of the fuzzer last: all its tests run before the next is built."""
    return Pair(request.param)
