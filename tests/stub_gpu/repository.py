#!/usr/bin/env python3
"""Build, on a Debian host, a repository shaped like NVIDIA's for debian12: names, versions, dependencies, no content.

usage: repository.py FOLDER [VERSION …]

Quirks that are kept, each somebody's outage:
* metas depend with `>=` on the branch's first release, so `cuda-drivers-580` alone installs the newest branch
  (NVIDIA forum 353805);
* up to 580 metas carry the branch in their name, from 590 on they do not, and the default rolls to the newest;
* `nvidia-driver-pinning-BRANCH` and `-VERSION` put a preferences file with priority 1000 in place;
* `nvidia-fabricmanager` and `nvidia-imex` have had no branch in their name since 580, and the newest wins;
* the open and the proprietary modules conflict.
"""

import gzip
import hashlib
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VERSIONS = ("580.65.06", "580.105.08", "590.48.01", "595.71.05")
FIRST = {"580": "580.65.06", "590": "590.44.01", "595": "595.45.04"}
LIB = "/usr/lib/x86_64-linux-gnu"

DKMS_POSTINST = """#!/bin/sh
set -e
[ ! -e /etc/stub-machine/power-cut ] || pkill -KILL -x 'apt-get|dpkg'
for build in /lib/modules/*/build; do
  folder="${{build%/build}}/updates/dkms"; mkdir -p "$folder"
  printf 'version={version}\\nlicense={license}\\n' > "$folder/nvidia.ko"
done
update-initramfs -u
"""
DKMS_PRERM = "#!/bin/sh\nset -e\nrm -f /lib/modules/*/updates/dkms/nvidia.ko\n"
# The libraries of tests/nvml_sim come with the package that has the real ones.
BRINGS = f"""#!/bin/sh
set -e
for name in libnvidia-ml.so.1 libcuda.so.1; do
  [ ! -e /usr/local/lib/nvml-sim/$name ] || ln -sf /usr/local/lib/nvml-sim/$name {LIB}/$name
done
ldconfig
"""
SLEEPER = "#!/bin/sh\nexec sleep infinity\n"
# As NVIDIA's own packages and Ubuntu's start it.
PERSISTENCED = "/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose"
# The real ones refuse to start beside a driver of another version.
SAME = """#!/bin/sh
grep -q " {version} " /proc/driver/nvidia/version ||
  {{ echo "{version}: driver version mismatch" >&2; exit 1; }}
"""
# On NVLink 5 boards (no switch on the bus) the start script wants the management device and starts the subnet manager.
FABRIC = (
    SAME
    + """if ! grep -qs 0x0680 /sys/bus/pci/devices/*/class; then
  [ -e /sys/module/ib_umad ] || {{ echo "Kernel module ib_umad has not been loaded" >&2; exit 1; }}
  /opt/nvidia/nvlsm/sbin/nvlsm &
fi
exec sleep infinity
"""
)


