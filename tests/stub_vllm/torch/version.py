"""What torch says of itself."""

__version__ = "2.13.0+stub"
cuda = "13.0"
