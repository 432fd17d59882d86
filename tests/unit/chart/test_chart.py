"""Objects of the chart: kinds, rights, images and environment of the operator."""

import re

import pytest
import yaml
from support.rendered_chart import ADMISSION, CHART, installed, of_kind, one, pod_of, render

KINDS = ["heterotpjobs", "balancingpolicies", "stragglerinjections"]
RULES = [
    (["heterotp.io"], KINDS, ["list", "watch"]),
    (["heterotp.io"], [f"{kind}/status" for kind in KINDS], ["patch"]),
    (["heterotp.io"], ["heterotpjobs"], ["delete"]),
    (["heterotp.io"], ["heterotpjobs/finalizers"], ["update"]),
    ([""], ["pods"], ["get", "list", "watch", "create", "patch", "delete"]),
    ([""], ["services"], ["get", "list", "watch", "create", "update"]),
    ([""], ["configmaps"], ["get", "list", "watch", "create", "patch"]),
    ([""], ["events"], ["create", "patch"]),
    (["scheduling.volcano.sh"], ["podgroups"], ["get", "create", "patch"]),
    (["scheduling.x-k8s.io"], ["podgroups"], ["get", "create", "patch"]),
]
POLICY_RULES = {  # with NetworkPolicies, and where they are removed
    "true": (["networking.k8s.io"], ["networkpolicies"], ["get", "list", "watch", "create", "update"]),
    "false": (["networking.k8s.io"], ["networkpolicies"], ["list", "watch", "delete"]),
}


def rules_of(role):
    return [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]]


def environment(objects):
    return {each["name"]: each.get("value") for each in pod_of(objects)["spec"]["containers"][0]["env"]}


@pytest.fixture(scope="module")
def default():
    return installed(render())


def test_crds_are_installed_and_kept(default):
    crds = of_kind(default, "CustomResourceDefinition")
    assert {crd["metadata"]["name"] for crd in crds} == {f"{kind}.heterotp.io" for kind in KINDS}
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)


def test_crds_can_be_left_out_and_need_not_be_kept():
    assert of_kind(render("crds.enabled=false"), "CustomResourceDefinition") == []
    for crd in of_kind(render("crds.keep=false"), "CustomResourceDefinition"):
        assert "helm.sh/resource-policy" not in crd["metadata"]["annotations"]


def test_the_whole_cluster_is_served_by_one_cluster_role(default):
    assert rules_of(one(default, "ClusterRole", "r-operator")) == RULES
    lease = one(default, "Role", "r-leader")
    own = (["coordination.k8s.io"], ["leases"])
    assert rules_of(lease) == [(*own, ["create"]), (*own, ["get", "update"])]
    assert [rule.get("resourceNames") for rule in lease["rules"]] == [None, ["r-operator"]]
    assert environment(default)["HETEROTP_LEASE_NAME"] == "r-operator"
    assert lease["metadata"]["namespace"] == "system"
    assert environment(default)["HETEROTP_NAMESPACES"] == ""


@pytest.mark.parametrize("values", [(), ("namespaces={team-a}",)], ids=["cluster", "namespaced"])
def test_the_operators_key_is_the_only_secret_that_it_may_read(values):
    objects = installed(render(*values))
    role = one(objects, "Role", "r-key")
    own = ([""], ["secrets"])
    assert rules_of(role) == [(*own, ["create"]), (*own, ["get"])]
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, ["r-operator-key"]]
    assert role["metadata"]["namespace"] == "system"
    assert environment(objects)["HETEROTP_KEY_SECRET_NAME"] == "r-operator-key"
    elsewhere = [each for each in of_kind(objects, "Role", "ClusterRole") if each["metadata"]["name"] != "r-key"]
    assert not any("secrets" in rule["resources"] for each in elsewhere for rule in each["rules"])
    assert of_kind(objects, "Secret") == []  # it is made once by the operator, and is no release's


