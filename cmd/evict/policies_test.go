package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// untrained is the folder of an adapter of a kind for the built-in model, "" of no kind.
func untrained(t *testing.T, kind string) string {
	t.Helper()
	k, err := model.AdapterKinds.Lookup(kind)
	if err != nil {
		return ""
	}
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a, err := k.Usual(m)
	if err != nil {
		t.Fatal(err)
	}
	stored := a.Export()
	stored.Base.Name, stored.PoolingKernel, stored.Loss = m.Name, 1, "kl"
	if stored.Base.SHA256, err = m.SHA256(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(stored.LoRA) > 0 {
		stored.InvocationTokens = []int{1}
	}
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := checkpoints.WriteAdapter(dir, stored, false); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPolicyIsDescribed: every policy is described with its rule, its source, every option with its default and
// range, and a command that runs.
func TestPolicyIsDescribed(t *testing.T) {
	tried := modeltest.Some(t, eviction.Policies.Names())
	for _, name := range eviction.Policies.Names() {
		t.Run(name, func(t *testing.T) {
			p, err := eviction.Policies.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			out, _, err := execute(t, "policies", name)
			if err != nil {
				t.Fatal(err)
			}
			wants := []string{p.Doc, p.Source}
			for _, o := range p.Options {
				wants = append(wants, name+"."+o.Name, " "+o.FormatValue(o.Start())+" ", o.Range(), o.Doc)
			}
			for _, want := range wants {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			_, example, _ := strings.Cut(out, "example  ")
			example, _, _ = strings.Cut(example, "\n")
			args := strings.Fields(strings.ReplaceAll(example, ownAdapter, untrained(t, p.Adapter)))
			if len(args) < 2 || args[0] != "evict" {
				t.Fatalf("example %q", example)
			}
			if !slices.Contains(tried, name) {
				return
			}
			if answer, log, err := execute(t, append(args[1:], "--tokens", "96", "--max-new", "2")...); err != nil || answer == "" {
				t.Errorf("%s: %v, %q\n%s", example, err, answer, log)
			}
		})
	}
	if out, _, err := execute(t, "policies", "snapkv"); err != nil || !strings.Contains(out, "snapkv.kernel") || !strings.Contains(out, "an odd number from 1 to 4095") || !strings.Contains(out, "a whole number from 1 to 1048576") {
		t.Errorf("snapkv: %v\n%s", err, out)
	}
}
