import numpy as np

from tests.operators.harness import BorderCase, OperatorCase, Spread


def einsum(equation: str, *shapes: tuple[int, ...], name: str, opset: int = 21, gradient: bool = True) -> OperatorCase:
    return OperatorCase(
        op_type="Einsum",
        inputs=[Spread(shape) for shape in shapes],
        attributes={"equation": equation},
        opset=opset,
        name=name,
        gradient=gradient,
    )


CASES = [
    einsum("ij,jk->ik", (2, 3), (3, 4), name="matmul", opset=12),
    einsum("ij,jk", (2, 3), (3, 4), name="implicit"),
    einsum("ba", (2, 3), name="implicit-transpose"),
    einsum("bij, bjk -> bik", (2, 2, 3), (2, 3, 4), name="spaces"),
    einsum("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4), name="ellipsis"),
    einsum("bhqd,bhkd->bhqk", (1, 2, 3, 4), (1, 2, 5, 4), name="attention"),
    einsum("ii->i", (3, 3), name="diagonal"),
    einsum("ij->", (3, 2), name="sum"),
    einsum("i,j->ij", (3,), (2,), name="outer"),
    einsum("i,i", (3,), (3,), name="inner"),
    einsum("bid,bjd->bij", (1, 3, 4), (1, 0, 4), name="empty", gradient=False),
    einsum("ij,jk->ik", (2, 0), (0, 3), name="sums of nothing", gradient=False),
    einsum("ab,bc,cd->ad", (2, 3), (3, 2), (2, 4), name="three"),
    OperatorCase(
        op_type="Einsum",
        inputs=[Spread((2, 3), np.int32)],
        attributes={"equation": "ij->"},
        name="int32-sum",
        gradient=False,
    ),
    OperatorCase(
        op_type="Einsum",
        inputs=[Spread((2, 3), np.int64), Spread((3, 2), np.int64)],
        attributes={"equation": "ij,jk->ik"},
        name="int64",
        gradient=False,
    ),
]

BORDERS = [
    BorderCase(
        op_type="Einsum",
        inputs=[np.array([1e20, 1], np.float32), np.array([1e20, 1e20], np.float32)],
        attributes={"equation": "i,i->i"},
        bad=[True, False],
    ),
]
