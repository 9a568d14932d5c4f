package main

import (
	"runtime"
	"strings"
	"testing"
)

func TestVersionFlag(t *testing.T) {
	out, log, err := execute(t, "--version")
	if err != nil || log != "" || !strings.HasPrefix(out, "evict version ") || !strings.Contains(out, runtime.Version()) || strings.Count(out, "\n") != 1 {
		t.Errorf("got %q, %q, %v, want one line with the version of Go", out, log, err)
	}
}
