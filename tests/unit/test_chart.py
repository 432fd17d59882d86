"""The chart as helm renders it: what is installed, what it may do, and what its schema refuses."""

import subprocess

import pytest
import yaml
from places import BIN, ROOT

CHART = ROOT / "charts" / "heterotp"

KINDS = ["heterotpjobs", "balancingpolicies", "stragglerinjections"]
RULES = [
    (["heterotp.io"], KINDS, ["get", "list", "watch"]),
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


def helm(*values):
    """Run `helm template` with --set VALUES."""
    sets = [part for value in values for part in ("--set", value)]
    command = [BIN / "helm", "template", "r", CHART, "--namespace", "system", *sets]
    return subprocess.run(command, capture_output=True, text=True)


def render(*values):
    """Return the objects of the rendered chart."""
    done = helm(*values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(objects, *kinds):
    return [each for each in objects if each["kind"] in kinds]


def rules_of(role):
    return [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]]


def pod_of(objects):
    (deployment,) = of_kind(objects, "Deployment")
    return deployment["spec"]["template"]["spec"]


def environment(objects):
    return {each["name"]: each.get("value") for each in pod_of(objects)["containers"][0]["env"]}


@pytest.fixture(scope="module")
def default():
    return render()


def test_crds_are_installed_and_kept(default):
    crds = of_kind(default, "CustomResourceDefinition")
    assert {crd["metadata"]["name"] for crd in crds} == {f"{kind}.heterotp.io" for kind in KINDS}
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)


def test_crds_can_be_left_out_and_need_not_be_kept():
    assert of_kind(render("crds.enabled=false"), "CustomResourceDefinition") == []
    for crd in of_kind(render("crds.keep=false"), "CustomResourceDefinition"):
        assert "helm.sh/resource-policy" not in crd["metadata"]["annotations"]


def test_the_whole_cluster_is_served_by_one_cluster_role(default):
    (role,) = of_kind(default, "ClusterRole")
    assert rules_of(role) == RULES
    (lease,) = of_kind(default, "Role")
    assert rules_of(lease) == [(["coordination.k8s.io"], ["leases"], ["get", "create", "update"])]
    assert lease["metadata"]["namespace"] == "system"
    assert environment(default)["HETEROTP_NAMESPACES"] == ""


def test_listed_namespaces_are_served_by_roles_alone():
    objects = render("namespaces={team-a,team-b}")
    assert of_kind(objects, "ClusterRole", "ClusterRoleBinding") == []
    roles = {role["metadata"]["namespace"]: rules_of(role) for role in of_kind(objects, "Role")}
    assert roles["team-a"] == roles["team-b"] == RULES
    assert set(roles) == {"system", "team-a", "team-b"}
    assert environment(objects)["HETEROTP_NAMESPACES"] == "team-a,team-b"


@pytest.mark.parametrize(
    ("value", "rules"), [("gangProviders={volcano}", RULES[:-1]), ("gangProviders=null", RULES[:-2])]
)
def test_only_the_listed_gang_schedulers_groups_are_opened(value, rules):
    (role,) = of_kind(render(value), "ClusterRole")
    assert rules_of(role) == rules


@pytest.mark.parametrize("values", [(), ("namespaces={team-a}",)])
def test_every_binding_binds_the_operators_account_to_a_role_that_is_there(values):
    objects = render(*values)
    roles = {
        (role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"])
        for role in of_kind(objects, "Role", "ClusterRole")
    }
    account = pod_of(objects)["serviceAccountName"]
    bindings = of_kind(objects, "RoleBinding", "ClusterRoleBinding")
    assert len(bindings) == len(roles)
    for binding in bindings:
        ref = binding["roleRef"]
        assert (ref["kind"], binding["metadata"].get("namespace"), ref["name"]) in roles
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "system"}]


def test_rbac_and_service_account_can_be_given_from_outside():
    objects = render("rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=given")
    assert of_kind(objects, "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount") == []
    assert pod_of(objects)["serviceAccountName"] == "given"


def test_the_operators_pod_is_restricted(default):
    pod = pod_of(default)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all("hostPath" not in volume for volume in pod["volumes"])
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert not context.get("privileged")


def test_images_reach_the_operator():
    objects = render("image.tag=dev", "trainerImage.repository=mine/trainer", "trainerImage.tag=v7")
    assert pod_of(objects)["containers"][0]["image"] == "heterotp/operator:dev"
    assert environment(objects)["HETEROTP_TRAINER_IMAGE"] == "mine/trainer:v7"


