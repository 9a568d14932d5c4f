package main

import (
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints"
)

// TestGates: gates of either kind are learned of samples, and what cannot be learned is refused before.
func TestGates(t *testing.T) {
	dir := t.TempDir()
	samples, out := filepath.Join(dir, "samples.jsonl"), filepath.Join(dir, "gates")
	mustExecute(t, "generate", "--samples", "10", "--tokens", "64", "--out", samples)
	for _, c := range []struct {
		args, want string
		names      []string
	}{
		{"", "scores in contexts that were held out\n", checkpoints.LinearGate},
		{"--hidden 8 --steps 3 --batch 16 --rows 20", "scores in contexts that were held out, linear ones ", checkpoints.MLPGate},
	} {
		text, _ := mustExecute(t, append([]string{"gates", "--data", samples, "--samples", "10", "--out", out, "--replace"}, strings.Fields(c.args)...)...)
		a, err := checkpoints.ReadAdapter(out)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "of 10 contexts with 640 tokens") || !strings.Contains(text, c.want) || !a.Gates[0].Is(c.names) {
			t.Errorf("%s: %q, tensors %v", c.args, text, a.Gates[0])
		}
	}
	for _, c := range []struct{ want, args string }{
		{"--out is missing", "--data " + samples},
		{"--data is missing", "--out " + out},
		{"target already exists", "--data " + samples + " --out " + out},
		{"--ridge: got -1", "--ridge -1 --data " + samples + " --out " + out},
		{"gates with 3 numbers between, want at least 4", "--replace --hidden 3 --samples 2 --data " + samples + " --out " + out},
		{"learning rate: got 0", "--replace --hidden 8 --lr 0 --samples 2 --data " + samples + " --out " + out},
	} {
		if _, _, err := execute(t, t.Context(), append([]string{"gates"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.args, err, c.want)
		}
	}
}
