CALLS = "/var/log/nvidia-smi.calls"


def test_slices_and_mode_are_made_once(host):
    assert host.file(CALLS).content_string.splitlines() == [
        "-i 0 -mig 1",
        "mig -i 0 -cgi 3g.40gb,3g.40gb -C",
        "-c 3",
    ]


def test_a_restart_of_the_unit_touches_nothing(host):
    before = host.file(CALLS).content_string
    host.check_output("systemctl restart host-settings")
    assert host.file(CALLS).content_string == before


def test_a_boot_makes_them_anew(host):
    before = host.file(CALLS).content_string.count("-cgi")
    host.check_output("rm /run/host-settings.json && systemctl restart host-settings")
    assert host.file(CALLS).content_string.count("-cgi") == before + 1


def test_gpus_in_use_fail_the_unit_and_it_says_why(host):
    host.check_output("touch /run/gpus-in-use; rm -f /run/host-settings.json")
    assert host.run("systemctl restart host-settings").rc != 0
    assert "In use by another client" in host.check_output("journalctl -u host-settings --no-pager")
    host.check_output("rm /run/gpus-in-use && systemctl restart host-settings")


def test_kernel_parameters_and_shared_memory(host):
    assert host.check_output("cat /proc/sys/net/core/somaxconn") == "4321"
    assert host.check_output("df --output=size -m /dev/shm | tail -1").strip() == "512"


def test_an_instance_stays_on_its_node(host):
    """Effective, as far as one node can show it: the kernel itself tells the policy and the cores."""
    host.check_output("systemctl start vllm@probe")
    pid = host.check_output("systemctl show -P MainPID vllm@probe")
    assert "prefer" in host.check_output(f"cat /proc/{pid}/numa_maps")
    cores = host.check_output("cat /sys/devices/system/node/node0/cpulist")
    assert f"Cpus_allowed_list:\t{cores}" in host.file(f"/proc/{pid}/status").content_string


def test_an_instance_that_is_named_no_more_is_free(host):
    assert not host.file("/etc/systemd/system/vllm@gone.service.d/20-host-settings-numa.conf").exists
    assert host.check_output("systemctl show -P NUMAPolicy vllm@gone") == "n/a"


def test_every_instance_waits_for_the_modes(host):
    assert "host-settings.service" in host.check_output("systemctl show -P After vllm@probe")
