"""What several rules ask first: which fault it is, and the figures that it was told with."""
