def test_an_upgrade_of_everything_leaves_the_driver_alone(host):
    told = host.run("dnf -y upgrade --assumeno")
    assert "nvidia" not in told.stdout


def test_the_fabric_manager_has_the_driver_version(host):
    told = host.check_output("rpm -q --queryformat '%{VERSION}' nvidia-fabricmanager")
    assert told == "580.105.08"


def test_kernels_stay_with_the_modules_that_were_built_for_them(host):
    assert "kernel-core" in host.run("dnf -y upgrade --assumeno --disableplugin=versionlock").stdout
    assert "kernel-core" not in host.run("dnf -y upgrade --assumeno").stdout


def test_dkms_comes_from_epel_wherever_that_is_had_from(host):
    assert host.run("rpm -q epel-release dkms kernel-devel").rc == 0
    assert "From repo    : epel" in host.run("dnf -C info --installed dkms").stdout


def test_headers_follow_the_kernel_where_el_has_a_package_for_it(host):
    assert (host.run("rpm -q kernel-devel-matched").rc == 0) == (host.check_output("hostname") != "el8")
