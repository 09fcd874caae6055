import re

OWNERS = {
    "noble": ("580.105.08-1ubuntu1", "nvidia-utils-580"),
    "jammy": ("580.105.08-0ubuntu0.24.04.1", "nvidia-utils-580-server"),
}


def test_all_of_it_has_one_owner(host):
    version, _ = OWNERS[host.check_output("hostname")]
    told = host.check_output("dpkg-query -W -f '${Package} ${Version}\\n'")
    stack = {line.split()[1] for line in told.splitlines() if re.match(r"\S+ [56]\d\d[.]", line)}
    assert stack == {version}


def test_the_pins_keep_the_other_owner_and_other_versions_out(host):
    version, name = OWNERS[host.check_output("hostname")]
    assert f"Candidate: {version}" in host.check_output(f"apt-cache policy {name}")


def test_an_upgrade_of_everything_leaves_the_driver_alone(host):
    proposed = host.check_output("apt-get -s -o Debug::NoLocking=1 dist-upgrade")
    assert not re.search(r"^(Inst|Remv) .*(nvidia|cuda)", proposed, re.MULTILINE)