class Package:
    """One binary package: control fields, files and maintainer scripts."""

    def __init__(self, name, version, depends="", files=None, scripts=None, **fields):
        self.name, self.version, self.depends = name, version, depends
        self.files, self.scripts, self.fields = files or {}, scripts or {}, fields

    def build(self, folder):
        """Write the .deb; returns its stanza of the Packages file."""
        tree = folder / "build" / f"{self.name}_{self.version}"
        for path, text in self.files.items():
            file = tree / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755 if "/bin/" in path or "/sbin/" in path else 0o644)
        control = tree / "DEBIAN"
        control.mkdir(parents=True, exist_ok=True)
        lines = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "amd64",
            "Maintainer": "Stub <stub@example.org>",
            "Section": "contrib/metapackages",
            "Description": "stub without content",
        }
        if self.depends:
            lines["Depends"] = self.depends
        lines.update({key.replace("_", "-"): value for key, value in self.fields.items()})
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (control / "control").write_text(text)
        for name, script in self.scripts.items():
            (control / name).write_text(script)
            (control / name).chmod(0o755)
        deb = folder / f"{self.name}_{self.version.replace(':', '%3a')}_amd64.deb"
        subprocess.run(
            ["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, deb], check=True, stdout=subprocess.DEVNULL
        )
        data = deb.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        return f"{text}Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {digest}\n"


def unit(name, program):
    """A systemd unit as such a package ships it."""
    return {
        f"/lib/systemd/system/{name}.service": f"[Unit]\nDescription={name}\n[Service]\nExecStart={program}\n"
        "[Install]\nWantedBy=multi-user.target\n"
    }


def driver(version):
    """All packages of one driver release."""
    deb, branch = f"{version}-1", version.split(".")[0]
    old = int(branch) < 590
    floor = FIRST[branch]
    exact = f"(= {deb})"

    def metas(name, kernel):
        needs = ("nvidia-driver", "nvidia-driver-cuda", kernel, "nvidia-settings", "nvidia-xconfig")
        wide = ", ".join(f"{need} (>= {floor})" for need in needs)
        if old:
            yield Package(f"{name}-{branch}", deb, wide)
            yield Package(name, deb, f"{name}-{branch} (>= {version})")
        else:
            yield Package(name, deb, wide)

    yield from metas("cuda-drivers", "nvidia-kernel-dkms")
    yield from metas("nvidia-open", "nvidia-kernel-open-dkms")
    yield Package("nvidia-driver", deb, f"nvidia-driver-libs {exact}, nvidia-kernel-support (>= {version})")
    yield Package("nvidia-driver-libs", deb, f"libnvidia-glcore {exact}")
    yield Package("libnvidia-glcore", deb)
    yield Package(
        "nvidia-driver-cuda",
        deb,
        f"libcuda1 {exact}, libnvidia-ml1 {exact}, nvidia-persistenced (>= {version}), nvidia-modprobe (>= {version}), "
        f"libnvidia-cfg1 {exact}",
        {"/usr/bin/nvidia-smi": "#!/bin/sh\ncat /proc/driver/nvidia/version\n"},
    )
    library = {f"{LIB}/libcuda.so.{version}": ""}
    yield Package("libcuda1", deb, f"libnvidia-ptxjitcompiler1 {exact}", library, {"postinst": BRINGS})
    yield Package("libnvidia-ptxjitcompiler1", deb)
    yield Package("libnvidia-cfg1", deb)
    yield Package("libnvidia-ml1", deb, "", {f"{LIB}/libnvidia-ml.so.{version}": ""}, {"postinst": BRINGS})
    yield Package(
        "nvidia-persistenced",
        deb,
        f"libnvidia-cfg1 (>= {version})",
        {"/usr/bin/nvidia-persistenced": SLEEPER, **unit("nvidia-persistenced", PERSISTENCED)},
    )
    yield Package("nvidia-modprobe", deb)
    yield Package("nvidia-settings", deb)
    yield Package("nvidia-xconfig", deb)
    yield Package("nvidia-kernel-support", deb, f"firmware-nvidia-gsp {exact}, nvidia-modprobe (>= {version})")
    yield Package("firmware-nvidia-gsp", deb, "", {f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin": "0" * 65536})
    for kind, licence, other in (("-open", "Dual MIT/GPL", ""), ("", "NVIDIA", "-open")):
        scripts = {"postinst": DKMS_POSTINST.format(version=version, license=licence), "prerm": DKMS_PRERM}
        yield Package(
            f"nvidia-kernel{kind}-dkms",
            deb,
            f"dkms, nvidia-kernel-support (>= {version})",
            scripts=scripts,
            Conflicts=f"nvidia-kernel{other}-dkms",
        )
    yield Package(
        "nvidia-fabricmanager",
        deb,
        "",
        {
            "/usr/bin/nv-fabricmanager": FABRIC.format(version=version),
            **unit("nvidia-fabricmanager", "/usr/bin/nv-fabricmanager"),
        },
    )
    yield Package(
        "nvidia-imex",
        deb,
        "",
        {
            "/usr/bin/nvidia-imex": SAME.format(version=version) + "exec sleep infinity\n",
            "/etc/nvidia-imex/nodes_config.cfg": "",
            **unit("nvidia-imex", "/usr/bin/nvidia-imex"),
        },
    )
    yield from pinning(version, deb)


def pinning(version, deb):
    """The packages that choose a branch or a version by a preferences file."""
    branch = version.split(".")[0]
    names = (
        "cuda-drivers* nvidia-open* nvidia-driver* nvidia-kernel* nvidia-fabricmanager* nvidia-imex* src:nvidia*:any"
    )
    for suffix, pattern in ((version, f"{version}-*"), (branch, f"{branch}.*")):
        text = f"Package: {names}\nPin: version {pattern}\nPin-Priority: 1000\n"
        yield Package(
            f"nvidia-driver-pinning-{suffix}",
            deb,
            "",
            {"/etc/apt/preferences.d/nvidia-driver-pin": text},
            Provides="nvidia-driver-pinning",
            Conflicts="nvidia-driver-pinning",
            Replaces="nvidia-driver-pinning",
        )


def machine(kernels):
    """The kernels of the host with their headers, DKMS without a compiler, the NVLink subnet manager, a toolkit."""
    for kernel in kernels:
        yield Package(f"linux-headers-{kernel}", "99-1", "", {f"/lib/modules/{kernel}/build/Makefile": ""})
    yield Package("linux-headers-amd64", "99-1", f"linux-headers-{kernels[-1]}")
    yield Package("dkms", "99-1")
    yield Package("nvlsm", "2025.06.11-1", "", {"/opt/nvidia/nvlsm/sbin/nvlsm": "#!/bin/sh\nsleep infinity\n"})
    for version, name in (("13.0.2-1", "13-0"), ("12.8.1-1", "12-8")):
        folder = "/usr/local/cuda-" + name.replace("-", ".")
        nvcc = f"#!/bin/sh\necho 'Cuda compilation tools, release {name.replace('-', '.')}'\n"
        yield Package(f"cuda-toolkit-{name}", version, f"cuda-nvcc-{name} (>= {version})")
        yield Package(f"cuda-nvcc-{name}", version, "", {f"{folder}/bin/nvcc": nvcc})
        yield Package(f"cuda-compat-{name}", version)
        yield Package("cuda", version, f"cuda-toolkit-{name} (>= {version}), cuda-drivers")


def write(folder, packages, origin="NVIDIA"):
    """Build the packages and an index with this origin."""
    folder.mkdir(parents=True, exist_ok=True)
    by_name = {(package.name, package.version): package for package in packages}
    with ThreadPoolExecutor(4) as pool:
        stanzas = list(pool.map(lambda package: package.build(folder), by_name.values()))
    index = "\n".join(stanzas)
    (folder / "Packages").write_text(index)
    (folder / "Packages.gz").write_bytes(gzip.compress(index.encode()))
    # hashes of the index, so that apt accepts the folder as a repository; unsigned, the source says [trusted=yes]
    lines = [f"Origin: {origin}", f"Label: {origin}", "Suite: stub", "Codename: stub", "SHA256:"]
    for name in ("Packages", "Packages.gz"):
        data = (folder / name).read_bytes()
        lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}")
    (folder / "Release").write_text("\n".join(lines) + "\n")
    subprocess.run(["rm", "-rf", folder / "build"], check=True)


def host_kernels():
    """The kernels that the host says it has."""
    return os.environ.get("KERNELS", platform.release()).split()


def main():
    """Build everything and its index."""
    versions = sys.argv[2:] or VERSIONS
    write(Path(sys.argv[1]), [*(p for version in versions for p in driver(version)), *machine(host_kernels())])


if __name__ == "__main__":
    main()
