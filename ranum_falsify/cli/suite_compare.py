"""The command `suite compare`: two results of the same instances."""

from __future__ import annotations

from pathlib import Path

from ranum_falsify.cli.files import check_writable, write_json
from ranum_falsify.cli.options.suite_compare import CompareOptions
from ranum_falsify.cli.output import say
from ranum_falsify.errors import UsageError
from ranum_falsify.saving import save_together
from ranum_falsify.suite.cactus import cactus_plot
from ranum_falsify.suite.comparison import compare, read_entries
from ranum_falsify.suite.record import Instance


def run(options: CompareOptions) -> int:
    """Run the command.

    Raises:
        RanumFalsifyError: The user's input is invalid.
    """
    if len(options.results) != 2:
        raise UsageError(f"suite compare: takes two results, not {len(options.results)}; see suite compare --help")
    if options.cactus is not None:
        check_writable("--cactus", options.cactus)
    if options.json not in (None, "-"):
        check_writable("--json", Path(str(options.json)))
    one, other = map(Path, options.results)
    found = compare(read_entries(one), read_entries(other), _name(one, other), _replay)
    if options.json is not None:
        write_json(options.json, found.as_json())
    if options.cactus is not None:
        plot = cactus_plot({name: found.times(side) for side, name in enumerate(found.names)})
        save_together({options.cactus: plot.encode()})
    if options.json != "-":
        say(found.lines())
    return 1 if found.disagreements else 0


def _replay(instance: Instance, fingerprint: str, counterexample: Path) -> tuple[bool | None, str]:
    from ranum_falsify.api.instances import replay_claim  # imports torch

    return replay_claim(instance, fingerprint, counterexample)


def _name(first: Path, second: Path) -> tuple[str, str]:
    """Return what to call two results: their names, or their paths where these are equal."""
    return (first.name, second.name) if first.name != second.name else (str(first), str(second))
