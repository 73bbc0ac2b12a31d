//go:build tools

// Package tools names the commands that the testbed builds, so that go.mod keeps what they need.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
