"""The command line: one module per command, the writers of reports beside them.

Only this package prints, reads arguments, or knows exit statuses.  Nothing here imports torch before the
arguments are known to be good, because that alone takes seconds.
"""

from ranum_falsify.cli.app import main, run

__all__ = ["main", "run"]
