"""Run models for `kernellib.sessions`: a module of its own, because emulated imports take long."""

from __future__ import annotations

import pickle
import sys
from typing import Any

from kernellib.sessions import native


def answer(sessions: list[Any], what: Any, argument: Any) -> Any:
    """Load a model and return its number, or run the one of a number; return an error as text."""
    try:
        if isinstance(what, bytes):
            sessions.append(native(what, argument))
            return len(sessions) - 1
        return sessions[what](argument)
    except Exception as error:  # ONNX Runtime names no class
        return str(error)


def main() -> None:
    sessions: list[Any] = []
    while True:
        try:
            what, argument = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answer(sessions, what, argument), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
