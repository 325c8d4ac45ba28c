"""Verified rewrites of ONNX models, on onnx-ir and the rewriter of onnxscript.

A pass is one small class, registered by its name, with a guarantee:

    from ranum_falsify.rewrite import Rewrite, register, verify

    @verify.equality
    @register("remove_double_negation", takes=["Neg"])
    class RemoveDoubleNegation(Rewrite):
        "Neg(Neg(x)) becomes x."

        def pattern(self, op, x):
            return op.Neg(op.Neg(x))

        def rewrite(self, op, x):
            return op.Identity(x)
"""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
from ranum_falsify.rewrite import verify
from ranum_falsify.rewrite.checks.comparing import metric
from ranum_falsify.rewrite.registry import register
from ranum_falsify.rewrite.rewrite import AnalysisPass, Rewrite

__all__ = ["AnalysisPass", "Rewrite", "metric", "register", "verify"]
