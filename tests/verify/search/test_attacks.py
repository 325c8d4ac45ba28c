"""Back ends by name: a missing one, or wrong settings, are reported before a run begins."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ranum_falsify.config import SearchConfig
from ranum_falsify.errors import BackendError
from ranum_falsify.verify.decide import falsify
from ranum_falsify.verify.search.attacks import attack_of, available, check_backends
from tests.verify.search.search_kit import network, valid_in_box

SAFE = network("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }")

INSTALLED = {package: importlib.util.find_spec(package) is not None for package in ("foolbox", "cleverhans")}
needs_foolbox = pytest.mark.skipif(not INSTALLED["foolbox"], reason="foolbox is not installed")
needs_cleverhans = pytest.mark.skipif(not INSTALLED["cleverhans"], reason="cleverhans is not installed")


def refusal(name: str, **settings: object) -> str:
    with pytest.raises(BackendError) as error:
        check_backends(SearchConfig(backend=("pgd", name), backend_parameters={name: settings}))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("variant", ["pgd", "newton"])
def test_attacks_of_dnnf_need_nothing(variant: str) -> None:
    attack = attack_of(f"dnnf.{variant}")
    assert (attack.method.__name__, attack.variant) == (variant, None)
    assert attack.settings == {"n_starts": False, "n_steps": False}


@pytest.mark.parametrize("name", ["", "dnnf", "dnnf.", "dnnf.deepfool", "foolbox", "foolbox.", "torch.pgd"])
def test_unknown_back_ends_are_refused(name: str) -> None:
    says = refusal(name)
    assert "no such back end" in says and "dnnf.pgd" in says


@pytest.mark.parametrize(("package", "variant"), [("foolbox", "LinfPGD"), ("cleverhans", "FastGradientMethod")])
def test_missing_packages_are_named_before_anything_is_proved(package: str, variant: str) -> None:
    if INSTALLED[package]:
        pytest.skip(f"{package} is installed")
    # One interval analysis proves the property, so that no back end would have to be asked.
    problem = valid_in_box(SAFE, [(0.0, 2.0)])
    with pytest.raises(BackendError, match=f"not installed; run: pip install {package}"):
        falsify(problem, SearchConfig(backend=(f"{package}.{variant}",)))


def test_a_package_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if INSTALLED["foolbox"]:
        pytest.skip("foolbox is installed")
    (tmp_path / "foolbox").mkdir()
    (tmp_path / "foolbox" / "__init__.py").write_text("import there_is_no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    says = refusal("foolbox.LinfPGD")
    assert "foolbox is installed but cannot be imported" in says and "there_is_no_such_module" in says


@pytest.mark.parametrize("name", ["dnnf.pgd", "dnnf.newton"])
def test_settings_of_dnnf(name: str) -> None:
    assert "no such parameter; it has n_starts, n_steps" in refusal(name, alpha=0.1)
    assert "n_steps: 'many' is not a whole number" in refusal(name, n_steps="many")
    assert "n_steps: -1 is not a whole number of at least 0" in refusal(name, n_steps=-1)
    assert "n_starts: -2 is not a whole number of at least -1" in refusal(name, n_starts=-2)
    assert "n_steps: True is not a whole number" in refusal(name, n_steps=True)
    check_backends(SearchConfig(backend=(name,), backend_parameters={name: {"n_starts": -1, "n_steps": 0}}))


def test_every_attack_that_is_listed_is_there() -> None:
    lines = list(available())
    assert lines[:3] == ["pgd", "dnnf.pgd", "dnnf.newton"]
    for line in lines[1:]:
        if "not installed" not in line:
            assert [attack_of(name).name for name in line.split(", ")] == line.split(", ")
    missing = {line.partition(".")[0] for line in lines if "not installed; run: pip install" in line}
    assert missing == {package for package, there in INSTALLED.items() if not there}


@needs_foolbox
def test_attacks_of_foolbox() -> None:
    assert "did you mean LinfPGD" in refusal("foolbox.LinfPDG")
    assert "no such parameter; it has n_starts, rel_stepsize" in refusal("foolbox.LinfPGD", nope=3)
    assert "--set foolbox.VirtualAdversarialAttack steps VALUE" in refusal("foolbox.VirtualAdversarialAttack")
    check_backends(SearchConfig(backend=("foolbox.LinfPGD",), backend_parameters={"foolbox.LinfPGD": {"steps": 3}}))


@needs_cleverhans
def test_attacks_of_cleverhans() -> None:
    assert "did you mean ProjectedGradientDescent" in refusal("cleverhans.ProjctGradient")
    assert "it has n_starts, eps" in refusal("cleverhans.PGD", nope=3)
    check_backends(SearchConfig(backend=("cleverhans.PGD",), backend_parameters={"cleverhans.PGD": {"nb_iter": 3}}))
