"""The node tests of the installed onnx package, for every operator that is known."""

from fnmatch import fnmatchcase

import onnx
import pytest

from ranum_falsify.network import list_supported
from ranum_falsify.network.tensorise import list_lowered
from tests.conformance.node_cases import COMPOUND, cases_by_operator, is_left_out, left_out, problem

OPERATORS = {spec.op_type for spec in list_supported() if onnx.defs.has(spec.op_type, spec.domain)}
OPERATORS |= {op_type for _, op_type in list_lowered()}

LOOPS = ("Loop", "Scan")

WITHOUT_CASES = {
    "CategoryMapper",
    "ConcatFromSequence",
    "FeatureVectorizer",
    "GlobalLpPool",
    "Imputer",
    "LinearClassifier",
    "LinearRegressor",
    "MaxRoiPool",
    "Multinomial",
    "Normalizer",
    "OneHotEncoder",
    "Optional",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "SVMClassifier",
    "SVMRegressor",
    "Scaler",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceLength",
    "TreeEnsembleClassifier",
    "TreeEnsembleRegressor",
    "ZipMap",
}


@pytest.mark.few(48)
@pytest.mark.parametrize("group", [*sorted(OPERATORS - WITHOUT_CASES), *LOOPS, COMPOUND])
def test_cases_of_operator(group: str) -> None:
    cases = cases_by_operator()[group]
    assert cases
    problems = {name: problem(case) for name, case in cases.items()}
    failed = [f"{name}: {found}" for name, found in problems.items() if found and not is_left_out(name)]
    passed = [f"{name}: passes, yet is left out" for name, found in problems.items() if not found and is_left_out(name)]
    assert not failed + passed, "\n".join(failed + passed)


@pytest.mark.parametrize("pattern", left_out())
def test_entry_of_the_list_is_needed(pattern: str) -> None:
    assert left_out()[pattern], "the list must say why"
    assert any(fnmatchcase(name, pattern) for cases in cases_by_operator().values() for name in cases)


def test_every_other_operator_has_cases() -> None:
    assert OPERATORS - cases_by_operator().keys() == WITHOUT_CASES


def test_most_cases_count() -> None:
    names = [name for cases in cases_by_operator().values() for name in cases]
    assert len(names) > 1000
    assert sum(map(is_left_out, names)) < len(names) / 8
