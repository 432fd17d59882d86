"""The options that say which cluster and namespace; before a verb they mean the same as behind it."""

import click

WHERE = (
    click.Option(["-n", "--namespace"], help="Namespace of the job; default: the context's."),
    click.Option(["--context"], help="Context of the kubeconfig."),
    click.Option(["--kubeconfig"], metavar="FILE", help="Default: $KUBECONFIG or ~/.kube/config."),
)
