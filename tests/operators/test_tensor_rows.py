"""What the case tables cannot say of the rows that move, create, resize and draw."""

import numpy as np
import pytest
import torch

import ranum_falsify.operators  # noqa: F401 - fills the registry
from ranum_falsify.errors import UnsupportedAttributeError
from ranum_falsify.network import read
from ranum_falsify.operators.rows import resize
from ranum_falsify.operators.support.sampling import ResizedAxis, Sampling, taps_of
from tests.network.building import parse


def draws(seed: str, count: int = 2000) -> torch.Tensor:
    """Return what a network of random operators draws for a batch of 4."""
    model = parse(
        f"""g (float[1] x) => (float[{count}] normal, float[{count}] uniform) {{
            normal = RandomNormal<shape = [{count}], mean = 3.0, scale = 2.0{seed}>()
            uniform = RandomUniform<shape = [{count}], low = 5.0, high = 7.0{seed}>()
        }}"""
    )
    graph = read(model)
    outputs = torch.func.vmap(lambda x: graph.evaluate([x]), randomness="different")(torch.zeros(4, 1))
    return torch.stack(outputs)


@pytest.mark.parametrize("seed", ["", ", seed = 5.0"])
def test_samples_of_a_batch_draw_their_own_numbers(seed: str) -> None:
    torch.manual_seed(0)
    normal, uniform = draws(seed)
    for kind in (normal, uniform):
        assert len({float(row[0]) for row in kind}) == 4
    assert abs(float(normal.mean()) - 3) < 0.1
    assert abs(float(normal.std()) - 2) < 0.1
    assert 5 <= float(uniform.min()) < 5.01
    assert 6.99 < float(uniform.max()) < 7


def test_seeds_repeat_draws() -> None:
    assert torch.equal(draws(", seed = 5.0"), draws(", seed = 5.0"))
    assert not torch.equal(draws(", seed = 5.0"), draws(", seed = 6.0"))
    assert not torch.equal(draws(""), draws(""))
    torch.manual_seed(1)
    first = draws("")
    torch.manual_seed(1)
    assert torch.equal(first, draws(""))


def test_bernoulli_and_multinomial_follow_their_probabilities() -> None:
    torch.manual_seed(0)
    model = parse(
        """g (float[1,4000] p, float[1,3] logits) => (float[1,4000] b, int32[1,4000] m) {
            b = Bernoulli(p)
            m = Multinomial<sample_size = 4000>(logits)
        }"""
    )
    logits = np.log(np.array([[0.2, 0.5, 0.3]], np.float32)) + 4
    b, m = read(model)(np.full((1, 4000), 0.3, np.float32), logits)
    assert set(np.unique(b)) == {0, 1}
    assert abs(b.mean() - 0.3) < 0.03
    np.testing.assert_allclose(np.bincount(m[0], minlength=3) / 4000, [0.2, 0.5, 0.3], atol=0.04)


def test_an_index_out_of_range_does_not_stop_its_batch() -> None:
    model = parse(
        """g (float[3] x, int64[2] i) => (float[2] y, float[3] z) {
            y = Gather(x, i)
            z = ScatterElements(x, i, y)
        }"""
    )
    graph = read(model)
    x, indices = torch.tensor([[1.0, 2, 3], [4, 5, 6]]), torch.tensor([[0, -1], [9, 99]])
    y, z = torch.func.vmap(lambda *xs: graph.evaluate(xs))(x, indices)
    np.testing.assert_array_equal(y[0], [1, 3])
    np.testing.assert_array_equal(z[0], [1, 2, 3])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_resizing_by_torch_equals_resizing_by_taps(mode: str, transform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    how = Sampling(
        mode=mode, transform=transform, nearest="floor", cubic_a=-0.75, exclude_outside=False, antialias=False
    )
    axes = {2: ResizedAxis(before=4, after=8, scale=2.0), 3: ResizedAxis(before=6, after=3, scale=0.5)}
    x = torch.linspace(-2, 2, 2 * 3 * 24).reshape(2, 3, 4, 6).sin()
    fast = resize.resample(x, axes, how, 0.0)
    monkeypatch.setattr(resize, "_interpolation", lambda *_: None)
    torch.testing.assert_close(fast, resize.resample(x, axes, how, 0.0), rtol=1e-5, atol=1e-6)


def test_torch_resizes_where_it_agrees() -> None:
    half = parse(
        """g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] scales = {1.0, 1.0, 2.0, 2.0}> {
            y = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(x, , scales)
        }"""
    )
    x = torch.arange(4.0).reshape(1, 1, 2, 2).requires_grad_()
    (y,) = read(half).evaluate([x])
    assert "UpsampleBilinear" in type(y.grad_fn).__name__


def test_weights_of_taps_sum_to_one() -> None:
    for mode in ("linear", "cubic"):
        for antialias in (False, True):
            how = Sampling(
                mode=mode,
                transform="half_pixel",
                nearest="floor",
                cubic_a=-0.5,
                exclude_outside=False,
                antialias=antialias,
            )
            weights = taps_of(ResizedAxis(before=10, after=4, scale=0.4), how).weights
            assert weights is not None
            np.testing.assert_allclose(weights.sum(axis=0), 1)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ('y = Pad<mode = "mirror">(x, pads)', UnsupportedAttributeError, "mode 'mirror'"),
        ('y = Resize<mode = "area">(x, , scales)', UnsupportedAttributeError, "mode 'area'"),
        (
            'y = Resize<coordinate_transformation_mode = "odd">(x, , scales)',
            UnsupportedAttributeError,
            "transformation 'odd'",
        ),
        ('y = Resize<nearest_mode = "odd">(x, , scales)', UnsupportedAttributeError, "rounding 'odd'"),
        ('y = ScatterND<reduction = "mean">(x, places, x)', UnsupportedAttributeError, "reduction 'mean'"),
    ],
)
def test_what_a_row_does_not_do_is_said(body: str, kind: type[Exception], message: str) -> None:
    model = parse(
        f"""g (float[3] x) => (float[N] y)
            <int64[2] pads = {{1, 1}}, float[1] scales = {{2.0}}, int64[3,1] places = {{0, 1, 2}}> {{ {body} }}""",
        18,
    )
    with pytest.raises(kind, match=message):
        read(model, strict=True)