def test_images_take_the_charts_version_by_default(default):
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert pod_of(default)["containers"][0]["image"] == f"heterotp/operator:{version}"
    assert environment(default)["HETEROTP_TRAINER_IMAGE"] == f"heterotp/trainer:{version}"


def test_extra_environment_is_added():
    objects = render("extraEnv[0].name=HETEROTP_LOG_LEVEL", "extraEnv[0].value=DEBUG")
    assert environment(objects)["HETEROTP_LOG_LEVEL"] == "DEBUG"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("imge.tag=dev", "imge"),
        ("image.tagg=dev", "tagg"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("replicas=-1", "replicas"),
        ("crds.install=true", "install"),
        ("gangProviders={kueue}", "gangProviders"),
    ],
)
def test_an_unknown_or_wrong_value_is_refused_by_its_name(value, named):
    done = helm(value)
    assert done.returncode != 0
    assert named in done.stderr


def test_the_readme_lists_every_rule_and_value():
    text = (CHART / "README.md").read_text()
    for _, resources, _ in RULES:
        assert all(f"`{resource}`" in text for resource in resources)
    for value in yaml.safe_load((CHART / "values.yaml").read_text()):
        assert f"`{value}" in text, value


# -- rules and alerts -------------------------------------------------------------------------------------------

RULES_ON = "monitoring.rules.enabled=true"


def rule_groups(*values):
    """Return the groups of the rendered PrometheusRule."""
    (rule,) = of_kind(render(RULES_ON, *values), "PrometheusRule")
    return rule["spec"]["groups"]


def test_rules_are_those_of_the_plain_file_with_the_releases_operator(default):
    assert of_kind(default, "PrometheusRule") == []
    plain = yaml.safe_load((ROOT / "dashboards" / "heterotp-rules.yaml").read_text())
    assert rule_groups("monitoring.rules.operatorJob=heterotp-operator") == plain["groups"]
    assert 'absent(up{job="r-operator"} == 1)' in str(rule_groups())


def test_numbers_of_rules_are_values():
    changed = rule_groups(
        "monitoring.rules.thresholds.slowdown=3.5",
        "monitoring.rules.thresholds.stragglerFor=1h30m",
        "monitoring.rules.thresholds.handlerErrorRatio=0.001",
        "monitoring.rules.thresholds.stalledSeconds=86400",
        "monitoring.rules.runbookUrl=https://runbooks.test/{alert}/",
    )
    alerts = {rule["alert"]: rule for group in changed for rule in group["rules"] if "alert" in rule}
    straggler = alerts["HeteroTPJobStragglerUnmitigated"]
    assert "slowdown:ratio > 3.5\n" in straggler["expr"] and straggler["for"] == "1h30m"
    assert alerts["HeteroTPOperatorHandlerErrors"]["expr"].endswith("> 0.001")
    assert "[86400s]" in alerts["HeteroTPJobStalled"]["expr"]
    assert straggler["annotations"]["runbook_url"] == "https://runbooks.test/HeteroTPJobStragglerUnmitigated/"


def test_level_basic_records_one_series_per_rank():
    rules = [rule for group in rule_groups("monitoring.rules.level=basic") for rule in group["rules"]]
    of_ranks = [rule["record"] for rule in rules if rule.get("record", "").startswith("namespace_heterotpjob_rank:")]
    assert of_ranks == ["namespace_heterotpjob_rank:heterotp_busy_seconds:mean5m"]


def test_rules_carry_the_labels_that_a_prometheus_selects_by():
    (rule,) = of_kind(render(RULES_ON, "monitoring.rules.labels.release=kps"), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "kps"
    assert rule["metadata"]["labels"]["app.kubernetes.io/name"] == "heterotp"


@pytest.mark.parametrize(
    "value",
    [
        "monitoring.rules.thresholds.slowdown=fast",
        "monitoring.rules.thresholds.stragglerFor=10",
        "monitoring.rules.thresholds.handlerSeconds=30",
        "monitoring.rules.thresholds.slowDown=2",
        "monitoring.rules.level=some",
        "monitoring.rules.thresholds.prunedRatio=1.5",
        "monitoring.rules.thresholds.imbalance=0.9",
        "monitoring.rules.on=true",
    ],
)
def test_a_wrong_value_of_rules_is_refused(value):
    done = helm(RULES_ON, value)
    assert done.returncode != 0 and value.split("=")[0].rpartition(".")[2] in done.stderr
