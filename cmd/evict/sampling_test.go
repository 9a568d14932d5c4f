package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// withGeneration copies a golden model and gives it a generation_config.json.
func withGeneration(t *testing.T, name, file string) (dir string, g modeltest.Golden) {
	t.Helper()
	g, dir = modeltest.GoldenNamed(t, name), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(g.Folder)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, g
}

// TestRunSamplesAsTheModelSays: the file counts, flags go before it, and what is not
// followed is said once.
func TestRunSamplesAsTheModelSays(t *testing.T) {
	dir, g := withGeneration(t, "qwen3", `{"eos_token_id": 255, "do_sample": true, "temperature": 3, "top_k": 0, "repetition_penalty": 1.5, "num_beams": 2}`)
	run := func(args ...string) (string, string) {
		t.Helper()
		out, log, err := execute(t, append([]string{"run", "--model", dir, "--policy", "full", "--raw", "--max-new", "16", g.Prompts[0].Text}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimRight(out, "\n"), log
	}
	greedy := g.Prompts[0].GreedyText
	out, log := run()
	if out == greedy {
		t.Error("the model's file does nothing")
	}
	const want = "sampling with the model's generation_config.json: temperature 3, repetition_penalty 1.5; not followed: \"num_beams\" 2\n"
	if strings.Count(log, want) != 1 {
		t.Errorf("log %q, want once %q", log, want)
	}
	if again, _ := run(); again != out {
		t.Errorf("one seed gives %q and %q", out, again)
	}
	if other, _ := run("--seed", "2"); other == out {
		t.Errorf("two seeds give %q", out)
	}
	if out, log := run("--sampling", "greedy"); out != greedy || strings.Contains(log, "generation_config") {
		t.Errorf("--sampling greedy gives %q, want %q", out, greedy)
	}
	if out, _ := run("--temperature", "0", "--repetition-penalty", "1"); out != greedy {
		t.Errorf("flags give %q, want %q", out, greedy)
	}
	if out, _ := run("--sampling", "greedy", "--top-k", "40", "--seed", "3"); out == greedy {
		t.Error("--top-k alone does nothing")
	}
}

// TestProcessorsSeeThePrompt: also what was evicted of it.
func TestProcessorsSeeThePrompt(t *testing.T) {
	dir, g := withGeneration(t, "qwen3", `{"eos_token_id": 255, "no_repeat_ngram_size": 1}`)
	if err := os.Remove(filepath.Join(dir, "tokenizer.json")); err != nil { // ids are printed then
		t.Fatal(err)
	}
	prompt := strings.Fields(strings.Trim(fmt.Sprint(g.Prompts[1].IDs), "[]"))
	ids := filepath.Join(dir, "ids")
	if err := os.WriteFile(ids, []byte(strings.Join(prompt, " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"full", "snapkv"} {
		out, _, err := execute(t, "run", "--model", dir, "--policy", policy, "--budget", "40", "--max-new", "60", "--token-ids", ids)
		if err != nil {
			t.Fatal(err)
		}
		said := strings.Fields(out)
		for i, id := range said {
			if slices.Contains(prompt, id) || slices.Contains(said[:i], id) {
				t.Errorf("%s: token %s again, in %v", policy, id, said)
			}
		}
		if len(said) < 40 {
			t.Errorf("%s: %d tokens", policy, len(said))
		}
	}
}
