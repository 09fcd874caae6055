def test_exactly_this_toolkit_and_no_driver(host):
    assert host.package("cuda-toolkit-13-0").version == "13.0.2-1"
    assert host.package("cuda-compat-13-0").is_installed
    told = host.check_output("dpkg-query -W -f '${Package}\\n'").split()
    assert not [name for name in told if name.startswith(("nvidia-", "libnvidia", "cuda-drivers"))]


def test_every_package_of_the_toolkit_is_held(host):
    held = set(host.check_output("apt-mark showhold").split())
    assert {"cuda-toolkit-13-0", "cuda-nvcc-13-0", "cuda-compat-13-0"} <= held


def test_the_repository_can_give_no_driver(host):
    assert "Candidate: (none)" in host.check_output("apt-cache policy nvidia-driver-cuda")


def test_what_triton_compiles_at_start_compiles(host):
    program = "#include <Python.h>\\nint main(void) { return PY_MAJOR_VERSION != 3; }\\n"
    flags = host.check_output("python3-config --includes")
    host.check_output(f"printf '{program}' > /tmp/x.c && gcc {flags} /tmp/x.c -o /tmp/x && /tmp/x")
