//go:build tools

// Package tools names the commands that the testbed builds, so that go.mod keeps what they need.
package tools

import (
	_ "github.com/thanos-io/thanos/cmd/thanos"
)
