package runs

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/internal/listing"

	"go.yaml.in/yaml/v3"
)

// Joined is several runs as one.
type Joined struct {
	Models      []string // in order of appearance
	Tasks       []string // the same
	Predictions []*evaluation.Prediction
	Timings     []evaluation.Timing
	Kept        []*evaluation.Kept
}

// Join makes one of runs over different models, tasks, policies or samples. What two runs
// have both, as the full cache, must be the same in both; and runs of one task with one
// model must have been asked the same, since policies are compared sample by sample.
func Join(all []*Stored) (*Joined, error) {
	type cell struct {
		model, task, policy, adapter, budget string
		index                                int
	}
	type found struct {
		p   *evaluation.Prediction
		run *Stored
	}
	type pair struct{ model, task string }
	out := new(Joined)
	seen := make(map[cell]found)
	runsOf := make(map[pair][]*Stored)
	for _, s := range all {
		for _, p := range s.Predictions {
			at := pair{p.Model, p.Task}
			if others := runsOf[at]; !slices.Contains(others, s) {
				for _, o := range others {
					if err := sameQuestions(o, s, p.Model, p.Task); err != nil {
						return nil, err
					}
				}
				runsOf[at] = append(others, s)
			}
			c := cell{p.Model, p.Task, p.Policy, p.Adapter, p.Budget, p.Index}
			if other, ok := seen[c]; ok {
				if !sameResult(other.p, p) {
					return nil, fmt.Errorf("task %s, sample %s, policy %q at budget %q: %s and %s have different results; report on them one by one", p.Task, p.Sample, p.Policy, p.Budget, other.run.Path, s.Path)
				}
				continue
			}
			seen[c] = found{p, s}
			out.Predictions = append(out.Predictions, p)
		}
		out.Timings, out.Kept = append(out.Timings, s.Timings...), append(out.Kept, s.Kept...)
	}
	out.Models, out.Tasks = namesIn(out.Predictions)
	evaluation.SortPredictions(out.Predictions, out.Models, out.Tasks)
	sortedKept(out.Kept, out.Models, out.Tasks)
	return out, nil
}

// namesIn are the models and the tasks of predictions in order of appearance.
func namesIn(all []*evaluation.Prediction) (models, tasks []string) {
	for _, p := range all {
		models, tasks = listing.Union(models, p.Model), listing.Union(tasks, p.Task)
	}
	return models, tasks
}

// sameMeasure is the relative difference up to which two measures are the same: a likelihood's last digits
// depend on how many caches were decoded together at the time.
const sameMeasure = 1e-6

// sameResult tells whether two predictions of one cell say the same.
func sameResult(a, b *evaluation.Prediction) bool {
	x, y := *a, *b
	x.Cells, y.Cells = 0, 0
	x.Measures, y.Measures = nil, nil
	for name, v := range a.Measures { // one run may have measured more
		if w, ok := b.Measures[name]; ok && math.Abs(v-w) > sameMeasure*max(1, math.Abs(v)) {
			return false
		}
	}
	return reflect.DeepEqual(&x, &y)
}

// sameQuestions is an error unless two runs have asked one model the same samples of a task.
func sameQuestions(a, b *Stored, model, task string) error {
	fail := func(what string) error {
		return fmt.Errorf("%s and %s: model %s, task %s: %s; report on them one by one", a.Path, b.Path, model, task, what)
	}
	if !a.Environment.model(model).sameWeights(b.Environment.model(model)) {
		return fail("the weights are not the same")
	}
	var contents [2]datasets.Contents
	var settings [2]map[string]any
	for i, s := range []*Stored{a, b} {
		var err error
		if contents[i], err = contentsIn(s.Config); err == nil {
			settings[i], err = samplesConfig(s.Config, task)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.Path, ConfigFile, err)
		}
	}
	if changed := contents[1].Changed(contents[0]); changed != "" {
		return fail("the data are not the same: " + changed)
	}
	if differ := differing(settings[0], settings[1]); len(differ) > 0 {
		return fail("they were measured with different " + strings.Join(differ, ", "))
	}
	return nil
}

// compared are the keys that runs which are joined may differ in, beside those that a run
// may be continued with: what they compare, and what is measured beside the score.
var compared = append([]string{"models", "policies", "set", "budgets", "tasks", "agreement"}, free...)

// samplesConfig are the settings of a configuration that decide what is asked in a task.
func samplesConfig(config []byte, task string) (map[string]any, error) {
	var top map[string]any
	if err := yaml.Unmarshal(config, &top); err != nil {
		return nil, err
	}
	entries, _ := top["tasks"].([]any)
	for _, key := range compared {
		delete(top, key)
	}
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		list, _ := entry["task"].(string)
		if name, _ := entry["name"].(string); !ok || name != task && (name != "" || !asksFor(list, task)) {
			continue
		}
		for k, v := range entry { // its own settings win over the settings for all tasks
			if k != "task" && k != "name" && k != "samples" {
				top[k] = v
			}
		}
	}
	return top, nil
}

// asksFor tells whether a list of tasks has one of that name among them.
func asksFor(list, task string) bool {
	selections, err := evaluation.ParseTasks(list)
	if err != nil { // a task of another version
		return strings.Contains(list, task)
	}
	return slices.ContainsFunc(selections, func(s evaluation.Selection) bool { return s.Name() == task })
}
