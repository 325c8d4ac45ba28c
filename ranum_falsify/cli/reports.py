"""Reports of runs, in the forms and places that options say."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ranum_falsify.cli.options.search import AskOptions
from ranum_falsify.cli.output import say_form
from ranum_falsify.cli.paths import list_reports
from ranum_falsify.cli.streams import verdict_stands
from ranum_falsify.results.forms import RUN_MAKERS, SUITE_MAKERS
from ranum_falsify.saving import save_together
from ranum_falsify.suite.record import InstanceRecord


def write_reports(
    options: AskOptions, list_records: Callable[[], Iterable[InstanceRecord]], *, of_suite: bool = False
) -> None:
    """Print or write the reports of runs; a failure is told and does not prevent the others.

    Args:
        options: Which.
        list_records: Returns what the runs came to.
        of_suite: Whether they are several.
    """
    makers = SUITE_MAKERS if of_suite else RUN_MAKERS
    if options.form != "text":
        with verdict_stands():
            say_form(makers[options.form](list_records()))
    for option, path in list_reports(options).items():
        with verdict_stands():
            save_together({path: makers[option.removeprefix("--")](list_records())})
