"""Properties to ask about models."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dnnv.properties import Expression
from dnnv.properties.expressions import Network

from ranum_falsify.errors import PropertyError, UsageError, is_out_of_memory
from ranum_falsify.file_content import sha256
from ranum_falsify.network.fingerprint import Fingerprint
from ranum_falsify.network.resource_limits import TOO_MUCH_MEMORY
from ranum_falsify.properties.language.parse import is_vnnlib, parse, parse_text
from ranum_falsify.properties.language.walk import subexpressions

_TEXT = "<text>"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Property:
    """A property that was parsed.

    Attributes:
        phi: The property, its parameters applied.
        name: What errors call it: its file.
        source: Where it comes from, with a hash of its text; None for what `check` asks.
        path: Its file, None for a text.
        parameters: Values of its parameters as text, as given.
        vnnlib: Whether it is VNN-LIB even if its name does not say so.
        is_query: Whether it is VNN-LIB, of which there may be no solution whatever networks compute.
        seconds: How long parsing took.
    """

    phi: Expression
    name: str
    source: Fingerprint | None = None
    path: Path | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    vnnlib: bool = False
    is_query: bool = False
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"Property({self.name!r})"


PropertyLike = Property | str | Path
"""What functions take for a property: one that is loaded, a path, or a text."""


def load_property(
    source: str | Path, *, parameters: Mapping[str, object] | None = None, vnnlib: bool | None = None
) -> Property:
    """Parse a property: a path, or a text.

    A DNNP property is a program: it runs with all your rights, so load only those that you trust. VNN-LIB is data.

    Args:
        source: A path; or a text, which has several lines or begins with `(` or `;`. A text that begins like that is
            VNN-LIB, any other DNNP.
        parameters: Values of the property's `Parameter`s.
        vnnlib: Whether it is VNN-LIB; by its suffix, or by how the text begins, if None.

    Raises:
        PropertyError: It cannot be read, is not a property, or a parameter is unknown, missing or of the wrong type.
    """
    began = time.monotonic()
    texts = {name: str(value) for name, value in (parameters or {}).items()}
    is_text = isinstance(source, str) and ("\n" in source or source.startswith(("(", ";")))
    path = Path(_TEXT if is_text else source)
    try:
        if is_text:
            assert isinstance(source, str)
            known = source.lstrip().startswith(("(", ";")) if vnnlib is None else vnnlib
            phi = parse_text(source, path, texts, vnnlib=known)
            digest = hashlib.sha256(source.encode()).hexdigest()
        else:
            known = is_vnnlib(path) if vnnlib is None else vnnlib
            phi = parse(path, texts, vnnlib=known)
            digest = sha256(path)
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise PropertyError(f"{path}: the property {TOO_MUCH_MEMORY}") from error
        raise
    return Property(
        phi=phi,
        name=str(path),
        source=Fingerprint(path=str(path), sha256=digest),
        path=None if is_text else path,
        parameters=texts,
        vnnlib=bool(vnnlib),
        is_query=known,
        seconds=time.monotonic() - began,
    )


def property_of(source: PropertyLike) -> Property:
    """Return a property, parsed unless it was."""
    return source if isinstance(source, Property) else load_property(source)


def network_of(prop: Property) -> str:
    """Return the name of a property's only network.

    Raises:
        UsageError: It has none, or several.
    """
    names = sorted({part.identifier for part in subexpressions(prop.phi) if isinstance(part, Network)})
    if len(names) != 1:
        raise UsageError(
            f"{prop.name}: the property names {len(names)} networks ({', '.join(names)}); "
            "give the models by name, as {'N': model}"
        )
    return str(names[0])
