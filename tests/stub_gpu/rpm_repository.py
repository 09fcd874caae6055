#!/usr/bin/env python3
"""Build a dnf repository shaped like NVIDIA's for EL: names, epoch, versions, streams and dependencies, no content.

usage: rpm_repository.py FOLDER [VERSION …]      (needs rpmbuild, createrepo_c and modifyrepo_c)

Quirks that are kept: epoch 3; a branch is a module stream and a full version is not a stream; metas depend with `>=`;
FOLDER-base is the distribution's repository and FOLDER-epel, which epel-release defines, has DKMS; with RED_HAT set the
distribution has no epel-release. EL 8 has no kernel-devel-matched. A newer kernel than the installed one is there.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

EL = os.environ.get("EL", "9")
VERSIONS = ("580.65.06", "580.105.08", "595.71.05")

HEAD = """
Name: {name}
Epoch: {epoch}
Version: {version}
Release: 1.el{el}
Summary: stub
License: none
AutoReqProv: no
%description
stub
"""

MODULE = """
for build in /lib/modules/*/build; do
  folder="${{build%/build}}/updates/dkms"; mkdir -p "$folder"
  printf 'version={version}\\nlicense={license}\\n' > "$folder/nvidia.ko"
done
"""


# The libraries of tests/nvml_sim come with the package that has the real ones; the host is a Debian below.
BRINGS = """
for name in libnvidia-ml.so.1 libcuda.so.1; do
  ln -sf /usr/local/lib/nvml-sim/$name /usr/lib/x86_64-linux-gnu/$name
done
ldconfig
"""


def package(name, requires=(), files=(), post="", **fields):
    """One subpackage of a spec."""
    lines = [f"%package -n {name}", f"Summary: {name}", "AutoReqProv: no"]
    lines += [f"Requires: {need}" for need in requires]
    lines += [f"{key}: {value}" for key, value in fields.items()]
    lines += [f"%description -n {name}", "stub", f"%files -n {name}", *files]
    if post:
        lines += [f"%post -n {name}", post]
    return "\n".join(lines) + "\n"


def unit(name):
    """Install commands for a unit whose program only sleeps."""
    path = f"%{{buildroot}}/usr/lib/systemd/system/{name}.service"
    text = f"[Unit]\\nDescription={name}\\n[Service]\\nExecStart=/bin/sleep infinity\\n"
    text += "[Install]\\nWantedBy=multi-user.target\\n"
    return f"mkdir -p $(dirname {path}); printf '{text}' > {path}"


def driver(version):
    """(spec, names) of one driver release."""
    exact, atleast = f"= 3:{version}", f">= 3:{version}"
    library = f"/usr/lib64/libnvidia-ml.so.{version}"
    daemons = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-imex")
    parts = {
        "nvidia-driver-cuda": {
            "requires": [
                f"nvidia-driver-cuda-libs {exact}",
                f"nvidia-persistenced {exact}",
                f"nvidia-kmod-common {atleast}",
            ]
        },
        "nvidia-driver-cuda-libs": {"files": [library], "post": BRINGS},
        "nvidia-kmod-common": {},
        "nvidia-modprobe": {},
        "kmod-nvidia-open-dkms": {
            "requires": ["dkms", f"nvidia-kmod-common {exact}"],
            "Conflicts": "kmod-nvidia-latest-dkms",
            "post": MODULE.format(version=version, license="Dual MIT/GPL"),
        },
        "kmod-nvidia-latest-dkms": {
            "requires": ["dkms", f"nvidia-kmod-common {exact}"],
            "Conflicts": "kmod-nvidia-open-dkms",
            "post": MODULE.format(version=version, license="NVIDIA"),
        },
        "nvidia-open": {"requires": [f"nvidia-driver-cuda {atleast}", f"kmod-nvidia-open-dkms {atleast}"]},
        **{name: {"files": [f"/usr/lib/systemd/system/{name}.service"]} for name in daemons},
    }
    install = [f"mkdir -p %{{buildroot}}/usr/lib64; : > %{{buildroot}}{library}", *map(unit, daemons)]
    spec = HEAD.format(el=EL, name="nvidia-stub", epoch=3, version=version)
    spec += "".join(package(name, **parts[name]) for name in parts)
    return spec + "%install\n" + "\n".join(install) + "\n", list(parts)


def base(kernel):
    """What the rest of the system would bring: a shell to depend on, the lock plugin, kernel headers."""
    build = f"/lib/modules/{kernel}/build"
    spec = HEAD.format(el=EL, name="stub", epoch=0, version="9.5") + package("python3-dnf-plugin-versionlock")
    spec += package("stub-base", Provides="/bin/sh, /usr/bin/sh, /bin/bash")
    spec += package("kernel-devel", files=[f"{build}/Makefile"], Provides=f"kernel-devel-{kernel}")
    if int(EL) >= 9:
        spec += package("kernel-devel-matched", requires=["kernel-devel"])
    return spec + f"%install\nmkdir -p %{{buildroot}}{build}; : > %{{buildroot}}{build}/Makefile\n"


def core(version):
    """A kernel."""
    return HEAD.format(el=EL, name="stub-kernel", epoch=0, version=version) + package("kernel-core")


def epel(folder):
    """The definition of EPEL, and DKMS in it."""
    file = "/etc/yum.repos.d/epel.repo"
    text = f"[epel]\\nname=epel\\nbaseurl=file://{folder}\\ngpgcheck=0\\n"
    spec = HEAD.format(el=EL, name="stub-epel", epoch=0, version="9.5")
    spec += package("dkms") + package("epel-release", files=[file])
    return spec + f"%install\nmkdir -p $(dirname %{{buildroot}}{file}); printf '{text}' > %{{buildroot}}{file}\n"


def build(folder, name, spec):
    """Run rpmbuild on one spec."""
    path = folder / f"{name}.spec"
    path.write_text(spec)
    argv = ["rpmbuild", "-bb", "--quiet", "--define", f"_rpmdir {folder}", "--define", "_build_id_links none", path]
    subprocess.run([*argv[:-1], "--define", "__os_install_post %{nil}", path], check=True)


def streams(versions, names):
    """The modules document: one stream a branch."""
    out = []
    for branch in sorted({version.split(".")[0] for version in versions}):
        rpms = [
            f"        - {name}-3:{version}-1.el{EL}.x86_64"
            for version in versions
            if version.startswith(branch)
            for name in names
        ]
        head = f"""---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "{branch}-open"
  version: 20261120
  context: stub{branch}
  arch: x86_64
  summary: stub
  description: stub
  license:
    module: [MIT]
  profiles:
    default:
      rpms: [nvidia-open]
  artifacts:
    rpms:
"""
        out.append(head + "\n".join(rpms) + "\n...\n")
    return "".join(out)


def beside(folder):
    """The distribution's own repository and EPEL, as FOLDER-base and FOLDER-epel."""
    system, extra = folder.with_name(folder.name + "-base"), folder.with_name(folder.name + "-epel")
    for place in (system, extra):
        place.mkdir(parents=True, exist_ok=True)
    build(system, "base", base(os.environ.get("KERNEL", platform.release())))
    for version in ("5.14.1", "5.14.2"):
        build(system, version, core(version))
    build(extra, "epel", epel(extra))
    release = next(extra.rglob("epel-release-*.rpm"))
    shutil.copy(release, extra / f"epel-release-latest-{EL}.noarch.rpm")
    if not os.environ.get("RED_HAT"):
        shutil.copy(release, system)
    for place in (system, extra):
        subprocess.run(["createrepo_c", "--quiet", place], check=True)


def main():
    """Build everything and its index."""
    folder = Path(sys.argv[1])
    versions = sys.argv[2:] or VERSIONS
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for version in versions:
        spec, names = driver(version)
        build(folder, version, spec)
    beside(folder)
    subprocess.run(["createrepo_c", "--quiet", folder], check=True)
    if int(EL) < 10:  # EL 10 has no module streams
        (folder / "modules.yaml").write_text(streams(versions, names))
        subprocess.run(["modifyrepo_c", "--mdtype=modules", folder / "modules.yaml", folder / "repodata"], check=True)


if __name__ == "__main__":
    main()
