#!/usr/bin/env python3
"""make sbom: what is in the doctor's environment and in each vLLM release, as CycloneDX, from the locks alone.

One file a lock in build/sbom. A package is listed with the digests of all files that the lock lets it come as (a wheel
for each Python and processor); which of them a host took depends on the host. Licences are not in the locks, and so not
in here. The same locks make the same file.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from locked import DOCTOR, REPO, Pin, pins, releases
from packageurl import PackageURL

from vllm_doctor import __version__

OUT = REPO / "build" / "sbom"


def subjects() -> Iterator[tuple[str, str, Path]]:
    """Name and version of what is described, and its lock."""
    yield "vllm-doctor", __version__, DOCTOR
    for lock in releases():
        yield "vllm-release", lock.stem, lock


def component(pin: Pin) -> Component:
    """A pin as a component; a marker says on which hosts it is installed at all."""
    purl = PackageURL("pypi", name=pin.name.replace("_", "-"), version=pin.version)
    return Component(
        type=ComponentType.LIBRARY,
        name=pin.name,
        version=pin.version,
        purl=purl,
        bom_ref=str(purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pin.sha256],
        properties=[Property(name="vllm-doctor:marker", value=pin.marker)] if pin.marker else [],
    )


def document(name: str, version: str, lock: Path) -> str:
    """The JSON text. The number of the document follows from the lock, and it bears no date."""
    root = Component(type=ComponentType.APPLICATION, name=name, version=version, bom_ref=f"{name}@{version}")
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, lock.read_text(encoding="utf-8")))
    bom.metadata.component = root
    parts = [component(pin) for pin in pins(lock)]
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    told = json.loads(JsonV1Dot6(bom).output_as_string())
    del told["metadata"]["timestamp"]
    return json.dumps(told, indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Write them all."""
    OUT.mkdir(parents=True, exist_ok=True)
    for name, version, lock in subjects():
        path = OUT / f"{name}-{version}.cdx.json"
        path.write_text(document(name, version, lock), encoding="utf-8")
        print(f"{path.relative_to(REPO)}: {len(pins(lock))} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
