"""What the search need not look for."""

from __future__ import annotations

from ranum_falsify.config import ProveConfig
from ranum_falsify.network import read
from ranum_falsify.verify.prove.prover import Prover
from ranum_falsify.verify.search.operator_status import is_shadowed
from tests.network.building import parse
from tests.verify.search.search_kit import context, valid_in_box

TEXT = (
    "g (float[2] x) => (float[2] y) <float[2] table = {1, 2}>"
    " { [root] s = Sqrt(x) i = Cast <to = 7> (s) [look] v = Gather(table, i) [log] y = Log(v) }"
)


def test_what_only_a_known_failure_may_break_is_aside_where_onnx_runtime_insists_on_it() -> None:
    reduced = valid_in_box(read(parse(TEXT)), [(-1.0, 1.0)])
    proof = Prover(reduced, ProveConfig()).analyse()
    targets = {t.op.name: t for t in context(reduced).targets() if t.constraint.refuses or t.op.name != "look"}
    aside = {name: is_shadowed(target, proof, {(0, "root")}) for name, target in targets.items()}
    assert aside["look"] and not aside["root"] and not aside["log"]
    assert not is_shadowed(targets["look"], proof, {(0, "log")}), (
        "what is not known to fail may still be found through it"
    )


def test_an_index_that_may_be_outside_by_itself_is_not_aside() -> None:
    reduced = valid_in_box(read(parse(TEXT)), [(-1.0, 9.0)])
    proof = Prover(reduced, ProveConfig()).analyse()
    (look,) = (t for t in context(reduced).targets() if t.op.name == "look" and t.constraint.refuses)
    assert not is_shadowed(look, proof, {(0, "root")})
