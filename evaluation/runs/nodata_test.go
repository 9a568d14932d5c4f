package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/eviction"
)

// Subtasks without data are left out where a task stands for all of its own, and are an
// error where they are asked for.
func TestSubtasksWithoutData(t *testing.T) {
	stream, err := datasets.NewStream([]string{"section"}, datasets.Test, 96, 1)
	if err != nil {
		t.Fatal(err)
	}
	evaluation.Tasks.Add("partly", evaluation.Task{Name: "partly", Subtasks: []string{"absent", "there", "absent too"},
		Open: func(_ context.Context, _ *evaluation.Setting, subtask string) (*evaluation.Samples, error) {
			if subtask != "there" {
				return nil, fmt.Errorf("folder has no %s: %w", subtask, evaluation.ErrNoData)
			}
			return &evaluation.Samples{Metric: evaluation.Agreement, Count: 1, Each: func(yield func(evaluation.Item) bool) {
				yield(evaluation.Item{ID: "a", Make: func(context.Context) (*evaluation.Sample, error) {
					e, err := stream.At(0)
					return &evaluation.Sample{Turns: []evaluation.Turn{{Prompt: evaluation.Fixed(e.Prompt), MaxNew: 4}}}, err
				}})
			}}, nil
		}})
	run := func(tasks string) (*Outcome, string, error) {
		j := small("")
		j.Tasks = []Task{{Task: tasks}}
		j.Policies, j.Budgets = Names{"full"}, []eviction.Budget{eviction.Pairs(8)}
		var log bytes.Buffer
		out, err := j.Run(t.Context(), &log)
		return out, log.String(), err
	}
	for _, all := range []string{"partly", "partly/all"} {
		out, log, err := run(all)
		if err != nil || out.Samples != 1 || !strings.Contains(log, "2 subtasks are left out, the first: task partly/absent: folder has no absent") {
			t.Errorf("%s: %+v, %v, log %q", all, out, err, log)
		}
	}
	if _, _, err := run("partly/there,partly/absent"); !errors.Is(err, evaluation.ErrNoData) {
		t.Errorf("a subtask that was asked for: error %v, want ErrNoData", err)
	}
}
