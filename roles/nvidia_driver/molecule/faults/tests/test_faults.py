"""After every fault the host ended as wanted."""


def test_dpkg_has_no_unfinished_work(host):
    assert host.check_output("dpkg --audit") == ""


def test_the_last_wanted_driver_is_loaded(host):
    assert "580.105.08" in host.file("/proc/driver/nvidia/version").content_string
