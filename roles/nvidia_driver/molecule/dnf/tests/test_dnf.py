def test_an_upgrade_of_everything_leaves_the_driver_alone(host):
    told = host.run("dnf -y upgrade --assumeno")
    assert "nvidia" not in told.stdout


def test_the_fabric_manager_has_the_driver_version(host):
    told = host.check_output("rpm -q --queryformat '%{VERSION}' nvidia-fabricmanager")
    assert told == "580.105.08"
