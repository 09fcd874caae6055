def test_nothing_was_changed_on_any_host(host):
    assert not host.file("/etc/must-not-exist").exists
