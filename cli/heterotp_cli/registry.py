"""The verbs of `heterotp` and `kubectl heterotp`: name, module and one line of help, for both programs and the docs.

A new verb is one line here, its module and its test. A module is imported only when its verb is called.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """One verb and its module below heterotp_cli.

    on_jobs: both programs have the verb, and `build(program)` of the module makes its command.
    Else only `heterotp` has it, and `command` of the module is its command.
    """

    name: str
    module: str
    help: str  # {thing} stands for what the program calls a job
    on_jobs: bool = False


VERBS = (
    Verb("run", "run_command", "Train a HeteroTPJob manifest on this machine, without Kubernetes."),
    Verb("top", "verbs.top", "Show which ranks slow a {thing}; -w follows it.", on_jobs=True),
    Verb("explain", "verbs.explain", "Explain in one paragraph what slows a {thing} and what was done.", on_jobs=True),
    Verb("describe-ranks", "verbs.describe_ranks", "Show all known values of every rank.", on_jobs=True),
    Verb("inject", "verbs.inject", "Slow ranks of a live {thing} on purpose.", on_jobs=True),
    Verb("policy", "verbs.policy", "Change how a live {thing} balances.", on_jobs=True),
    Verb("ui", "ui_command", "Serve a page that shows a {thing} while it runs, with buttons.", on_jobs=True),
    Verb("trace", "trace_command", "Trace some iterations of a live run, with our phases, for Perfetto."),
    Verb("simulate", "simulate_command", "Predict the effect of every strategy, without training."),
    Verb("bench", "bench_command", "Redraw the paper's figures beside the paper's numbers."),
    Verb("dashboards", "dashboards_command", "Push the Grafana boards, or write them into files."),
    Verb("check-model", "check_model_command", "Compare a model on shards with the unsharded one."),
    Verb("export", "export_command", "Write a run's model as a directory that transformers loads."),
    Verb("validate", "validate_command", "Validate manifests as the API server would."),
)
JOB_VERBS = tuple(verb for verb in VERBS if verb.on_jobs)
