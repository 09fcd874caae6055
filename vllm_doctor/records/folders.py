"""Folders of the doctor on a host; role vllm_doctor makes them."""

from pathlib import Path

STATE = Path("/var/lib/vllm-doctor")
