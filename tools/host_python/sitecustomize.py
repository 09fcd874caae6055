"""Python on a throw-away host looks seldom for garbage, and not once more at its end.

vLLM imports 5,500 modules in each of three processes, and at every start the collector walked all of it again and
again: 1.2 of 6 s of a processor for each, and 2.7 s more where a process ends by itself. What is referred to by nothing
goes at once as ever; only cycles wait. In Debian's place of this name, which has nothing but a hook of apport's: the
one file that Python of a virtual environment reads as well.
"""

import atexit
import gc

gc.set_threshold(100_000, 50, 100)
atexit.register(gc.freeze)  # the first to be registered is the last to be done
