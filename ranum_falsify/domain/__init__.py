"""The interval domain: bounds on every tensor of a graph, sound for the arithmetic that really runs."""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing
from ranum_falsify.config import RUNTIMES, Runtime
from ranum_falsify.domain.analysis import IntervalAnalysis, Visited
from ranum_falsify.domain.interval import Interval
from ranum_falsify.domain.site import Site

__all__ = ["RUNTIMES", "Interval", "IntervalAnalysis", "Runtime", "Site", "Visited"]
