"""The command `completion`: what completes commands and options in a shell."""

from __future__ import annotations

from ranum_falsify.cli.commands import COMMANDS, MAIN
from ranum_falsify.cli.front import make_parser
from ranum_falsify.cli.options.completion import CompletionOptions
from ranum_falsify.cli.output import say


def run(options: CompletionOptions) -> int:
    """Print the script."""
    app = make_parser(MAIN).app
    for name in COMMANDS:
        if name != MAIN:
            *above, last = name.split(" ")
            owner = app
            for word in above:
                if word not in [*owner]:
                    owner.command(type(app)(name=word))
                owner = owner[word]
            owner.command(make_parser(name).app, name=last)
    say(app.generate_completion(shell=options.shell).splitlines())
    return 0
