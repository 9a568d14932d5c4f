package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/model/modeltest"
)

// TestGenerateSampling: greedy unless the model is asked, and the header says what it
// was.
func TestGenerateSampling(t *testing.T) {
	g, dir := modeltest.GoldenNamed(t, "qwen3"), t.TempDir()
	folder := filepath.Join(dir, "model")
	if err := os.CopyFS(folder, os.DirFS(g.Folder)); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"model/generation_config.json": `{"eos_token_id": 255, "do_sample": true, "temperature": 2, "top_k": 9, "min_p": 0.01, "no_repeat_ngram_size": 1}`,
		"prompts.jsonl":                `{"id": "a", "text": "` + g.Prompts[1].Text + `"}` + "\n",
		"config.yaml":                  "model: " + folder + "\nsampling: model\ntop_k: 5\nmax_new: 16\nsources:\n  - {path: " + filepath.Join(dir, "prompts.jsonl") + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	generate := func(args ...string) (datasets.PairHeader, datasets.Pair) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "pairs.jsonl")
		if _, _, err := execute(t, t.Context(), append([]string{"generate", "--out", out}, args...)...); err != nil {
			t.Fatal(err)
		}
		r, err := datasets.OpenPairs(out)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		p, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		return r.Header(), p
	}
	flags := []string{"--model", folder, "--prompts", filepath.Join(dir, "prompts.jsonl"), "--max-new", "16"}
	h, p := generate(flags...)
	if want := (datasets.Sampling{TopP: 1, MaxNewTokens: 16}); h.Sampling != want || !slices.Equal(p.ResponseIDs, g.Prompts[1].Greedy) {
		t.Errorf("by default %+v, %v, want %+v and %v", h.Sampling, p.ResponseIDs, want, g.Prompts[1].Greedy)
	}
	h, _ = generate(append(flags, "--top-k", "3")...)
	if want := (datasets.Sampling{Temperature: 1, TopP: 1, TopK: 3, MaxNewTokens: 16}); h.Sampling != want {
		t.Errorf("top-k alone: %+v, want %+v", h.Sampling, want)
	}
	// The configuration goes before the model's file, and flags before the configuration.
	want := datasets.Sampling{Temperature: 2, TopP: 1, TopK: 5, MinP: 0.01, MaxNewTokens: 16, Processors: "no_repeat_ngram_size 1"}
	h, p = generate(filepath.Join(dir, "config.yaml"))
	if h.Sampling != want {
		t.Errorf("of the model: %+v, want %+v", h.Sampling, want)
	}
	for i, id := range p.ResponseIDs {
		if slices.Contains(p.PromptIDs, id) || slices.Contains(p.ResponseIDs[:i], id) {
			t.Errorf("token %d again, in %v", id, p.ResponseIDs)
		}
	}
	want.Temperature = 0.5
	if h, _ = generate(filepath.Join(dir, "config.yaml"), "--temperature", "0.5"); h.Sampling != want {
		t.Errorf("with a flag: %+v, want %+v", h.Sampling, want)
	}
	_, _, err := execute(t, t.Context(), "generate", "--out", filepath.Join(dir, "x"), "--temperature", "0", "--top-p", "0.5")
	if err == nil || !strings.Contains(err.Error(), "temperature: got 0, which is greedy") {
		t.Errorf("error %v", err)
	}
}
