"""Cells: bounds of any elementwise expression of one tensor, by the ordinary rules on small parts of its range."""

__all__: list[str] = []
