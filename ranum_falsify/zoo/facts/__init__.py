"""Facts about the programs besides their models, by model or defect."""

__all__: list[str] = []
