"""Memory that is free goes back when much has been made and much has grown."""

from types import SimpleNamespace

import psutil
import pytest

from ranum_falsify.process import heap as module


def test_memory_goes_back_once_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    held, trimmed = [0], list[int]()
    monkeypatch.setattr(psutil, "Process", lambda: SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=held[0])))
    heap = module._Heap()
    heap._trim = trimmed.append
    look, room = module._LOOK, module._ROOM
    for rss, made, times in [
        (room // 2, look, 0),
        (2 * room, look - 1, 0),  # it is not looked at yet
        (2 * room, 1, 1),
        (3 * room, look, 1),  # that much was left the last time
        (room, look, 1),
        (3 * room, look, 2),
    ]:
        held[0] = rss
        heap.note(made)
        assert len(trimmed) == times
