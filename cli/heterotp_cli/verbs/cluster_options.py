"""The options that select cluster and namespace; they may stand before a verb or behind it."""

import click

CLUSTER_OPTIONS = (
    click.Option(["-n", "--namespace"], help="Namespace of the job; default: the context's."),
    click.Option(["--context"], help="Context of the kubeconfig."),
    click.Option(["--kubeconfig"], metavar="FILE", help="Default: $KUBECONFIG or ~/.kube/config."),
)
