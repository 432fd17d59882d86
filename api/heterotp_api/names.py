"""Every name that two parts of HeteroTP must agree on: labels, environment, files, exit codes."""

GROUP = "heterotp.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

LABEL_JOB = f"{GROUP}/job"
LABEL_GROUP = f"{GROUP}/worker-group"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_INDEX = f"{GROUP}/pod-index"
LABEL_FIRST_RANK = f"{GROUP}/first-rank"
LABEL_TEMPLATE_HASH = f"{GROUP}/template-hash"
ANNOTATION_CONTROL = f"{GROUP}/control-generation"
ANNOTATION_SECRET = f"{GROUP}/secret-id"  # which operator's key its secret is derived from; absent: it has none
ANNOTATION_WORKLOAD = f"{GROUP}/workload-hash"  # of a Workload: what its spec was made from
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "heterotp-operator"

NAMESPACE_PRIVILEGED = f"{GROUP}/privileged-pods"  # labels of a namespace, with the value ALLOWED; the chart reads them
NAMESPACE_INJECTIONS = f"{GROUP}/injections"
ALLOWED = "allowed"

CONTAINER = "trainer"  # the container of a template that the operator completes
CONTROL_FILE = "control.json"
JOURNAL_FILE = "journal.json"  # in a run directory, by rank 0: the journal of its attempt up to now
RANK_LINE_PREFIX = "[rank {}] "  # the launcher puts it before every line of output of a rank
LEASE_HEADER = "X-HeteroTP-Lease"  # the operator's poll of /status carries it
LEASE_PROOF_HEADER = "X-HeteroTP-Lease-Proof"  # of the poll: proof for the challenge of the last answer
LEASE_CHALLENGE_HEADER = "X-HeteroTP-Lease-Challenge"  # of the answer, by ranks that have a secret
LEASE_CHALLENGE = "[0-9a-f]{32}"  # a regular expression
ATTEMPT_DIGITS = 3  # room that the longest generated hostname keeps for the attempt
MAX_HOSTNAME = 63  # RFC 1123 label

# exit codes of a rank, read by the operator and the launcher
EXIT_BAD_INPUT = 2
EXIT_PEER_LOST = 75  # victim of a dead or hung peer: never the root cause
EXIT_CHECKPOINT_OWNER = 76  # a newer attempt, or another job, owns the checkpoints
EXIT_NAME_UNRESOLVED = 77  # a victim, too: the name of rank 0's pod is not in the DNS
EXIT_NON_FINITE = 78  # loss or gradients are not finite: the last checkpoint leads there again
EXIT_NO_PROGRESS = 79  # of the rank that the others waited for past runPolicy.progressDeadlineSeconds
EXIT_NOT_LET_IN = 80  # a victim: of a rank that came back and was not let in (runPolicy.elastic), or is left out
EXIT_LEFT = 81  # a rank of an elastic gang that was asked to leave (SIGTERM to it alone): the others go on
EXIT_STOPPED = 143  # stopped by SIGTERM after a last checkpoint
VICTIM_EXITS = frozenset(
    {EXIT_PEER_LOST, EXIT_NAME_UNRESOLVED, EXIT_NOT_LET_IN, EXIT_LEFT}
)  # explain nothing while another rank's code does


class Env:
    """Environment variables of a pod (set by operator and CLI) and of a rank (added by the launcher)."""

    JOB = "HETEROTP_JOB"
    JOB_UID = "HETEROTP_JOB_UID"  # unlike for every job, also for two of one name; of a run directory the same
    NAMESPACE = "HETEROTP_NAMESPACE"
    ATTEMPT = "HETEROTP_ATTEMPT"
    GROUP = "HETEROTP_GROUP"
    FIRST_RANK = "HETEROTP_FIRST_RANK"
    PROCESSES = "HETEROTP_PROCESSES"
    SPEC = "HETEROTP_SPEC"
    CONTROL_DIR = "HETEROTP_CONTROL_DIR"
    CHECKPOINT_DIR = "HETEROTP_CHECKPOINT_DIR"
    STATUS_PORT = "HETEROTP_STATUS_PORT"
    DEVICE = "HETEROTP_DEVICE"
    WORKDIR = "HETEROTP_WORKDIR"
    LAST_WORDS = "HETEROTP_LAST_WORDS"  # file for the documents of last_words.py, at most 4096 bytes
    RUN_LOCK = "HETEROTP_RUN_LOCK"  # file descriptor of a local run's lock, which every process of the run inherits
    CHECK_MODEL = (
        "HETEROTP_CHECK_MODEL"  # set by `heterotp check-model`: parallelize checks the model and ends the rank
    )
    RENDEZVOUS_SECRET = "HETEROTP_RENDEZVOUS_SECRET"  # of one job and attempt: ranks without it are turned away
    COMEBACK = "HETEROTP_COMEBACK"  # how often this rank was started again (runPolicy.elastic.rejoin); absent: never
    TP_RANK = "HETEROTP_TP_RANK"
    TP_GROUP = "HETEROTP_TP_GROUP"
    RANK = "RANK"
    LOCAL_RANK = "LOCAL_RANK"
    WORLD_SIZE = "WORLD_SIZE"
    LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
    MASTER_ADDR = "MASTER_ADDR"
    MASTER_PORT = "MASTER_PORT"


def pod_name(job: str, group: str, index: int, attempt: int) -> str:
    """Return the deterministic name of one pod of one attempt."""
    return f"{job}-{group}-{index}-{attempt}"


def service_name(job: str) -> str:
    """Return the name of the gang's headless Service."""
    return f"{job}-gang"


def network_policy_name(job: str) -> str:
    """Return the name of the NetworkPolicy of the gang's pods."""
    return f"{job}-gang"


def workload_name(job: str) -> str:
    """Return the name of the gang's Workload, by which Kueue admits it."""
    return job


def control_name(job: str) -> str:
    """Return the name of the ConfigMap that holds the control document."""
    return f"{job}-control"
