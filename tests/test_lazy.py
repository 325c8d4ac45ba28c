"""Attributes that are computed when they are first read."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ranum_falsify.lazy import cached_property


def test_threads_do_not_wait_for_attributes_of_other_objects() -> None:
    both = threading.Barrier(2)

    def depth_of(thing: One | Other) -> int:
        if thing.inner is None:
            return 1
        both.wait(timeout=60)
        return 1 + thing.inner.depth

    @dataclass
    class One:
        inner: Other | None = None
        depth = cached_property(depth_of)

    @dataclass
    class Other:
        inner: One | None = None
        depth = cached_property(depth_of)

    def read(outer: One | Other) -> None:
        found.append(outer.depth)

    found: list[int] = []
    threads = [threading.Thread(target=read, args=(x,), daemon=True) for x in (One(Other()), Other(One()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert found == [2, 2]
