package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionOf(t *testing.T) {
	settings := func(pairs ...string) (out []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for name, c := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"tagged": {
			debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}, Settings: settings(
				"vcs.revision", "0123456789abcdef0123", "vcs.time", "2026-11-22T14:36:00Z", "vcs.modified", "false", "GOOS", "linux", "GOARCH", "amd64")},
			"v0.1.0 (commit 0123456789ab of 2026-11-22T14:36:00Z; go1.26.8 linux/amd64; no build tags)",
		},
		"changed files, tags": {
			debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.1-0.20261122143600-0123456789ab+dirty"}, Settings: settings(
				"-tags", "gpu,debug", "vcs.revision", "0123456789abcdef0123", "vcs.modified", "true", "GOOS", "linux", "GOARCH", "arm64")},
			"v0.1.1-0.20261122143600-0123456789ab+dirty (commit 0123456789ab, dirty; go1.26.8 linux/arm64; build tags gpu, debug)",
		},
		"short commit":       {debug.BuildInfo{GoVersion: "go1.26.8", Settings: settings("vcs.revision", "0123")}, "(devel) (commit 0123; go1.26.8; no build tags)"},
		"outside repository": {debug.BuildInfo{GoVersion: "go1.26.8"}, "(devel) (no commit recorded; go1.26.8; no build tags)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := versionOf(&c.info); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestVersion is about the program that runs: the test itself.
func TestVersion(t *testing.T) {
	got := String()
	for _, want := range []string{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
