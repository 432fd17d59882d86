"""Templates of accepted pods are remembered by namespace, forgotten after a refusal, and bounded in number."""

from heterotp_operator.accepted_templates import REMEMBERED, AcceptedTemplates


def test_a_template_is_known_where_it_was_accepted_until_it_is_refused():
    templates = AcceptedTemplates()
    templates.note("team", "x", accepted=True)
    assert ("team", "x") in templates and ("other", "x") not in templates
    templates.note("team", "x", accepted=False)
    assert ("team", "x") not in templates


def test_the_latest_are_remembered():
    templates = AcceptedTemplates()
    for number in range(REMEMBERED):
        templates.note("team", str(number), accepted=True)
    templates.note("team", "0", accepted=True)
    templates.note("team", "new", accepted=True)
    assert ("team", "0") in templates and ("team", "1") not in templates
