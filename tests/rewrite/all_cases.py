"""All passes that have random cases."""

from tests.rewrite import caisar_cases, elementwise_cases, image_cases, shape_cases
from tests.rewrite.sweeping import Generator

CASES: dict[str, Generator] = {
    **caisar_cases.CASES,
    **elementwise_cases.CASES,
    **image_cases.CASES,
    **shape_cases.CASES,
}
