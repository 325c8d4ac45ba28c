"""The child process of `ranum_falsify.verify.replay.replayer`: ONNX Runtime, inspecting every tensor.

Commands: ``load`` ({"path"} and the fields of `Setting`, with the fields of `Operators` in place of that), ``run``,
    ``outputs`` and ``plain`` (the inputs by name), ``tell`` (many inputs by name, and seconds), ``forget``,
    whose answer is whether the next model runs as it would in a new process.

It starts in a fraction of a second, because it imports neither torch nor the package around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort

from .levels import Levels
from .model import InspectedModel
from .operators import Operators
from .session import Setting

__all__ = ["InspectedModel", "Levels", "Operators", "Setting", "service"]


def service() -> Callable[[str, Any], Any]:
    """Return the function that answers requests; see `ranum_falsify.process.child_server`."""
    ort.set_default_logger_severity(4)
    np.seterr(all="ignore")
    loaded: list[Levels] = []

    def answer(command: str, argument: Any) -> Any:
        if command == "load":
            operators = Operators(**argument.pop("operators"))
            loaded[:] = [Levels(argument.pop("path"), Setting(operators=operators, **argument))]
            return None
        if command == "forget":
            # Sessions of one process draw the same numbers.
            is_new = not any(levels.is_random for levels in loaded)
            loaded.clear()
            return is_new
        if not loaded:
            raise RuntimeError("no model is loaded")
        levels = loaded[0]
        if command == "tell":
            return levels.find_revealing(*argument)
        answers = {"run": levels.run, "outputs": levels.outputs, "plain": levels.run_plain}
        return answers[command](argument)

    return answer