@pytest.mark.parametrize("jobs", POLICY_RULES)
@pytest.mark.parametrize("values", [(), ("namespaces={team-a}",)], ids=["cluster", "namespaced"])
def test_rights_on_network_policies_only_where_they_are_enabled(values, jobs):
    found = []
    for enabled in ("true", "false"):
        objects = installed(render(*values, f"networkPolicy.enabled={enabled}", f"networkPolicy.jobs={jobs}"))
        roles = [each for each in of_kind(objects, "Role", "ClusterRole") if each["metadata"]["name"] == "r-operator"]
        found.append([rules for rules in rules_of(roles[0]) if rules[1] == ["networkpolicies"]])
        assert ("HETEROTP_NETWORK_PEERS" in environment(objects)) == (enabled == "true")
    assert found == [[POLICY_RULES[jobs]], []]


def test_listed_namespaces_are_served_by_roles_alone():
    objects = installed(render("namespaces={team-a,team-b}"))
    assert of_kind(objects, "ClusterRole", "ClusterRoleBinding", *ADMISSION) == []
    roles = {role["metadata"]["namespace"]: rules_of(role) for role in of_kind(objects, "Role")}
    assert roles["team-a"] == roles["team-b"] == RULES
    assert set(roles) == {"system", "team-a", "team-b"}
    assert environment(objects)["HETEROTP_NAMESPACES"] == "team-a,team-b"


@pytest.mark.parametrize(
    ("value", "rules"), [("gangProviders={volcano}", RULES[:-1]), ("gangProviders=null", RULES[:-2])]
)
def test_only_the_listed_gang_schedulers_groups_are_opened(value, rules):
    assert rules_of(one(render(value), "ClusterRole", "r-operator")) == rules


@pytest.mark.parametrize("values", [(), ("namespaces={team-a}",)], ids=["cluster", "namespaced"])
def test_every_binding_binds_the_operators_account_to_a_role_that_is_there(values):
    objects = installed(render(*values, "rbac.aggregate=false"))
    roles = {
        (role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"])
        for role in of_kind(objects, "Role", "ClusterRole")
    }
    account = pod_of(objects)["spec"]["serviceAccountName"]
    bindings = of_kind(objects, "RoleBinding", "ClusterRoleBinding")
    roles -= {("ClusterRole", None, "r-injector")}  # whom it is bound to is up to the platform team
    assert len(bindings) == len(roles)
    for binding in bindings:
        ref = binding["roleRef"]
        assert (ref["kind"], binding["metadata"].get("namespace"), ref["name"]) in roles
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "system"}]


