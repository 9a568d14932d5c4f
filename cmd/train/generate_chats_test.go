package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

// TestGenerateFromChats: an assistant's turn at the end of a record is its answer and no part of the
// prompt, under every recipe that answers turns; what no prompt is made of is said once.
func TestGenerateFromChats(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	run := func(prompts string, more ...string) (pairs []datasets.Pair, log string) {
		t.Helper()
		out := filepath.Join(dir, "out.jsonl")
		_, log, err := execute(t, t.Context(), append([]string{"generate", "--prompts", prompts, "--max-new", "3", "--replace", "-o", out}, more...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if _, pairs, err = datasets.ReadPairs(out); err != nil {
			t.Fatal(err)
		}
		return pairs, log
	}
	asked, log := run(write("asked.jsonl", `{"messages": [{"role": "user", "content": "anna calls"}]}`))
	if strings.Contains(log, "answer") || strings.Contains(log, "field") {
		t.Errorf("log of a question alone: %s", log)
	}
	said := []int32{int32(slices.Index(datasets.Vocabulary(), "bruno"))}
	turns := `{"role": "user", "content": "anna calls", "name": "x"}, {"role": "assistant", "content": "bruno"}]`
	for name, row := range map[string]string{
		"messages":   `{"messages": [` + turns + `, "tools": [{"a": 1}], "documents": [{"b": 2}]}`,
		"completion": `{"prompt": [{"role": "user", "content": "anna calls", "name": "x"}], "completion": "bruno", "tools": "[{}]", "documents": ["c"]}`,
		"ShareGPT":   `{"documents": "d", "tools": [{}], "conversations": [{"from": "Human", "value": "anna calls", "name": "x"}, {"from": "GPT", "value": "bruno"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			prompts := write("rows.jsonl", row, row)
			for _, recipe := range []string{"asis", "lookaheadkv"} {
				pairs, log := run(prompts, "--recipe", recipe)
				if len(pairs) != 2 || !slices.Equal(pairs[0].PromptIDs, asked[0].PromptIDs) || !slices.Equal(pairs[1].ResponseIDs, asked[0].ResponseIDs) {
					t.Errorf("%s: pairs %v, want prompts and responses of %v", recipe, pairs, asked)
				}
				for _, notice := range []string{
					"an assistant's turn at the end of a record is its answer", `field "documents" of rows`,
					`field "tools" of rows is not in their prompts: the chat template of model glimpse-reference does not read it`, `field "name" of rows`,
				} {
					if n := strings.Count(log, notice); n != 1 {
						t.Errorf("%s: %q is said %d times, want once:\n%s", recipe, notice, n, log)
					}
				}
			}
			if pairs, _ := run(prompts, "--responses", "source"); len(pairs) != 2 || !slices.Equal(pairs[0].ResponseIDs, said) {
				t.Errorf("responses of the source: %v, want %v", pairs, said)
			}
		})
	}
}

// TestGenerateRefusedByTemplate: what the template does not take is told with its row.
func TestGenerateRefusedByTemplate(t *testing.T) {
	prompts := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(prompts, []byte(`{"system": "map", "prompt": "anna calls"}`+"\n"+`{"prompt": "anna calls"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	_, log, err := execute(t, t.Context(), "generate", "--prompts", prompts, "--max-new", "2", "-o", prompts+".pairs")
	if want := "left out: prompt rows.jsonl:1: model glimpse-reference: chat template: "; err != nil || !strings.Contains(log, want) || !strings.Contains(log, "knows the roles user and assistant only") || !strings.Contains(log, "1 sample, ") {
		t.Errorf("log %q, %v, want %q", log, err, want)
	}
}
