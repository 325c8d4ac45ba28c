"""Compare bounds of classifiers' margins with those of auto_LiRPA's alpha-CROWN, on the boxes of `make_robustness.py`.

    python scripts/bench_bounds.py [--family residual ...] [--pictures 3] [--threads 1] [--record]

A margin is the difference of the right class to another one.  Its width is the way from its value at the picture to its
lower bound over the box; both tools choose slopes for every margin, by default settings.  Both start from the module in
memory; theirs leave rounding out.  auto_LiRPA 0.3 is the version on the package index.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from lab.bench import lirpa
from lab.bench.robustness import FAMILIES, Question, ask
from lab.bench.tables import Table, add_record_option, command_of
from ranum_falsify.api.exporting import export
from ranum_falsify.domain import Interval
from ranum_falsify.domain.linear.backsubstitution import BoxBatch
from ranum_falsify.domain.linear.bounds import LinearAnalysis
from ranum_falsify.domain.linear.functionals import Functional
from ranum_falsify.network import Graph, read

_COLUMNS = (
    *("family", "boxes", "width, ours to theirs", "least - greatest", "seconds, ours", "theirs", "ours to theirs"),
)


def margins(question: Question) -> Tensor:
    """Return the coefficients of the margins in the outputs, `(9, 10)`."""
    rows = torch.zeros(len(question.others), 10)
    rows[:, question.label] = 1.0
    rows[torch.arange(len(rows)), question.others] = -1.0
    return rows


def bound(graph: Graph, question: Question) -> Tensor:
    """Return our lower bounds of the margins, `(9,)`."""
    rows = margins(question).double()
    analysis = LinearAnalysis(graph, work=1e12)
    with torch.no_grad():
        analysis.run([Interval(*question.box, tuple(question.picture.shape))])
        functional = Functional.of(analysis, analysis.program, graph.output_operations, rows)
        found = functional.bound(BoxBatch(analysis.program, {}))
        sides = torch.arange(2 * len(rows)) < len(rows)
        return analysis.sharpen(functional, found, sides).lower[0]


def compare(question: Question) -> tuple[float, float, float]:
    """Return the ratio of mean widths, our seconds and theirs."""
    graph = read(export(question.network, question.picture).model)
    began = time.perf_counter()
    ours = bound(graph, question)
    middle = time.perf_counter()
    theirs = lirpa.lower_bounds(question.network, question.box, margins(question))
    end = time.perf_counter()
    values = margins(question) @ question.network(question.picture)[0].detach()
    return float((values - ours).mean() / (values - theirs).mean()), middle - began, end - middle


def main(argv: Sequence[str] | None = None) -> int:
    """Print a row for each family."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--family", action="append", choices=list(FAMILIES))
    arguments.add_argument("--pictures", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=1)
    add_record_option(arguments)
    given = arguments.parse_args(argv)
    if not lirpa.is_installed():
        print(f"nothing is measured: auto_LiRPA is not installed; {lirpa.INSTALL}", file=sys.stderr)
        return 2
    torch.set_num_threads(given.threads)
    table = Table("bounds", _COLUMNS, command=command_of(__file__, argv))
    for family in given.family or FAMILIES:
        questions = ask(family, given.pictures)
        compare(questions[0])  # what is loaded and compiled on first use
        ratios, ours, theirs = zip(*map(compare, questions), strict=True)
        median = statistics.median
        table.add(
            *(family, str(len(questions)), f"{median(ratios):.3f}", f"{min(ratios):.3f} - {max(ratios):.3f}"),
            *(f"{median(ours):.2f}", f"{median(theirs):.2f}"),
            f"{median(a / b for a, b in zip(ours, theirs, strict=True)):.2f}",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
