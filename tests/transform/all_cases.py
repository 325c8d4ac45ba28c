"""All passes that have random cases."""

from tests.transform import caisar_cases, elementwise_cases, image_cases, shape_cases
from tests.transform.sweeping import Generator

CASES: dict[str, Generator] = {
    **caisar_cases.CASES,
    **elementwise_cases.CASES,
    **image_cases.CASES,
    **shape_cases.CASES,
}
