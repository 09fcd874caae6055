"""The tools run before there is an environment, so they are scripts in a folder and not a package."""

import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
