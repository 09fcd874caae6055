"""A change becomes an inventory edit, a unit drop-in, a diff."""
