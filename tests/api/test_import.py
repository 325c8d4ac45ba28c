"""What importing the package costs and offers."""

import subprocess
import sys

import pytest

import ranum_falsify

FUNCTIONS = ("check", "confirm", "falsify", "load_model", "load_property", "prove", "replay")


def test_importing_the_package_imports_no_heavy_library() -> None:
    code = "import ranum_falsify, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"torch", "onnx", "onnxruntime", "numpy", "dnnv"}.isdisjoint(run.stdout.split())


@pytest.mark.parametrize("name", ranum_falsify.__all__)
def test_what_is_public_can_be_imported(name: str) -> None:
    assert getattr(ranum_falsify, name) is not None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_stay_functions_when_folders_of_their_name_are_imported(name: str) -> None:
    import ranum_falsify.verify.prove.prover
    import ranum_falsify.verify.replay.replayer
    import ranum_falsify.witness.maker

    assert callable(getattr(ranum_falsify, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'chekc'"):
        _ = ranum_falsify.chekc
