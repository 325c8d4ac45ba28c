"""Attributes that are computed when they are first read."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property  # noqa: TID251
else:

    class cached_property(functools.cached_property):  # noqa: TID251
        """That of Python 3.12: without the lock by which an attribute of one object waits for that of another.

        Two threads, each of which reads the attribute that the other computes, waited for each other forever.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Return the attribute's value, the same one to all threads."""
            if instance is None:
                return self
            known = vars(instance)
            if self.attrname not in known:
                return known.setdefault(self.attrname, self.func(instance))
            return known[self.attrname]
