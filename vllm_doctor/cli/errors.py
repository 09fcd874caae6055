"""Problems that the person at the terminal can mend."""


class UsageProblem(Exception):  # noqa: N818 - it names what the user meets
    """Bad input: what, where, found, needed, do this. Printed without a traceback, exit 2."""
