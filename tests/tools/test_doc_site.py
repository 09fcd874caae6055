"""The documentation site's pages: one for each finding, command and role, and no link that leads nowhere."""

import doc_site
import pytest

from vllm_doctor.rules.order import by_code


def test_each_finding_command_and_role_has_a_page() -> None:
    pages = set(doc_site.sources().values()) | set(doc_site.commands())
    roles = {role.name for role in (doc_site.REPO / "roles").iterdir() if (role / "README.md").is_file()}

    assert {f"findings/{code}.md" for code in by_code()} <= pages
    assert {f"roles/{role}.md" for role in roles} <= pages
    assert {"commands/diagnose.md", "commands/plan.md", "commands/explain.md", "index.md"} <= pages


def test_a_link_between_files_of_the_checkout_becomes_one_between_pages() -> None:
    files: set[str] = set()

    text = doc_site.relinked(
        "[hosts](hosts.md#top) [role](../roles/vllm/README.md) [lic](../LICENSE) [out](https://vllm.ai) [here](#a)",
        "docs/doctor.md",
        doc_site.sources(),
        files,
    )

    assert text == (
        "[hosts](hosts.md#top) [role](roles/vllm.md) [lic](files/LICENSE) [out](https://vllm.ai) [here](#a)"
    )
    assert files == {"LICENSE"}


@pytest.mark.parametrize("target", ["nope.md", "../../../etc/passwd", "../nothing/here.yml"])
def test_a_link_that_leads_nowhere_ends_the_build(target: str) -> None:
    with pytest.raises(doc_site.BrokenLinkError, match="not in the checkout"):
        doc_site.relinked(f"[x]({target})", "docs/doctor.md", doc_site.sources(), set())


def test_what_stands_in_a_block_of_code_is_no_link() -> None:
    text = "before\n\n```\n[x](nope.md)\n```\n"

    assert doc_site.relinked(text, "docs/doctor.md", doc_site.sources(), set()) == text


def test_the_help_of_a_command_is_no_markup() -> None:
    page = doc_site.commands()["commands/diagnose.md"]

    assert page.startswith("# vllm-doctor diagnose\n")
    assert "`-f, --format" in page or "`--format" in page
    assert "## Examples" in page
