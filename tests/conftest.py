"""Each test begins in the same surroundings, whoever starts it."""

import os
import signal

# readline, which pytest loads, tells its width to every process that it starts; a reader's shell may do the same.
# What the doctor prints is laid out for such a width, and the tests hold it as it is without.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# A shell without job control starts `make test &` with Ctrl-C ignored, and every child inherits that: tests that press
# it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
