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
	dir := t.TempDir()
	grid := filepath.Join(dir, "sweep.yaml")
	text := "run: " + filepath.Join(dir, "run") + "\nadapters: [{kind: judgeq}]\ntokens: 64\ntrain: {steps: 1, batch: 1, validation: {samples: 1, budgets: [32]}}\nsweep: {rows: [2], learning_rate: [0.01]}\n"
	if err := os.WriteFile(grid, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{
		"plan":   "plan --preset lookaheadkv --tokens 64 --steps 2 --batch 1",
		"sweep":  "sweep " + grid,
		"config": "config",
	}
	for _, c := range newRoot().Commands() {
		if c.Flags().Lookup("json") == nil {
			continue
		}
		line, ok := lines[c.Name()]
		if !ok {
			t.Errorf("train %s --json is not compared with the document", c.Name())
			continue
		}
		out, _, err := execute(t, t.Context(), append(strings.Fields(line), "--json")...)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := clitest.CheckDocument(string(document), []byte(out)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
