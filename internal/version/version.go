// Package version says which build of the program runs.
package version

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
)

// String says which build of the program runs, from what the Go toolchain records in every
// binary: the module's version, the commit with its time and whether files were changed
// since, the Go version and platform, and the build tags.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown (built without module information)"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	set := make(map[string]string)
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	version := info.Main.Version
	version = cmp.Or(version, "(devel)")
	commit := "no commit recorded"
	if r := set["vcs.revision"]; r != "" {
		commit = "commit " + r[:min(12, len(r))]
		if t := set["vcs.time"]; t != "" {
			commit += " of " + t
		}
		if set["vcs.modified"] == "true" {
			commit += ", dirty"
		}
	}
	tags := "no build tags"
	if t := set["-tags"]; t != "" {
		tags = "build tags " + strings.ReplaceAll(t, ",", ", ")
	}
	platform := strings.TrimSpace(info.GoVersion + " " + strings.Trim(set["GOOS"]+"/"+set["GOARCH"], "/"))
	return fmt.Sprintf("%s (%s; %s; %s)", version, commit, platform, tags)
}
