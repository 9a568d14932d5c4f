package runs

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/eviction"
)

// TestResumeAddsPoliciesAndBudgets: a run goes on with more policies, budgets and adapters than it was begun
// with. What it lacks is measured, by one process and by several, and comes to the bytes of a run of all.
func TestResumeAddsPoliciesAndBudgets(t *testing.T) {
	shipped := filepath.Join("..", "..", "adapters", "reference")
	for _, c := range []struct {
		name            string
		before, added   string // policies
		budgets, more   string
		adapters        []string // before, and one that is added
		caches, prompts int      // that are measured in addition
	}{
		{name: "a policy", before: "full,snapkv,tova(kernel=3)", added: "h2o", budgets: "16,20%", caches: 18, prompts: 9},
		{name: "a policy with options", before: "full,snapkv", added: "snapkv(kernel=1)", budgets: "16", caches: 9, prompts: 9},
		{name: "the full cache", before: "snapkv", added: "full", budgets: "16,20%", caches: 9, prompts: 9},
		{name: "a budget", before: "full,snapkv", budgets: "16", more: "8", caches: 9, prompts: 9},
		{name: "both", before: "full,snapkv", added: "quest", budgets: "16", more: "20%", caches: 27, prompts: 9},
		{name: "one of each that is there", before: "full,snapkv,tova", added: "tova,random", budgets: "16,8", more: "8", caches: 18, prompts: 9},
		{name: "nothing", before: "full,snapkv", budgets: "16"},
		{name: "an adapter", before: "full,lookaheadkv", budgets: "16", adapters: []string{"a=" + shipped + "/lookaheadkv", "b=" + shipped + "/lookaheadkv"}, caches: 9, prompts: 9},
	} {
		if testing.Short() && c.name != "both" && c.name != "an adapter" {
			continue // these are all that can be added
		}
		t.Run(c.name, func(t *testing.T) {
			job := func(out string, adapters int, policies, budgets string) *Job {
				j := small(out)
				j.Policies, j.Budgets = nil, nil
				if policies = strings.Trim(policies, ","); policies != "" {
					j.Policies = Names{policies}
				}
				if budgets = strings.Trim(budgets, ","); budgets != "" {
					var err error
					if j.Budgets, err = eviction.ParseBudgets(budgets); err != nil {
						t.Fatal(err)
					}
				}
				if c.adapters != nil {
					j.Models = []Subject{{Adapters: c.adapters[:adapters]}}
				}
				return j
			}
			dir, whole := t.TempDir(), t.TempDir()
			if _, err := job(dir, 1, c.before, c.budgets).Run(t.Context(), io.Discard); err != nil {
				t.Fatal(err)
			}
			shared := t.TempDir()
			if err := os.CopyFS(shared, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			policies := c.before + "," + strings.TrimPrefix(c.added, "tova,")
			budgets := c.budgets
			if !strings.Contains(","+budgets+",", ","+c.more+",") {
				budgets += "," + c.more
			}
			if _, err := job(whole, 2, policies, budgets).Run(t.Context(), io.Discard); err != nil {
				t.Fatal(err)
			}
			more := job(dir, 2, c.added, c.more)
			more.Resume = true
			out, err := more.Run(t.Context(), io.Discard)
			if err != nil || out.Caches != c.caches || out.Prompts != c.prompts {
				t.Fatalf("%+v, %v: want %d caches of %d prompts", out, err, c.caches, c.prompts)
			}
			sameFiles(t, "added", dir, whole)
			if got := read(t, dir, EnvironmentFile); got != read(t, whole, EnvironmentFile) {
				t.Errorf("the environment differs: %s", got)
			}
			if _, err := together(t.Context(), 3, func() *Job {
				more := job(shared, 2, c.added, c.more)
				more.Resume = true
				return more
			}); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, "added by three processes", shared, whole)
		})
	}
}

// TestAddingIsStopped: a run to which a policy is added, and that is stopped on the way, has lost nothing; it
// goes on without naming what was added.
func TestAddingIsStopped(t *testing.T) {
	dir, whole := t.TempDir(), t.TempDir()
	if _, err := small(dir).Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	j := small(dir)
	j.Resume, j.Concurrent, j.Policies = true, 1, Names{"h2o"}
	log := &stopAt{text: "/9 prompts", after: 3, stop: cancel}
	out, err := j.Run(ctx, log)
	if err == nil {
		t.Fatal("it came to its end")
	}
	if len(out.Rows) == 0 || out.Samples != 9 {
		t.Errorf("%+v: want the rows of all 9 samples", out)
	}
	stored, err := Read(t.Context(), dir, 1, j.S3)
	if err != nil || len(stored.Predictions) <= 45 || len(stored.Predictions) >= 63 || stored.Damage != "" {
		t.Fatalf("%d predictions, %v: want the 45 of before and some of what was added", len(stored.Predictions), err)
	}
	j = small(dir)
	j.Resume, j.Policies, j.Budgets = true, nil, nil
	if _, err := j.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	all := small(whole)
	all.Policies = Names{"full,snapkv,tova(kernel=3),h2o"}
	if _, err := all.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "stopped while adding", dir, whole)
}

// stopAt calls stop when a text was written so often.
type stopAt struct {
	text  string
	after int
	stop  func()
}

func (s *stopAt) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		if s.after--; s.after == 0 {
			s.stop()
		}
	}
	return len(p), nil
}

// TestAddingIsRefused: what a run cannot be given more of is named.
func TestAddingIsRefused(t *testing.T) {
	data, dir := t.TempDir(), t.TempDir()
	prompts(t, data, "prompts.jsonl", "11")
	first := onData(t, data, dir)
	first.Tasks = first.Tasks[:1]
	if _, err := first.Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir)
	for want, change := range map[string]func(j *Job){
		"max_new (was 4, is 8)":  func(j *Job) { j.MaxNew = 8 },
		"set (was not set, is":   func(j *Job) { j.Set = []string{"snapkv.kernel=1"} },
		`begun with models [""]`: func(j *Job) { j.Models = []Subject{{}, {Model: "other"}} },
		`"adapter judgeq shipped" is gone`: func(j *Job) {
			j.Models = []Subject{{Adapters: []string{"x=../../adapters/reference/lookaheadkv"}}}
			j.Policies = Names{"lookaheadkv"}
		},
		"the data have changed since": func(j *Job) { prompts(t, data, "prompts.jsonl", "13") },
	} {
		j := onData(t, data, dir)
		j.Tasks, j.Resume, j.Policies = j.Tasks[:1], true, Names{"h2o"}
		change(j)
		if _, err := j.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		prompts(t, data, "prompts.jsonl", "11")
	}
	for path, text := range tree(t, dir) {
		if before[path] != text {
			t.Errorf("%s has changed", path)
		}
	}
}
