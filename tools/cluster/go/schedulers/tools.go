//go:build tools

// Package tools names the gang schedulers that tests run, and their controllers. They share a module: both schedulers
// are Kubernetes' own with plugins, so most of it is compiled once.
package tools

import (
	_ "sigs.k8s.io/scheduler-plugins/cmd/controller"
	_ "sigs.k8s.io/scheduler-plugins/cmd/scheduler"
	_ "volcano.sh/volcano/cmd/controller-manager"
	_ "volcano.sh/volcano/cmd/scheduler"
)
