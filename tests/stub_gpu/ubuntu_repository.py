#!/usr/bin/env python3
"""Build repositories shaped like NVIDIA's for Ubuntu and like Canonical's archive: names and dependencies, no content.

usage: ubuntu_repository.py FOLDER_OF_NVIDIA FOLDER_OF_CANONICAL

Quirks that are kept: in NVIDIA's, all names carry the branch up to 580 and none does from 590 on, the firmware carries
the full version in its name, versions end in -1ubuntu1. In Canonical's, names keep their numbers, versions end in
-0ubuntu0, and transitional packages move a host: nvidia-headless-570-server-open installs 580, and 590's installs 595.
"""

import sys
from pathlib import Path

from repository import (
    BRINGS,
    DKMS_POSTINST,
    DKMS_PRERM,
    FABRIC,
    LIB,
    PERSISTENCED,
    SLEEPER,
    Package,
    host_kernels,
    machine,
    pinning,
    unit,
    write,
)

VERSIONS = ("580.65.06", "580.105.08", "595.71.05")
DAEMON = {"/usr/bin/nvidia-persistenced": SLEEPER, **unit("nvidia-persistenced", PERSISTENCED)}


def alone(name):
    """Only one package that provides this can be installed."""
    return {"Provides": name, "Conflicts": name, "Replaces": name}


def driver(version, deb, suffix, dkms):
    """The packages of one driver; suffix follows every name, `dkms` names the modules' packages by flavour."""
    exact, library = f"(= {deb})", {f"{LIB}/libnvidia-ml.so.{version}": "", f"{LIB}/libcuda.so.{version}": ""}
    yield Package(f"libnvidia-cfg1{suffix}", deb, "", None, None, **alone("libnvidia-cfg1-any"))
    yield Package(
        f"libnvidia-compute{suffix}",
        deb,
        f"libnvidia-cfg1{suffix} {exact}",
        library,
        {"postinst": BRINGS},
        **alone("libcuda1"),
    )
    smi = {"/usr/bin/nvidia-smi": "#!/bin/sh\ncat /proc/driver/nvidia/version\n"}
    yield Package(f"nvidia-utils{suffix}", deb, f"libnvidia-compute{suffix} {exact}", smi, **alone("nvidia-utils-any"))
    for flavour, licence in (("open", "Dual MIT/GPL"), ("proprietary", "NVIDIA")):
        scripts = {"postinst": DKMS_POSTINST.format(version=version, license=licence), "prerm": DKMS_PRERM}
        needs = f"dkms, nvidia-kernel-common{suffix} {exact}"
        yield Package(dkms[flavour], deb, needs, scripts=scripts, **alone("nvidia-dkms-kernel"))


def fabric(name, version, deb):
    """The fabric manager, whose package has a number in Canonical's archive and none in NVIDIA's repository."""
    program = {"/usr/bin/nv-fabricmanager": FABRIC.format(version=version)}
    return Package(name, deb, "", {**program, **unit("nvidia-fabricmanager", "/usr/bin/nv-fabricmanager")})


def nvidia(version):
    """One driver as NVIDIA's repository has it."""
    deb, branch = f"{version}-1ubuntu1", version.split(".")[0]
    old = int(branch) < 590
    suffix = f"-{branch}" if old else ""
    dkms = {"open": f"nvidia-dkms{suffix}-open", "proprietary": f"nvidia-dkms{suffix}"}
    yield from driver(version, deb, suffix, dkms)
    firmware = f"nvidia-firmware{suffix}-{version}" if old else "nvidia-firmware"
    yield Package(firmware, deb)
    yield Package(
        f"nvidia-kernel-common{suffix}", deb, f"{firmware} (= {deb})", None, None, **alone("nvidia-kernel-common-any")
    )
    utils = f"libnvidia-compute{suffix} (= {deb}), nvidia-persistenced (>= {version})"
    yield Package(f"nvidia-compute-utils{suffix}", deb, utils, None, None, **alone("nvidia-compute-utils-any"))
    yield Package("nvidia-persistenced", deb, "", DAEMON)
    yield fabric("nvidia-fabricmanager", version, deb)
    parts = [f"nvidia-utils{suffix}", f"nvidia-compute-utils{suffix}"]
    for meta, flavour in (("nvidia-open", "open"), ("cuda-drivers", "proprietary")):
        needs = ", ".join(f"{name} (>= {branch})" for name in [*parts, dkms[flavour]])
        yield Package(f"{meta}{suffix}", deb, needs)
        if old:
            yield Package(meta, deb, f"{meta}-{branch} (>= {version})")
    yield from pinning(version, deb)


def canonical(version):
    """One driver as Canonical's archive has it, with the transitional packages of the branch before."""
    deb, branch = f"{version}-0ubuntu0.24.04.1", version.split(".")[0]
    server = f"-{branch}-server"
    dkms = {"open": f"nvidia-dkms{server}-open", "proprietary": f"nvidia-dkms{server}"}
    yield from driver(version, deb, server, dkms)
    yield Package(f"nvidia-kernel-common{server}", deb, "", None, None, **alone("nvidia-kernel-common-any"))
    utils = f"libnvidia-compute{server} (= {deb})"
    yield Package(f"nvidia-compute-utils{server}", deb, utils, DAEMON, **alone("nvidia-compute-utils-any"))
    yield fabric(f"nvidia-fabricmanager-{branch}", version, deb)
    before = {"580": "570", "595": "590"}[branch]
    for flavour, tail in (("open", "-open"), ("proprietary", "")):
        name = f"nvidia-headless{server}{tail}"
        yield Package(name, deb, f"{dkms[flavour]} (= {deb}), nvidia-compute-utils{server} (= {deb})")
        yield Package(f"nvidia-headless-{before}-server{tail}", deb, name)
    yield Package(f"nvidia-utils-{before}-server", deb, f"nvidia-utils{server}")


def main():
    """Build both."""
    theirs = [package for version in VERSIONS for package in nvidia(version)]
    common = [*machine(host_kernels()), Package("linux-headers-generic", "99-1", "linux-headers-amd64")]
    write(Path(sys.argv[1]), [*theirs, *common])
    write(Path(sys.argv[2]), [*(p for v in VERSIONS[1:] for p in canonical(v)), *common], origin="Ubuntu")


if __name__ == "__main__":
    main()
