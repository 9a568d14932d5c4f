package main

import (
	"strings"
	"testing"

	"glimpse/internal/clitest"
	"glimpse/internal/commands"
)

func TestMentionedCommands(t *testing.T) { clitest.CheckMentions(t, newRoot()) }

// TestPrintedCommandsRun: what messages tell people to run runs.
func TestPrintedCommandsRun(t *testing.T) {
	model := untemplated(t, nil)
	clitest.RunCommands(t, "evict", map[string]string{
		"model": model, "pattern": "out-pattern", "policy": "snapkv", "policies": "full,snapkv", "run": "run", "config": "run/config.yaml",
	}, map[string][]string{
		"eval": {"--task", "section", "--samples", "2", "--tokens", "64"}, "patterns": {"--samples", "1", "--tokens", "96"},
	}, func(args []string) error {
		_, log, err := execute(t, args...)
		if err != nil {
			t.Log(log)
		}
		return err
	})
	// The hint of a model without an adapter is of these.
	if _, log, err := execute(t, "run", "--model", model, "--max-new", "1", "hi"); err != nil || !strings.Contains(log, commands.Generate.With("model", model)) || !strings.Contains(log, commands.Lookahead.With("model", model)) {
		t.Errorf("%v, want the commands that make an adapter in\n%s", err, log)
	}
}
