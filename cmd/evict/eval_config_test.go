package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFlagsOverrideTheFile: of --config's settings of S3 each flag takes the place of its own, and of no
// other.
func TestFlagsOverrideTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "eval.yaml")
	if err := os.WriteFile(file, []byte("tasks: [section]\npolicies: [full]\nbudgets: [16]\nsamples: 1\ntokens: 64\nseed: 3\ns3: {endpoint: http://127.0.0.1:1, region: here, path_style: \"true\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, flag string
		want       []string
	}{
		{"none", "", []string{"endpoint: http://127.0.0.1:1", "region: here", `path_style: "true"`, "seed: 3"}},
		{"path style", "--s3-path-style=false", []string{"endpoint: http://127.0.0.1:1", "region: here", `path_style: "false"`}},
		{"region", "--s3-region=there", []string{"endpoint: http://127.0.0.1:1", "region: there", `path_style: "true"`}},
		{"endpoint", "--s3-endpoint=http://127.0.0.1:2", []string{"endpoint: http://127.0.0.1:2", "region: here", `path_style: "true"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			args := []string{"eval", "--config", file, "--out", out}
			if c.flag != "" {
				args = append(args, c.flag)
			}
			if _, _, err := execute(t, args...); err != nil {
				t.Fatal(err)
			}
			config, err := os.ReadFile(filepath.Join(out, "config.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(string(config), want) {
					t.Errorf("want %q in\n%s", want, config)
				}
			}
		})
	}
}
