"""What proofs depend on here is told, and the installed kernels are checked unless that is declined."""

from pathlib import Path

import pytest

from ranum_falsify.api import kernels
from ranum_falsify.selfcheck import Outcome
from tests.cli.workshop import Workshop


def test_doctor_names_processor_versions_and_families(workshop: Workshop) -> None:
    run = workshop.run("doctor")
    assert (run.status, run.err) == (0, "")
    lines = run.out.splitlines()
    titles = [line.partition(":")[0].removesuffix(" (on an earlier run)") for line in lines if not line.startswith(" ")]
    assert titles == [
        *("processor", "versions", "ONNX Runtime", "PyTorch", "check of the installed kernels", "graphics processor")
    ]
    assert any(line.startswith("  avx2: ") for line in lines) and any(line.startswith("  avx512: ") for line in lines)
    assert any(line.startswith("    1.31.1: ") for line in lines) and any(
        line.startswith("    2.13.0: ") for line in lines
    )


def test_doctor_can_leave_the_check_out(workshop: Workshop) -> None:
    assert "check of the installed kernels: skipped" in workshop.run("doctor", "--no-self-check").out


def test_unknown_options_of_doctor_are_refused(workshop: Workshop) -> None:
    assert "--cure" in workshop.run("doctor", "--cure").error


@pytest.mark.parametrize(
    ("options", "checks"), [((), True), (("--no-self-check",), False), (("--no-prove",), False)], ids=str
)
def test_kernels_are_checked_before_proofs(
    options: tuple[str, ...], checks: bool, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Path | None] = []

    def check(folder: Path | None, settings: object) -> Outcome:
        given.append(folder)
        return Outcome(records=(), known=False, notices=("a kernel strays",))

    monkeypatch.setattr(kernels, "self_check", check)
    out = workshop.falsify(*options).out
    assert bool(given) == ("notice: a kernel strays" in out) == checks
