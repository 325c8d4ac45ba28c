"""No forged proof file is accepted of a claim that is false, and none that is about another question."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from ranum_falsify.checker.check import check_model
from ranum_falsify.checker.question import ModelQuestion, ProofFile, ProofRejectedError, QuestionError, ask
from ranum_falsify.network.model_file import free_model
from tests.checker.forging import SUBJECTS, Forgery, forgeries, write

FAILING = [name for name, subject in SUBJECTS.items() if subject.failing]
HARMLESS = {
    *("derivatives is True", "derivatives is None", "derivatives is 'no'"),
    *("trusted is added", "bounds is added", "digest is added", "accepted is added"),
}
"""Fields that say more than is asked, or that nobody reads."""


FREE: dict[str, Any] = {"cuts": [], "directions": []}
"""What says how to show something, and not what."""


def outcome(forged: Forgery, question: ModelQuestion, path: Path) -> str:
    """What becomes of a file: rejected, not checked or accepted."""
    path.write_bytes(forged.write())
    try:
        proof = ProofFile.read(path)
        proof.compare(question)
        return "not checked" if check_model(question, proof).open else "accepted"
    except ProofRejectedError:
        return "rejected"


@pytest.mark.parametrize("name", SUBJECTS)
def test_honest_files_are_accepted(name: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]
    question = subject.question(safe=True)
    assert outcome(subject.write(question), question, tmp_path / "p.npz") == "accepted"


@pytest.mark.parametrize("name", FAILING)
def test_what_is_claimed_falsely_does_fail(name: str) -> None:
    subject = SUBJECTS[name]
    question = subject.question(safe=False)
    model = free_model(question.model, subject.free)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert all((question.inputs[key].lower <= x).all() for key, x in subject.failing.items())
    assert all((x <= question.inputs[key].upper).all() for key, x in subject.failing.items())
    try:
        (y,) = session.run(None, dict(subject.failing))
    except Exception as error:
        assert "out of data bounds" in str(error)
        return
    assert not np.isfinite(y).all()


def all_forgeries(name: str) -> Iterator[tuple[str, Forgery, bool]]:
    """Forgeries of files about the safe box, and about the unsafe one where there is one."""
    subject = SUBJECTS[name]
    for safe in (True, False):
        question = subject.question(safe=safe)
        for what, forged in forgeries(lambda: subject.write(question)):  # noqa: B023
            yield what, forged, safe


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FAILING)
def test_no_file_makes_a_false_claim_accepted(name: str, tmp_path: Path) -> None:
    question = SUBJECTS[name].question(safe=False)
    found = Counter[str]()
    for what, forged, _ in all_forgeries(name):
        ended = outcome(forged, question, tmp_path / "p.npz")
        assert ended != "accepted", what
        found[ended] += 1
    assert found["rejected"] > 100 and found["not checked"] > 0


@pytest.mark.few(3)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_file_about_something_else_is_rejected(name: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]
    question = subject.question(safe=True)
    rejected = 0
    for what, forged in forgeries(lambda: subject.write(question)):
        ended = outcome(forged, question, tmp_path / "p.npz")
        rejected += ended == "rejected"
        if (
            what not in HARMLESS
            and not what.startswith(("the cuts", "the directions"))
            and not _is_wider(forged, question)
        ):
            assert ended == "rejected", what
    assert rejected > 60


def _is_wider(forged: Forgery, question: ModelQuestion) -> bool:
    """Whether a file is about the question's box or one around it."""
    honest = write(question)
    if not isinstance(forged.meta, dict) or forged.meta | FREE != honest.meta | FREE:
        return False
    pairs = [(forged.arrays.get(name), array, name) for name, array in honest.arrays.items()]
    return all(
        other is not None
        and np.asarray(other).dtype == array.dtype
        and np.isfinite(np.asarray(other, dtype=np.float64)).all()
        and (other.shape == array.shape or other.shape in ((1,), ()))
        and bool(((other <= array) if name.startswith("lower") else (other >= array)).all())
        for other, array, name in pairs
    )


def test_more_than_five_hundred_forgeries_are_tried() -> None:
    assert sum(1 for name in FAILING for _ in all_forgeries(name)) > 500


# the faults that an attacker found ------------------------------------------------------------------------------------


def test_points_are_no_box(tmp_path: Path) -> None:
    question = SUBJECTS["reciprocal"].question(safe=False)
    forged = write(question)
    forged.arrays["lower0"] = forged.arrays["upper0"] = np.array([-1, 1], np.float32)
    assert outcome(forged, question, tmp_path / "p.npz") == "rejected"


def test_files_of_one_model_are_of_no_other(tmp_path: Path) -> None:
    for name, subject in SUBJECTS.items():
        for other in SUBJECTS.values():
            question = subject.question(safe=True)
            if other is not subject and other.data != subject.data:
                forged = other.write(other.question(safe=True))
                assert outcome(forged, question, tmp_path / "p.npz") == "rejected", name


def test_sizes_are_those_of_the_question(tmp_path: Path) -> None:
    subject = SUBJECTS["sizes"]
    question = subject.question(safe=True)
    assert (question.sizes, question.assumed) == ({"batch": 3}, [])
    other = subject.question(safe=True, sizes={})
    assert (other.sizes, list(other.assumed)) == ({"batch": 1}, ["batch"])
    assert outcome(write(other), question, tmp_path / "p.npz") == "rejected"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("weight", {"free": ()}, "'w' is a weight of the model"),
        ("sizes", {"sizes": {"length": 2}}, "--dim length: no input"),
        ("pair", {"runtimes": ("cuda",)}, "'cuda' is no runtime"),
        ("pair", {"free": ("w",)}, "nothing says what input 'w'"),
    ],
)
def test_questions_that_do_not_fit_are_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        SUBJECTS[name].question(safe=True, **changes)


@pytest.mark.parametrize(
    "ranges", [{}, {"x": (1, 2), "z": (1, 2)}, {"x": (2, 1)}, {"x": (0, np.inf)}, {"x": (1e39, 1e40)}]
)
def test_boxes_that_do_not_fit_are_refused(ranges: Any) -> None:
    with pytest.raises(QuestionError):
        ask(SUBJECTS["reciprocal"].data, ranges, sizes={}, runtimes=())
