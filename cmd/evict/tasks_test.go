package main

import (
	"encoding/json"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// TestTasks: the list has every task, each is described with its options, and all of them
// say where they come from.
func TestTasks(t *testing.T) {
	list, _, err := execute(t, "tasks")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range evaluation.Tasks.Names() {
		task, err := evaluation.Tasks.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if task.Doc == "" || task.Source == "" || task.Name != name || task.NeedsData && task.Data == "" {
			t.Errorf("%s: %+v lacks a text", name, task)
		}
		if !strings.Contains(list, "\n"+name+" ") {
			t.Errorf("the list lacks %s", name)
		}
		out, _, err := execute(t, "tasks", name, "--json")
		var got taskRow
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Options) != len(task.Options) || len(got.Subtasks) != len(task.Subtasks) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
		for _, o := range task.Options {
			if text, _, err := execute(t, "tasks", name); err != nil || !strings.Contains(text, name+"."+o.Name) || o.Doc == "" {
				t.Errorf("%s: option %s is not described", name, o.Name)
			}
		}
	}
	if _, _, err := execute(t, "tasks", "nope"); err == nil || !strings.Contains(err.Error(), `unknown task "nope"`) {
		t.Errorf("an unknown task: %v", err)
	}
}
