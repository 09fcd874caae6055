#!/bin/sh
# Write the hash locks in tools/lock/ anew from pyproject.toml; `make lock UPGRADE=1` takes the newest versions.
set -eu
cd "$(dirname -- "$0")/.."
uv=.venv/bin/uv
lock() { # lock OUTPUT ARGUMENT... : only --upgrade moves versions that still fit
  out=$1
  shift
  "$uv" pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header ${UPGRADE:+--upgrade} -o "$out" "$@"
  echo "$out: $(grep -c '^[a-z].*==' "$out") packages"
}
lock tools/lock/dev.txt --extra dev pyproject.toml
# What the doctor needs on a host, where nothing of the development tools belongs.
lock roles/vllm_doctor/files/requirements.lock pyproject.toml
# uv itself comes first, through pip, in the version of the lock above.
grep -oE '^uv==[^ ]+' tools/lock/dev.txt >tools/lock/uv.in
lock tools/lock/uv.txt --no-deps --no-annotate --upgrade tools/lock/uv.in
rm tools/lock/uv.in
# The wheel that collections are taken from; its major version goes with ansible-core.
[ -z "${UPGRADE:-}" ] || echo 'ansible~=12.0' | "$uv" pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate -o tools/lock/collections.txt -
