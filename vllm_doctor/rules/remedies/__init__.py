"""Changes that several rules offer, each with the value that the figures give."""
