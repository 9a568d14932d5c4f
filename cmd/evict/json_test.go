package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/internal/clitest"
)

// TestJSONIsDocumented: every command that prints JSON prints an object with the schema and the
// values of docs/json.md.
func TestJSONIsDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "p.jsonl")
	prompts(t, data, 4, 1, 64)
	lines := map[string][]string{
		"run":       {"run --example section --tokens 96 --policy snapkv --budget 32 --compare", "run --example section --tokens 96 --policy snapkv --budget 50% --max-new 2"},
		"calibrate": {"calibrate --policy snapkv --budget 95% --max-new 4 --confidence 0.5 --epsilon 0.9 --data " + data + " --out " + filepath.Join(t.TempDir(), "run")},
		"chat":      {"chat --example turns_section --tokens 96 --policy snapkv --budget 64 --max-new 4"},
		"compress":  {"compress " + contextFile(t) + " --policy snapkv --budget 8 --out " + filepath.Join(t.TempDir(), "doc.kv")},
		"costs":     {"costs --policy full,snapkv --tokens 64"},
		"doctor":    {"doctor"},
		"eval":      {"eval --policy full,lookaheadkv --budget 32 --task section --samples 1 --tokens 96", "eval --policy snapkv --budget 32 --task needle --samples 1 --tokens 96 --groups"},
		"inspect":   {"inspect --policy snapkv --budget 32 --example section --tokens 64", "inspect --queries --example section --tokens 64 --query-trials 1"},
		"list":      {"list"},
		"models":    {"models"},
		"patterns":  {"patterns --samples 1 --tokens 64"},
		"policies":  {"policies", "policies snapkv"},
		"tasks":     {"tasks", "tasks niah"},
		"config":    {"config"},
		"judge":     nil, // prints what eval does, of a server's judgements
	}
	for _, c := range newRoot().Commands() {
		if c.Flags().Lookup("json") == nil {
			continue
		}
		if _, ok := lines[c.Name()]; !ok {
			t.Errorf("evict %s --json is not compared with the document", c.Name())
		}
		for _, line := range lines[c.Name()] {
			t.Run(line, func(t *testing.T) {
				out, _, err := execute(t, append(strings.Fields(line), "--json")...)
				if err != nil {
					t.Fatal(err)
				}
				if err := clitest.CheckDocument(string(document), []byte(out)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
