package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sameShape is a folder with a model of the built-in one's shape and other weights.
func sameShape(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "other")
	if err := os.CopyFS(dir, os.DirFS("../../model/builtin/reference")); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-2] ^= 1
	if err := os.WriteFile(weights, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A policy that lacks its adapter is refused, by config.json alone where that tells: these folders have no more.
func TestPolicyWithoutItsAdapter(t *testing.T) {
	config, err := os.ReadFile("../../model/testdata/golden/llama3.1/config.json")
	if err != nil {
		t.Fatal(err)
	}
	only := t.TempDir()
	if err := os.WriteFile(filepath.Join(only, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"run hi", "chat", "inspect hi", "eval --task section --budget 8"} {
		for _, model := range []string{only, sameShape(t)} {
			args := append(strings.Fields(line), "--model", model, "--policy", "lookaheadkv")
			if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), "policy lookaheadkv: needs an adapter") {
				t.Errorf("%v: error %v", args, err)
			}
		}
	}
}

// TestDefaultPolicy: where no policy is asked for, a model runs with the one of the adapter that there is for its
// weights: a given one, one of a registry, or one that ships; and otherwise with snapkv.
func TestDefaultPolicy(t *testing.T) {
	const reference = "../../model/builtin/reference"
	other := sameShape(t)
	registry := filepath.Join(t.TempDir(), "registry")
	if err := os.CopyFS(registry, os.DirFS("../../adapters")); err != nil {
		t.Fatal(err)
	}
	const ships, none = "an adapter for the model comes with this program: the policy is lookaheadkv", "there is no adapter for the model: the policy is snapkv; \"train generate --model "
	for _, c := range []struct {
		name, model, variable string
		args                  []string
		policy, says, err     string // says: in the log, "" for nothing of the policy
	}{
		{name: "built-in", policy: "lookaheadkv/shipped", says: ships},
		{name: "its folder", model: reference, policy: "lookaheadkv/shipped", says: ships},
		{name: "other weights", model: other, policy: "snapkv", says: none},
		{name: "shipped, other weights", model: other, args: []string{"--adapter", "shipped"}, err: `"glimpse-reference"`},
		{name: "an adapter", model: reference, args: []string{"--adapter", registry + "/reference/lookaheadkv"}, policy: "lookaheadkv"},
		{name: "an adapter of another kind", model: reference, args: []string{"--adapter", registry + "/reference/judgeq"}, policy: "judgeq"},
		{name: "a registry", model: reference, args: []string{"--adapter", registry}, policy: "lookaheadkv"},
		{name: "a registry, another of its kinds", model: reference, args: []string{"--adapter", registry, "--policy", "judgeq"}, policy: "judgeq"},
		{name: "a registry, other weights", model: other, args: []string{"--adapter", registry}, err: "the registry has none for the weights of model "},
		{name: "a registry that nothing takes", model: reference, args: []string{"--adapter", registry, "--policy", "snapkv"}, err: "no policy of snapkv takes it"},
		{name: "a default", model: reference, variable: registry, policy: "lookaheadkv", says: registry + " has an adapter for the model: the policy is lookaheadkv"},
		{name: "a default, other weights", model: other, variable: registry, policy: "snapkv", says: none},
		{name: "a default that nothing takes", model: reference, variable: registry, args: []string{"--policy", "snapkv"}, policy: "snapkv"},
		{name: "a default that is one adapter, which nothing takes", model: reference, variable: registry + "/reference/judgeq", args: []string{"--policy", "snapkv"}, policy: "snapkv"},
		{name: "a default without the model, and what ships", variable: emptyRegistry(t), policy: "lookaheadkv/shipped", says: ships},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GLIMPSE_ADAPTER", c.variable)
			for _, line := range []string{"run", "inspect"} {
				out, log, err := execute(t, append([]string{line, "--model", c.model, "--example", "section", "--tokens", "64", "--budget", "16", "--json"}, c.args...)...)
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) {
						t.Errorf("%s: error %v, want %q", line, err, c.err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				var got struct{ Policy, Adapter string }
				if err := json.Unmarshal([]byte(out), &got); err != nil {
					t.Fatal(err)
				}
				if got.Adapter != "" {
					got.Policy += "/" + got.Adapter
				}
				if got.Policy != c.policy || c.says == "" && strings.Contains(log, "the policy is") || !strings.Contains(log, c.says) {
					t.Errorf("%s: policy %s, want %s; it says\n%s", line, got.Policy, c.policy, log)
				}
			}
		})
	}
}

func emptyRegistry(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "registry.json"), []byte(`{"format": "glimpse-registry", "version": 1, "models": []}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDefaultBudget: commands that answer have one budget, with which the built-in model is right.
func TestDefaultBudget(t *testing.T) {
	for _, c := range newRoot().Commands() {
		if f := c.Flags().Lookup("budget"); slices.Contains([]string{"run", "chat", "inspect"}, c.Name()) && f.DefValue != "50%" {
			t.Errorf("%s: --budget is %s by default, want 50%%", c.Name(), f.DefValue)
		}
	}
	for _, example := range []string{"needle", "hops", "section"} {
		_, log, err := execute(t, "run", "--example", example)
		if err != nil || !strings.Contains(log, "the answer is right") || !strings.Contains(log, "budget 256 (50%)") {
			t.Errorf("%s: %v, %s", example, err, log)
		}
	}
}

// The seed of an answer does not change the example.
func TestExampleSeed(t *testing.T) {
	prompt := func(args ...string) string {
		_, log, err := execute(t, append([]string{"run", "--example", "section", "--tokens", "64", "--policy", "full", "--max-new", "2"}, args...)...)
		if err != nil || !strings.Contains(log, "cut short at 2 tokens") {
			t.Fatalf("%v, %q", err, log)
		}
		line, _, _ := strings.Cut(log, "\n")
		return line
	}
	first := prompt()
	if prompt("--seed", "2") != first {
		t.Error("another seed changes the example")
	}
	if prompt("--example-seed", "2") == first {
		t.Error("another example is the same")
	}
}
