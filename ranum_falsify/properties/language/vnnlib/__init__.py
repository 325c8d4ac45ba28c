"""VNN-LIB, versions 1 and 2: satisfiability queries over inputs and outputs of networks, as properties."""

from ranum_falsify.properties.language.vnnlib.declarations import SyntaxProblem
from ranum_falsify.properties.language.vnnlib.query import parse_text

__all__ = ["SyntaxProblem", "parse_text"]