def test_rbac_and_service_account_can_be_given_from_outside():
    objects = render("rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=given")
    assert of_kind(objects, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount") == []
    assert pod_of(objects)["spec"]["serviceAccountName"] == "given"


def aggregated_to(role):
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    return {label.removeprefix(prefix) for label in role["metadata"]["labels"] if label.startswith(prefix)}


CHANGES = ["create", "update", "patch", "delete", "deletecollection"]


def test_people_get_rights_on_our_kinds_with_the_clusters_own_roles(default):
    view, edit = (one(default, "ClusterRole", f"r-{role}") for role in ("view", "edit"))
    assert rules_of(view) == [(["heterotp.io"], KINDS, ["get", "list", "watch"])]
    scale = (["heterotp.io"], ["heterotpjobs/scale"], ["get", "update", "patch"])  # refused by the job's own rules
    assert rules_of(edit) == [(["heterotp.io"], KINDS[:2], CHANGES), scale]
    assert (aggregated_to(view), aggregated_to(edit)) == ({"view", "edit", "admin"}, {"edit", "admin"})


def test_injections_are_a_right_of_their_own(default):
    injector = one(default, "ClusterRole", "r-injector")
    assert rules_of(injector) == [(["heterotp.io"], ["stragglerinjections"], ["get", "list", "watch", *CHANGES])]
    assert aggregated_to(injector) == set()
    for value in ("injections.enabled=false", "rbac.create=false", "namespaces={team-a}"):
        assert "r-injector" not in {role["metadata"]["name"] for role in of_kind(render(value), "ClusterRole")}


def test_an_operator_without_injections_has_no_rights_on_them(default):
    objects = render("injections.enabled=false")
    resources = [each for _, listed, _ in rules_of(one(objects, "ClusterRole", "r-operator")) for each in listed]
    assert not any("injection" in each for each in resources)
    assert environment(objects)["HETEROTP_INJECTIONS"] == "off"
    assert "HETEROTP_INJECTIONS" not in environment(default)


@pytest.mark.parametrize("value", ["rbac.aggregate=false", "rbac.create=false"])
def test_aggregated_roles_can_be_left_out(value):
    assert not {"r-view", "r-edit"} & {role["metadata"]["name"] for role in of_kind(render(value), "ClusterRole")}


def test_images_reach_the_operator():
    objects = render("image.tag=dev", "trainerImage.repository=mine/trainer", "trainerImage.tag=v7")
    assert pod_of(objects)["spec"]["containers"][0]["image"] == "heterotp/operator:dev"
    assert environment(objects)["HETEROTP_TRAINER_IMAGE"] == "mine/trainer:v7"


def test_images_take_the_charts_version_by_default(default):
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert pod_of(default)["spec"]["containers"][0]["image"] == f"heterotp/operator:{version}"
    assert environment(default)["HETEROTP_TRAINER_IMAGE"] == f"heterotp/trainer:{version}"


def test_a_digest_wins_over_the_tag():
    digest = "sha256:" + "0123456789abcdef" * 4
    objects = render("image.tag=v1", f"image.digest={digest}", f"trainerImage.digest={digest}")
    images = {c["image"] for pod in (pod_of(objects), one(objects, "Pod")) for c in pod["spec"]["containers"]}
    assert images == {f"heterotp/operator@{digest}"}
    assert environment(objects)["HETEROTP_TRAINER_IMAGE"] == f"heterotp/trainer@{digest}"


def test_extra_environment_is_added():
    objects = render("extraEnv[0].name=HETEROTP_LOG_LEVEL", "extraEnv[0].value=DEBUG")
    assert environment(objects)["HETEROTP_LOG_LEVEL"] == "DEBUG"


def promised():
    """Yield groups, resources, verbs and the reason of every row in the README's tables of rights."""
    text = (CHART / "README.md").read_text()
    section = text.partition("## What the operator may do\n")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (?!group )(.+) \| (.+) \| (.+) \| (.+) \|$", section, flags=re.MULTILINE):
        groups, resources, verbs = (cell.replace("`", "").split(", ") for cell in row[:3])
        yield ["" if group == "core" else group for group in groups], resources, verbs, row[3]


def test_the_readme_gives_a_reason_for_every_right():
    objects = render("networkPolicy.enabled=true", "kueue.enabled=true")
    rows = list(promised())
    listed = [([group], resources, verbs) for groups, resources, verbs, _ in rows for group in groups]
    own = [rules for name in ("r-leader", "r-key") for rules in rules_of(one(objects, "Role", name))]
    clusterwide = [rules for name in ("r-operator", "r-kueue") for rules in rules_of(one(objects, "ClusterRole", name))]
    assert listed == clusterwide + own
    assert all(len(reason.split()) > 1 or reason.startswith("`") for *_, reason in rows)


def test_every_right_has_its_reason_in_a_comment():
    text = (CHART / "templates" / "_helpers.tpl").read_text().partition('define "heterotp.rules"')[2]
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("- apiGroups")]
    assert len(starts) == len(RULES) - 1 + len(POLICY_RULES) + 2  # both kinds of PodGroup are one; two rules for Kueue
    assert all(lines[number - 1].startswith("# ") for number in starts)


def test_extra_objects_are_templates_as_maps_and_as_texts():
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-map"}}
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-text}\n"
    objects = render(values={"extraObjects": [data, text]})
    assert {each["metadata"]["name"] for each in of_kind(objects, "ConfigMap")} == {"r-map", "r-text"}
