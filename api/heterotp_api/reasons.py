"""Reasons of conditions and events, each defined once: one CamelCase word, which programs may compare."""

# Created: whether all pods of the attempt were made
GANG_CREATED = "GangCreated"
PODS_TERMINATING = "PodsTerminating"  # of Suspended, too
REFUSED_INVALID = "Invalid"
REFUSED_FORBIDDEN = "Forbidden"
GANG_SCHEDULER_MISSING = "GangSchedulerMissing"
NAME_TAKEN = "NameTaken"

# Admitted: whether Kueue has admitted the job; other reasons are Kueue's own
ADMITTED = "Admitted"
NOT_EVALUATED = "NotEvaluated"  # Kueue has written nothing yet
EVICTED = "Evicted"  # of Restarting, too
KUEUE_OFF = "KueueOff"  # the operator was installed without the right to use Kueue
KUEUE_UNAVAILABLE = "KueueUnavailable"  # a write was not taken: Kueue's webhooks are away, or its CRDs are missing
PRIORITY_CLASS_MISSING = "PriorityClassMissing"
FLAVOR_MISSING = "FlavorMissing"

# PodsReady and Running
ALL_PODS_READY = "AllPodsReady"
POD_NOT_READY = "PodNotReady"
RANKS_TRAINING = "RanksTraining"  # rank 0 has reported in this attempt that its ranks have met
GANG_RUNNING = "GangRunning"  # also an event

# Restarting; other reasons are those of a container or a pod, as the kubelet gives them
RESTARTING = "Restarting"
GANG_RESTARTED = "GangRestarted"  # also an event
SPEC_CHANGED = "SpecChanged"
SECRET_CHANGED = "SecretChanged"  # the operator's key is another one, and pods are missing
NO_PROGRESS = "NoProgress"  # no iteration for runPolicy.progressDeadlineSeconds
POD_LOST = "PodLost"
POD_FAILED = "PodFailed"
POD_DELETED = "PodDeleted"
CONTAINER_ERROR = "Error"
CONTAINER_OOM_KILLED = "OOMKilled"

# SpecChangePending
TEMPLATE_CHANGED = "TemplateChanged"  # of Restarting, too
TEMPLATE_IN_FORCE = "TemplateInForce"

# Suspended
SUSPENDED = "Suspended"  # also an event
RESUMED = "Resumed"

# Succeeded and Failed
ALL_RANKS_SUCCEEDED = "AllRanksSucceeded"
SUCCEEDED = "Succeeded"  # an event
INVALID_SPEC = "InvalidSpec"  # of Accepted, too
INVALID_POD_TEMPLATE = "InvalidPodTemplate"
FAILURE_RULE = "FailureRule"
NON_FINITE_LOSS = "NonFiniteLoss"  # a restart leads there again
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PRE_RUNNING_DEADLINE_EXCEEDED = "PreRunningDeadlineExceeded"

# Stalled
NO_ITERATION = "NoIteration"  # also an event
ITERATIONS_END = "IterationsEnd"  # also an event

# Straggling and ReplacementAdvised
STRAGGLING = "Straggling"  # an event
RANKS_ARE_SLOW = "RanksAreSlow"
RANKS_ARE_EVEN = "RanksAreEven"  # also an event
CAUSE_FOUND = "CauseFound"  # an event: why a rank is slow
REPLACEMENT_ADVISED = "ReplacementAdvised"  # an event
RANK_STAYS_SLOW = "RankStaysSlow"
NO_RANK_STAYS_SLOW = "NoRankStaysSlow"

# balancing.problemReason of a job: why its ranks do not follow what was asked for
POLICY_NOT_FOUND = "PolicyNotFound"
POLICY_INVALID = "PolicyInvalid"
POLICY_DOES_NOT_FIT = "PolicyDoesNotFit"
CONTROL_REFUSED = "ControlRefused"  # the ranks refused the control document

# Accepted, Conflict and Applied of a BalancingPolicy; Accepted of a StragglerInjection
ACCEPTED = "Accepted"
NO_CONFLICT = "NoConflict"
GOVERNED_BY_ANOTHER = "GovernedByAnother"
NO_JOBS = "NoJobs"
DOES_NOT_FIT = "DoesNotFit"
PUBLISHING = "Publishing"
IN_FORCE = "InForce"
TARGETS_UNKNOWN = "TargetsUnknown"

# ranks[].reason of a StragglerInjection: why the effect on a rank is absent or another one
NOT_IN_FORCE = "NotInForce"
NOT_STARTED = "NotStarted"
PAUSED = "Paused"
FINISHED = "Finished"
LEASE_EXPIRED = "LeaseExpired"
OTHER_RANKS_TURN = "OtherRanksTurn"
POD_MISSING = "PodMissing"
POD_NOT_RUNNING = "PodNotRunning"
UNREACHABLE = "Unreachable"
DEVICE_CANNOT_FOLLOW = "DeviceCannotFollow"
NOTHING_TO_COMPUTE = "NothingToCompute"
NOT_AS_ASKED = "NotAsAsked"
