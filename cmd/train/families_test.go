package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestEveryFamilyTrains: a LookaheadKV adapter of every architecture has factors
// for all modules that the architecture has, and no others.
func TestEveryFamilyTrains(t *testing.T) {
	dir := t.TempDir()
	prompts := filepath.Join(dir, "prompts.jsonl")
	if err := os.WriteFile(prompts, []byte(`{"text": "On the third day of rain the old ferry broke loose"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, g := range modeltest.Some(t, modeltest.Goldens(t)) {
		m := modeltest.OpenFolder(t, os.DirFS(g.Folder), "cpu")
		architecture := m.Config.Architecture
		if seen[architecture] {
			continue
		}
		seen[architecture] = true
		t.Run(architecture, func(t *testing.T) {
			pairs, out := filepath.Join(dir, g.Name+".jsonl"), filepath.Join(dir, g.Name)
			if _, log, err := execute(t, t.Context(), "generate", "--model", g.Folder, "--prompts", prompts, "--max-new", "6", "--out", pairs); err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			if _, log, err := execute(t, t.Context(), "lookahead", "--model", g.Folder, "--data", pairs, "--steps", "1", "--batch", "1", "--rows", "2", "--rank", "2", "--out", out); err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			a, err := checkpoints.ReadAdapter(out)
			if err != nil {
				t.Fatal(err)
			}
			family, err := model.Families.Lookup(architecture)
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			first := m.Config.FirstAttention()
			for key := range a.LoRA {
				if key.Layer == first {
					got = append(got, key.Module)
				}
			}
			for _, s := range family.Sites(&m.Config) {
				if s.Module.ReachesScores(first, m.Config.ScoredLayers()) {
					want = append(want, string(s.Module))
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("factors for %s, want %s", strings.Join(got, ", "), strings.Join(want, ", "))
			}
		})
	}
	if len(seen) != len(model.Families.Names()) && !testing.Short() {
		t.Errorf("golden folders of %d architectures, want %d", len(seen), len(model.Families.Names()))
	}
}
