"""Building blocks of rows."""
