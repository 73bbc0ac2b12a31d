//go:build tools

// Package tools names the commands that the testbed builds, so that go.mod keeps what they need.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
	_ "sigs.k8s.io/metrics-server/cmd/metrics-server"
)
