#!/usr/bin/env python3
"""Build a signed repository shaped like Grafana's, with a package of its file layout: repository.py FOLDER"""

import gzip
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

UNIT = """[Unit]
Description=Grafana instance
After=network-online.target

[Service]
EnvironmentFile=/etc/default/grafana-server
User=grafana
Group=grafana
WorkingDirectory=/usr/share/grafana
ExecStart=/usr/share/grafana/bin/grafana server --config=${CONF_FILE} \\
  cfg:default.paths.provisioning=${PROVISIONING_CFG_DIR}
ProtectHome=true
ProtectSystem=full

[Install]
WantedBy=multi-user.target
"""
POSTINST = """#!/bin/sh
set -e
getent group grafana >/dev/null || groupadd --system grafana
getent passwd grafana >/dev/null || useradd --system --gid grafana --shell /bin/false grafana
chgrp -R grafana /etc/grafana
chmod 0750 /etc/grafana /etc/grafana/provisioning /etc/grafana/provisioning/*
systemctl daemon-reload || true
"""
CONTROL = """Package: grafana
Version: 12.0.0
Architecture: amd64
Maintainer: Stub <stub@example.org>
Depends: python3
Description: stub that reads what is provisioned
"""
DEFAULTS = "CONF_FILE=/etc/grafana/grafana.ini\nPROVISIONING_CFG_DIR=/etc/grafana/provisioning\n"


def deb(folder: Path, at: Path) -> None:
    """The package."""
    files = {
        "DEBIAN/control": CONTROL,
        "DEBIAN/postinst": POSTINST,
        "DEBIAN/conffiles": "/etc/default/grafana-server\n/etc/grafana/grafana.ini\n",
        "etc/default/grafana-server": DEFAULTS,
        "etc/grafana/grafana.ini": "",
        "etc/grafana/provisioning/datasources/sample.yaml": "",
        "etc/grafana/provisioning/dashboards/sample.yaml": "",
        "usr/lib/systemd/system/grafana-server.service": UNIT,
        "usr/share/grafana/bin/grafana": Path(__file__).with_name("grafana.py").read_text(encoding="utf-8"),
    }
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made)
        for name, text in files.items():
            file = tree / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755 if name.endswith(("postinst", "bin/grafana")) else 0o644)
        tree.chmod(0o755)
        at.parent.mkdir(parents=True)
        subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, at], check=True)


def main() -> None:
    """The package, its index and the signature."""
    folder = Path(sys.argv[1])
    package = folder / "pool/main/g/grafana/grafana_12.0.0_amd64.deb"
    deb(folder, package)
    data = package.read_bytes()
    index = (
        f"{CONTROL}Filename: {package.relative_to(folder)}\nSize: {len(data)}\n"
        f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
    ).encode()
    suite = folder / "dists/stable"
    lines = [
        "Origin: grafana",
        "Suite: stable",
        "Codename: stable",
        "Architectures: amd64",
        "Components: main",
        "SHA256:",
    ]
    for name, told in (("Packages", index), ("Packages.gz", gzip.compress(index))):
        file = suite / "main/binary-amd64" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(told)
        lines.append(f" {hashlib.sha256(told).hexdigest()} {len(told)} main/binary-amd64/{name}")
    (suite / "Release").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--pinentry-mode", "loopback", "--passphrase", ""]
        subprocess.run([*gpg, "--quick-generate-key", "stub@example.org", "ed25519", "sign", "never"], check=True)
        subprocess.run([*gpg, "--clearsign", "--output", suite / "InRelease", suite / "Release"], check=True)
        subprocess.run([*gpg, "--armor", "--output", folder / "gpg.key", "--export"], check=True)


main()
