"""`--proof`, and the command `check-proof`."""

from tests.cli.workshop import Workshop


def test_a_proof_is_written_and_accepted(workshop: Workshop) -> None:
    model, proof = workshop.model("g (float[1, 2] x) => (float[1, 2] y) { [rectifier] y = Relu(x) }"), "p.npz"
    file = workshop.folder / proof
    assert workshop.run("check", model, "--box", "-1", "1", "--proof", file).status == 0
    run = workshop.run("check-proof", file, "--network", "N", model)
    assert (run.status, run.err) == (0, "")
    assert run.out.startswith("accepted for onnxruntime\ncomputed again: 1 of 1 operators\n")
    other = workshop.model("g (float[1, 2] x) => (float[1, 2] y) { [root] y = Sqrt(x) }", "other.onnx")
    run = workshop.run("check-proof", file, "--network", "N", other)
    assert (run.status, run.out) == (1, f"rejected: it is of another model than {other}\n")


def test_no_other_verdict_has_one(workshop: Workshop) -> None:
    file = workshop.folder / "p.npz"
    run = workshop.falsify("--proof", file)
    assert run.status == 1 and "no proof file is written: the verdict is violated" in run.err
    assert not file.exists()


def test_wrong_files_are_told(workshop: Workshop) -> None:
    missing = workshop.folder / "none.npz"
    assert "none.npz: cannot be read" in workshop.run("check-proof", missing, "-N", "N", workshop.model()).error
    assert "a proof is about one model" in workshop.run("check-proof", missing).error
    text = workshop.property()
    run = workshop.run("check-proof", text, "-N", "N", workshop.model())
    assert (run.status, run.out) == (1, "rejected: it is no proof file, or not whole\n")


def test_derivatives_are_trusted(workshop: Workshop) -> None:
    file, model = workshop.folder / "p.npz", workshop.model("g (float[2] x) => (float[2] y) { [root] y = Sqrt(x) }")
    assert workshop.run("check", model, "--box", "1", "2", "--gradient", "--proof", file).status == 0
    assert "trusted: that derivatives are finite\n" in workshop.run("check-proof", file, "-N", "N", model).out


def test_that_onnx_runtime_runs_the_model_is_trusted(workshop: Workshop) -> None:
    file, model = workshop.folder / "p.npz", workshop.model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for runtime, trusts in (("onnxruntime", True), ("torch", False)):
        assert workshop.run("check", model, "--box", "1", "2", "--runtime", runtime, "--proof", file).status == 0
        run = workshop.run("check-proof", file, "-N", "N", model)
        assert ("trusted: that ONNX Runtime runs the model\n" in run.out) == trusts


def test_what_has_no_rule_is_told_in_the_first_line(workshop: Workshop) -> None:
    file, model = workshop.folder / "p.npz", workshop.model("g (float[2] x) => (float[2] y) { [soft] y = Softplus(x) }")
    assert workshop.run("check", model, "--box", "1", "2", "--proof", file).status == 0
    run = workshop.run("check-proof", file, "-N", "N", model)
    assert run.out.startswith("accepted for onnxruntime, with 1 of 1 operators trusted\n")
