"""Errors of kernels, as `scripts/measure_kernels.py` measured and printed them; not to be edited by hand.

float16 and bfloat16 were swept entirely, float64 was sampled.  Errors are rounded up, after multiplication by
1.5 in float32, 1.25 in float16, 1.25 in bfloat16, 4.0 in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

__all__ = ["MEASURED", "SWEPT", "VERSIONS", "Row"]

VERSIONS: Mapping[str, str] = {"onnxruntime": "1.31.1", "torch": "2.13.0"}
"""Libraries that were measured."""

Row = tuple[float, float, float, float, bool]
"""relative, absolute, lowest, highest, keeps_sign: see `kernels.Envelope`."""

SWEPT: Mapping[str, str] = {
    "Sigmoid": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Tanh": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Exp": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Log": "all",
    "Erf": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Softplus": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Sqrt": "one in 31 of magnitude 1 to 4, one in 313 of the others",
    "Reciprocal": "one in 31 of magnitude 1 to 4, one in 313 of the others",
    "Sin": "all of magnitude 1.53e-05 to 1.05e+06, one in 61 of the others",
    "Cos": "all of magnitude 1.53e-05 to 1.05e+06, one in 61 of the others",
    "Tan": "one in 31 of magnitude 1.53e-05 to 1.05e+06, one in 313 of the others",
    "Atan": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Asin": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Acos": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Sinh": "one in 31 of magnitude 1.49e-08 to 256, one in 313 of the others",
    "Cosh": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Asinh": "one in 31 of magnitude 2.33e-10 to 4.29e+09, one in 313 of the others",
    "Acosh": "one in 31 of magnitude 1 to 4.29e+09, one in 313 of the others",
    "Atanh": "one in 31 of magnitude 1.49e-08 to 256, one in 313 of the others",
    "Gelu": "one in 31 of magnitude 1.49e-08 to 256, one in 313 of the others",
    "Gelu tanh": "one in 31 of magnitude 1.49e-08 to 256, one in 313 of the others",
    "HardSwish": "one in 31 of magnitude 1.49e-08 to 256, one in 313 of the others",
    "Mish": "one in 31 of magnitude 1.49e-08 to 256, one in 313 of the others",
    "Elu": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Softsign": "all of magnitude 1.49e-08 to 256, one in 61 of the others",
    "Swish": "one in 31 of magnitude 1.49e-08 to 256, one in 313 of the others",
    "Pow": "one in 31 of magnitude 0.5 to 4, one in 313 of the others",
    "Softmax": "rows of random numbers, up to 4096 long",
    "LogSoftmax": "rows of random numbers, up to 4096 long",
}
"""Which float32 values were run."""

MEASURED: Mapping[str, Mapping[str, Mapping[str, Row]]] = {
    "Sigmoid": {
        "float32": {
            "onnxruntime": (3.6e-07, 2.7e-07, 0.0, 1.0000001192092896, True),
            "torch": (2.3e-07, 0.0, 0.0, 1.0, True),
        },
        "float16": {
            "onnxruntime": (0.0013, 0.0, 0.0, 1.0, True),
            "torch": (0.00062, 0.0, 0.0, 1.0, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, 0.0, 1.0, True),
        },
        "float64": {
            "onnxruntime": (2.9e-15, 6.6e-16, 0.0, 1.0, True),
            "torch": (9.1e-16, 0.0, 0.0, 1.0, True),
        },
    },
    "Tanh": {
        "float32": {
            "onnxruntime": (1.3e-06, 2.3e-43, -1.000000238418579, 1.000000238418579, True),
            "torch": (9e-08, 0.0, -1.0, 1.0, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -1.0, 1.0, True),
            "torch": (0.00061, 0.0, -1.0, 1.0, True),
        },
        "bfloat16": {
            "torch": (0.0047, 0.0, -1.0, 1.0, True),
        },
        "float64": {
            "onnxruntime": (3.3e-15, 0.0, -1.0, 1.0, True),
            "torch": (5.3e-16, 0.0, -1.0, 1.0, True),
        },
    },
    "Exp": {
        "float32": {
            "onnxruntime": (1.2e-07, 0.0, 0.0, inf, True),
            "torch": (9.6e-08, 0.0, 0.0, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, 0.0, inf, True),
            "torch": (0.00061, 0.0, 0.0, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, 0.0, inf, True),
        },
        "float64": {
            "onnxruntime": (8.7e-16, 0.0, 0.0, inf, True),
            "torch": (4.5e-16, 0.0, 0.0, inf, True),
        },
    },
    "Log": {
        "float32": {
            "onnxruntime": (4e-07, 0.0, -inf, inf, True),
            "torch": (1.6e-07, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, -inf, inf, True),
        },
        "float64": {
            "onnxruntime": (9.2e-16, 0.0, -inf, inf, True),
            "torch": (4.8e-16, 0.0, -inf, inf, True),
        },
    },
    "Erf": {
        "float32": {
            "onnxruntime": (1.3e-07, 0.0, -1.0, 1.0, True),
            "torch": (1.2e-07, 0.0, -1.0, 1.0, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -1.0, 1.0, True),
            "torch": (0.0047, 0.0, -1.0, 1.0, True),
        },
        "bfloat16": {
            "torch": (0.041, 3.6e-07, -1.0, 1.0, True),
        },
        "float64": {
            "torch": (5.4e-16, 0.0, -1.0, 1.0, True),
        },
    },
    "Softplus": {
        "float32": {
            "onnxruntime": (5.3e-07, 0.0, 0.0, inf, True),
            "torch": (2.7e-07, 0.0, 0.0, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, 0.0, inf, True),
            "torch": (0.00061, 0.0, 0.0, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, 0.0, inf, True),
        },
        "float64": {
            "torch": (1.7e-15, 7.3e-09, 0.0, inf, True),
        },
    },
    "Sqrt": {
        "float32": {
            "onnxruntime": (9e-08, 0.0, 0.0, inf, True),
            "torch": (1.4e-07, 0.0, 0.0, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, 0.0, inf, True),
            "torch": (0.00061, 0.0, 0.0, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, 0.0, inf, True),
        },
        "float64": {
            "onnxruntime": (4.5e-16, 0.0, 0.0, inf, True),
            "torch": (4.5e-16, 0.0, 0.0, inf, True),
        },
    },
    "Reciprocal": {
        "float32": {
            "onnxruntime": (9e-08, 0.0, -inf, inf, True),
            "torch": (9e-08, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, -inf, inf, True),
        },
        "float64": {
            "onnxruntime": (4.5e-16, 0.0, -inf, inf, True),
            "torch": (4.5e-16, 0.0, -inf, inf, True),
        },
    },
    "Sin": {
        "float32": {
            "onnxruntime": (2.7e-07, 0.0, -1.0, 1.0, True),
            "torch": (9.8e-08, 0.0, -1.0, 1.0, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -1.0, 1.0, True),
            "torch": (0.00061, 0.0, -1.0, 1.0, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, -1.0, 1.0, True),
        },
        "float64": {
            "onnxruntime": (3.9e-15, 2.1e-15, -1.0, 1.0, True),
            "torch": (4.4e-16, 0.0, -1.0, 1.0, True),
        },
    },
    "Cos": {
        "float32": {
            "onnxruntime": (2.7e-07, 0.0, -1.0, 1.0, True),
            "torch": (9.8e-08, 0.0, -1.0, 1.0, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -1.0, 1.0, True),
            "torch": (0.00061, 0.0, -1.0, 1.0, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, -1.0, 1.0, True),
        },
        "float64": {
            "onnxruntime": (4.8e-15, 2.3e-15, -1.0, 1.0, True),
            "torch": (4.3e-16, 0.0, -1.0, 1.0, True),
        },
    },
    "Tan": {
        "float32": {
            "onnxruntime": (1.3e-07, 0.0, -inf, inf, True),
            "torch": (1.3e-07, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, -inf, inf, True),
        },
        "float64": {
            "torch": (4.4e-16, 0.0, -inf, inf, True),
        },
    },
    "Atan": {
        "float32": {
            "onnxruntime": (4.4e-07, 0.0, -1.5707963705062866, 1.5707963705062866, True),
            "torch": (1.3e-07, 0.0, -1.5707963705062866, 1.5707963705062866, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -1.5707963267948966, 1.5707963267948966, True),
            "torch": (0.00061, 0.0, -1.5707963267948966, 1.5707963267948966, True),
        },
        "bfloat16": {
            "torch": (0.0047, 0.0, -1.5707963267948966, 1.5707963267948966, True),
        },
        "float64": {
            "torch": (4.7e-16, 0.0, -1.5707963267948966, 1.5707963267948966, True),
        },
    },
    "Asin": {
        "float32": {
            "onnxruntime": (7.7e-07, 0.0, -1.5707963705062866, 1.5707963705062866, True),
            "torch": (1.3e-07, 0.0, -1.5707963705062866, 1.5707963705062866, True),
        },
        "float16": {
            "onnxruntime": (0.00059, 0.0, -1.5707963267948966, 1.5707963267948966, True),
            "torch": (0.00059, 0.0, -1.5707963267948966, 1.5707963267948966, True),
        },
        "bfloat16": {
            "torch": (0.0047, 0.0, -1.5707963267948966, 1.5707963267948966, True),
        },
        "float64": {
            "torch": (5.2e-16, 0.0, -1.5707963267948966, 1.5707963267948966, True),
        },
    },
    "Acos": {
        "float32": {
            "onnxruntime": (4.6e-07, 0.0, 0.0, 3.1415927410125732, True),
            "torch": (1.4e-07, 0.0, 0.0, 3.1415927410125732, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, 0.0, 3.141592653589793, True),
            "torch": (0.00061, 0.0, 0.0, 3.141592653589793, True),
        },
        "bfloat16": {
            "torch": (0.0048, 0.0, 0.0, 3.141592653589793, True),
        },
        "float64": {
            "torch": (5.8e-16, 0.0, 0.0, 3.141592653589793, True),
        },
    },
    "Sinh": {
        "float32": {
            "onnxruntime": (2.5e-07, 0.0, -inf, inf, True),
            "torch": (1.8e-07, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0048, 0.0, -inf, inf, True),
        },
        "float64": {
            "torch": (9.5e-16, 0.0, -inf, inf, True),
        },
    },
    "Cosh": {
        "float32": {
            "onnxruntime": (2.7e-07, 0.0, 1.0, inf, True),
            "torch": (1.8e-07, 0.0, 1.0, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00062, 0.0, 1.0, inf, True),
            "torch": (0.00062, 0.0, 1.0, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, 1.0, inf, True),
        },
        "float64": {
            "torch": (7.5e-16, 0.0, 1.0, inf, True),
        },
    },
    "Asinh": {
        "float32": {
            "onnxruntime": (2.1e-07, 0.0, -inf, inf, True),
            "torch": (2.1e-07, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, -inf, inf, True),
        },
        "float64": {
            "torch": (8.5e-16, 0.0, -inf, inf, True),
        },
    },
    "Acosh": {
        "float32": {
            "onnxruntime": (2e-07, 0.0, 0.0, inf, True),
            "torch": (2e-07, 0.0, 0.0, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, 0.0, inf, True),
            "torch": (0.00061, 0.0, 0.0, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, 0.0, inf, True),
        },
        "float64": {
            "torch": (8.8e-16, 0.0, 0.0, inf, True),
        },
    },
    "Atanh": {
        "float32": {
            "onnxruntime": (2e-07, 0.0, -inf, inf, True),
            "torch": (1.8e-07, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0046, 0.0, -inf, inf, True),
        },
        "float64": {
            "torch": (8.6e-16, 0.0, -inf, inf, True),
        },
    },
    "Gelu": {
        "float32": {
            "onnxruntime": (4.8e-07, 1.3e-07, -inf, inf, True),
            "torch": (3.6e-07, 3.9e-07, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.0015, 0.0, -inf, inf, True),
            "torch": (0.0022, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.048, 9.7e-08, -inf, inf, True),
        },
        "float64": {
            "torch": (1.8e-15, 9.2e-16, -inf, inf, True),
        },
    },
    "Gelu tanh": {
        "float32": {
            "onnxruntime": (3.6e-07, 1.2e-06, -inf, inf, False),
            "torch": (3.6e-07, 2.3e-07, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.0053, 0.0, -inf, inf, False),
            "torch": (0.0013, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.02, 1.9e-07, -inf, inf, True),
        },
        "float64": {
            "onnxruntime": (1.8e-15, 2.4e-08, -inf, inf, True),
            "torch": (1.8e-15, 1.5e-15, -inf, inf, True),
        },
    },
    "HardSwish": {
        "float32": {
            "onnxruntime": (7.3e-07, 9.1e-08, -inf, inf, True),
            "torch": (2.3e-07, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.005, 0.0, -inf, inf, True),
        },
        "float64": {
            "torch": (1.1e-15, 0.0, -inf, inf, True),
        },
    },
    "Mish": {
        "float32": {
            "onnxruntime": (8.1e-07, 2.1e-41, -inf, inf, True),
            "torch": (1.3e-06, 2.9e-43, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0048, 0.0, -inf, inf, True),
        },
        "float64": {
            "torch": (1.6e-15, 0.0, -inf, inf, True),
        },
    },
    "Elu": {
        "float32": {
            "onnxruntime": (1.5e-06, 9e-08, -1.0, inf, True),
            "torch": (9.6e-08, 0.0, -1.0, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00063, 0.0, -1.0, inf, True),
            "torch": (0.00061, 0.0, -1.0, inf, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, -1.0, inf, True),
        },
        "float64": {
            "torch": (4.9e-16, 0.0, -1.0, inf, True),
        },
    },
    "Softsign": {
        "float32": {
            "onnxruntime": (3.6e-07, 0.0, -1.000000238418579, 1.000000238418579, True),
            "torch": (1.8e-07, 0.0, -1.0, 1.0, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -1.0, 1.0, True),
            "torch": (0.0012, 0.0, -1.0, 1.0, True),
        },
        "bfloat16": {
            "torch": (0.0087, 0.0, -1.0, 1.0, True),
        },
        "float64": {
            "torch": (8.9e-16, 0.0, -1.0, 1.0, True),
        },
    },
    "Swish": {
        "float32": {
            "onnxruntime": (3.6e-07, 3.5e-06, -inf, inf, True),
            "torch": (3.6e-07, 4e-37, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.016, 0.0, -inf, inf, True),
            "torch": (0.0073, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.0089, 2.5e-37, -inf, inf, True),
        },
        "float64": {
            "onnxruntime": (1.8e-15, 1.6e-14, -inf, inf, True),
            "torch": (1.3e-15, 1.2e-305, -inf, inf, True),
        },
    },
    "Pow": {
        "float32": {
            "onnxruntime": (1.8e-07, 0.0, -inf, inf, True),
            "torch": (4e-07, 0.0, -inf, inf, True),
        },
        "float16": {
            "onnxruntime": (0.00061, 0.0, -inf, inf, True),
            "torch": (0.00061, 0.0, -inf, inf, True),
        },
        "bfloat16": {
            "torch": (0.021, 0.0, -inf, inf, True),
        },
        "float64": {
            "onnxruntime": (7.9e-16, 0.0, -inf, inf, True),
            "torch": (8.2e-16, 0.0, -inf, inf, True),
        },
    },
    "Softmax": {
        "float32": {
            "onnxruntime": (6.1e-06, 0.0, 0.0, 1.0, True),
            "torch": (6.2e-06, 0.0, 0.0, 1.0, True),
        },
        "float16": {
            "onnxruntime": (0.00062, 0.0, 0.0, 1.0, True),
            "torch": (0.00062, 0.0, 0.0, 1.0, True),
        },
        "bfloat16": {
            "torch": (0.0049, 0.0, 0.0, 1.0, True),
        },
        "float64": {
            "onnxruntime": (2.3e-13, 0.0, 0.0, 1.0, True),
            "torch": (2.3e-13, 0.0, 0.0, 1.0, True),
        },
    },
    "LogSoftmax": {
        "float32": {
            "onnxruntime": (3.6e-07, 3.4e-06, -inf, 0.0, True),
            "torch": (3.6e-07, 3.3e-06, -inf, 0.0, True),
        },
        "float16": {
            "onnxruntime": (0.0015, 0.0, -inf, 0.0, True),
            "torch": (0.0067, 0.00061, -inf, 0.0, True),
        },
        "bfloat16": {
            "torch": (0.059, 0.0049, -inf, 0.0, True),
        },
        "float64": {
            "onnxruntime": (1.8e-15, 1.3e-14, -inf, 0.0, True),
            "torch": (1.8e-15, 1.8e-14, -inf, 0.0, True),
        },
    },
}
"""By function, element type and runtime."""
