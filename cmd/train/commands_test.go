package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/internal/clitest"
	"glimpse/model/modeltest"
)

func TestMentionedCommands(t *testing.T) { clitest.CheckMentions(t, newRoot()) }

// TestPrintedCommandsRun: what messages tell people to run runs.
func TestPrintedCommandsRun(t *testing.T) {
	model, prompts := t.TempDir(), filepath.Join(t.TempDir(), "prompts")
	if err := os.CopyFS(model, modeltest.WithFiles(t, map[string]any{"tokenizer.json": modeltest.ByteTokenizer("<|end|>")})); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(prompts, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(prompts, fmt.Sprint(i, ".txt")), []byte(strings.Repeat("What is in box "+fmt.Sprint(i)+"? ", 3)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clitest.RunCommands(t, "train", map[string]string{"model": model, "prompts": prompts}, map[string][]string{
		"generate": {"--max-new", "4"}, "lookahead": {"--steps", "2", "--batch", "2"},
	}, func(args []string) error {
		_, log, err := execute(t, t.Context(), args...)
		if err != nil {
			t.Log(log)
		}
		return err
	})
	// A model of other words is told so before its weights are read, with what makes samples for it.
	_, log, err := execute(t, t.Context(), "lookahead", "--model", model, "--steps", "1", "--out", "other")
	if err == nil || !strings.Contains(err.Error(), "does not know the words of the synthetic tasks; --data takes samples of its own, which \"train generate --model "+model+" --prompts PROMPTS") {
		t.Errorf("%v, want the command that makes samples\n%s", err, log)
	}
	if _, _, err := execute(t, t.Context(), "generate", "--model", model, "--out", "other.jsonl"); err == nil || !strings.Contains(err.Error(), "--prompts takes a file or a folder of its own") {
		t.Errorf("%v, want --prompts", err)
	}
}
