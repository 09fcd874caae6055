"""What is left after A -> B -> C -> A and a change of flavour."""


def test_the_daemon_of_the_fabric_came_along(host):
    assert host.package("nvidia-fabricmanager").version == "580.65.06-1"
    assert host.service("nvidia-fabricmanager").is_running


def test_no_preference_of_another_branch_is_left(host):
    assert host.check_output("ls /etc/apt/preferences.d") == "nvidia-driver.pref"


def test_proprietary_modules_are_loaded(host):
    assert "Open Kernel Module" not in host.file("/proc/driver/nvidia/version").content_string
