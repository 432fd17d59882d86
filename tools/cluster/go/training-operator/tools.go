//go:build tools

// Package tools names the training-operator, whose module wants an earlier client-go than ours.
package tools

import _ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
