"""Rules of normalisations: by a mean and a deviation, by a norm."""

__all__: list[str] = []
