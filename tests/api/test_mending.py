"""`mend`: lines of modules that fail, in another text, and proved."""

from __future__ import annotations

import pytest

import ranum_falsify as rf
from tests.api.practitioners import PRACTITIONERS

MENDED = {
    "contrastive": ["a = torch.nn.functional.normalize(a, dim=-1)", "b = torch.nn.functional.normalize(b, dim=-1)"],
    "log_sum_exp": ["return torch.logsumexp(x, -1)"],
    "focal": ["torch.log(chosen.clamp(min=1e-8))"],
    "attention": ["scores.masked_fill(~mask[:, None, :], torch.finfo(scores.dtype).min)"],
    "layer_norm": ["self.weight * (x - mean) / (deviation + 1e-8) + self.bias"],
    "dice": ["2 * overlap / (union + 1e-8)"],
    "policy": ["score = (action - mean) / (deviation + 1e-8)", "deviation.clamp(min=1e-8).log()"],
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", MENDED)
def test_lines_are_mended_and_proved(name: str) -> None:
    case = PRACTITIONERS[name]
    module = case.broken()
    code = type(module).forward.__code__
    mended = rf.mend(module, case.args, box=case.box, n_steps=20, self_check=False)
    assert mended.is_proved, mended
    assert len(mended.changes) == len(MENDED[name])
    for change, text in zip(mended.changes, MENDED[name], strict=True):
        assert text in change.mended and change.failing
        assert f"-{change.source.code}" in mended.diff.replace("-        ", "-").replace("-    ", "-")
    assert type(module).forward.__code__ is code, "the module is as it was"


def test_what_does_not_fail_is_not_mended() -> None:
    case = PRACTITIONERS["log_sum_exp"]
    with pytest.raises(rf.UsageError, match="holds; there is no violation to mend"):
        rf.mend(case.repaired(), case.args, box=case.box, self_check=False)
