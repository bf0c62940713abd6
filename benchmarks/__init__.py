"""Scripts behind every number in the README."""
