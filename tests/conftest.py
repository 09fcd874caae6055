"""Each test begins in the same surroundings, whoever starts it."""

import os

# readline, which pytest loads, tells its width to every process that xdist starts; a reader's shell may do the same.
# What the doctor prints is laid out for such a width, and the tests hold it as it is without.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
