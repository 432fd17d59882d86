//go:build tools

// Package tools names Kueue's manager, whose module wants the client-go of a later Kubernetes than ours.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
