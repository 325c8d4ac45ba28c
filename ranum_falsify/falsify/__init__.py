"""Search for inputs on which an operator produces NaN or infinity, and their replay."""

__all__: list[str] = []
