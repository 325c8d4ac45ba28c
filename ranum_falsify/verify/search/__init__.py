"""Search for inputs on which an operator produces NaN or infinity, or on which a property fails."""
