"""A forward pass at run time that asks for more than was left."""
