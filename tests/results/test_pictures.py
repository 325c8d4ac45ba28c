"""Arrays as a page draws them."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ranum_falsify.results.illustration import describe_array


def test_few_elements_are_bars() -> None:
    found = describe_array(np.array([[1.0, -np.inf], [np.nan, 3.0]], np.float32))
    assert found["bars"] == [1.0, "-inf", "nan", 3.0]
    assert (found["least"], found["greatest"], found["nan"], found["inf"]) == (1.0, 3.0, 1, 1)


def test_a_signal_is_a_curve_of_extremes() -> None:
    signal = np.zeros((1, 16000), np.float32)
    signal[0, 7777], signal[0, 8888] = 5, np.nan
    (curve,) = describe_array(signal)["curves"]
    assert len(curve) <= 240 and max(high for _, high in curve) == 5 and min(low for low, _ in curve) == 0


@pytest.mark.parametrize(
    ("shape", "count", "size"),
    [
        ((28, 28), 1, (28, 28)),
        ((1, 1, 28, 30), 1, (30, 28)),
        ((1, 3, 16, 20), 1, (20, 16)),
        ((2, 16, 20, 3), 2, (20, 16)),
        ((12, 16, 20), 4, (20, 16)),
        ((1, 1000, 20), 1, (4, 167)),
    ],
)
def test_images_are_png(shape: tuple[int, ...], count: int, size: tuple[int, int]) -> None:
    array = np.random.default_rng(0).uniform(-2, 2, shape).astype(np.float32)
    images = describe_array(array)["images"]
    assert len(images) == count
    for image in images:
        shown = Image.open(io.BytesIO(base64.b64decode(image["png"])))
        shown.load()
        assert shown.size == (image["width"], image["height"]) == size


def test_the_pixels_are_the_values() -> None:
    array = np.linspace(0, 1, 100, dtype=np.float32).reshape(10, 10)
    found = describe_array(array)
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["images"][0]["png"]))))
    assert (found["black"], found["white"]) == (0, 1)
    assert np.array_equal(shown, np.rint(array * 255))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.full((9, 9), np.nan),
        np.full((9, 9), 7.0),
        np.array([1.7e308, -1.7e308] * 50).reshape(10, 10),
        np.ones((10, 10), bool),
        np.array(["a", "b"]),
        np.arange(90, dtype=np.int64),
        np.array(3.0),
    ],
)
def test_no_array_is_refused(array: np.ndarray) -> None:
    assert describe_array(array)["shape"] == list(array.shape)
