package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMistakesAreExplained(t *testing.T) {
	for line, want := range map[string]string{
		"lookahead --step 3":                       `unknown flag --step; did you mean --steps?`,
		"lookahead --steps x":                      `--steps: got "x", want a whole number`,
		"lookahead --lr fast":                      `--lr: got "fast", want a number`,
		"lookahead --preset lookahead-kv --out x":  `did you mean "lookaheadkv"?`,
		"lookahead --schedule cosin --out x":       `did you mean "cosine"?`,
		"lookahead --task sektion --out x":         `did you mean "section"?`,
		"plan --preset lookaheadkv --device cuda0": `did you mean "cuda:0"?`,
		"run .":          ".: a folder, want a regular file",
		"sweep .":        ".: a folder, want a regular file",
		"plan .":         ".: a folder, want a regular file",
		"generate .":     ".: a folder, want a regular file",
		"export . x":     "want an adapter folder, a checkpoint, or the folder of a run, got a folder without glimpse.json, adapters and",
		"generate --out": "generate: --out: got no value, want one: file, or with --shards",
		"run":            "got no argument, want CONFIG.yaml",
		"help pln":       `did you mean "plan"?`,
		"lookhead":       `did you mean "lookahead"?`,
		"generate --field nosuch --prompts x --out y": "",
	} {
		_, _, err := execute(t, t.Context(), strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want it to say %q", line, err, want)
			continue
		}
		for _, inner := range []string{"strconv", "accepts", "arg(s)", "invalid argument", "\n"} {
			if strings.Contains(err.Error(), inner) {
				t.Errorf("%s: error %q says %q", line, err, inner)
			}
		}
	}
}

func TestShellCompletesValues(t *testing.T) {
	for line, want := range map[string]string{
		"lookahead --preset look": "lookaheadkv", "generate --task section,ho": "section,hops", "lookahead --device c": "cpu", "lookahead --modules q_proj,v": "q_proj,v_proj",
	} {
		out, err := asCommand(append([]string{"__complete"}, strings.Fields(line)...)...).Output()
		if first, _, _ := strings.Cut(string(out), "\n"); err != nil || first != want {
			t.Errorf("%s: %q, %v, want %q", line, out, err, want)
		}
	}
}

// TestEnvironmentIsBelowTheFile: a default of the environment gives way to a configuration.
func TestEnvironmentIsBelowTheFile(t *testing.T) {
	t.Setenv("GLIMPSE_DEVICE", "abacus")
	if _, _, err := execute(t, t.Context(), "plan", "--preset", "lookaheadkv"); err == nil || !strings.Contains(err.Error(), `"abacus"`) {
		t.Errorf("error %v, want one of the device of the environment", err)
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("preset: lookaheadkv\ndevice: cpu\ntokens: 64\nadapters:\n  - kind: lookaheadkv\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := execute(t, t.Context(), "plan", file); err != nil {
		t.Errorf("the file is not above the environment: %v", err)
	}
	if _, _, err := execute(t, t.Context(), "plan", "--preset", "lookaheadkv", "--device", "cpu", "--tokens", "64"); err != nil {
		t.Errorf("--device is not above the environment: %v", err)
	}
}
