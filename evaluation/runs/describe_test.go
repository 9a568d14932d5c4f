package runs

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// described is what Describe says of a job, and its error.
func described(t *testing.T, j *Job) (string, string) {
	t.Helper()
	var out, log strings.Builder
	err := j.Describe(t.Context(), &out, &log)
	if err == nil {
		return strings.Join(strings.Fields(out.String()), " "), ""
	}
	return strings.Join(strings.Fields(out.String()), " "), err.Error()
}

// TestDescribe: what is there is counted and measured in tokens, and what is missing or cannot be used is
// named all at once, before a weight is read.
func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	prompts(t, dir, "notes.jsonl", "11")
	prompts(t, dir, "long.jsonl", strings.TrimSuffix(strings.Repeat("11, ", 300), ", "))
	for name, text := range map[string]string{
		"broken.jsonl":          `{"prompt_ids": [11, 12]}` + "\n" + `{"prompt_ids": "x"}` + "\n" + `{"prompt_ids": [11]}` + "\n{",
		"bench/lcc.jsonl":       `{"context": "anna calls bruno", "input": "lamp", "answers": ["anna"]}` + "\n",
		"bench/notlisted.jsonl": `{}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	data := func(name string) []Task {
		return []Task{{Task: "data", Shared: Shared{Data: filepath.Join(dir, name), Samples: 10, MaxNew: 4}}}
	}
	for _, c := range []struct {
		name   string
		change func(j *Job)
		says   []string
		err    string
		not    string
	}{
		{name: "all is there", change: func(j *Job) { j.Tasks = data("notes.jsonl") },
			says: []string{"task notes 3 prompts of 41 tokens", "time about", "for 3 prompts at", "6 answers to each of 4 tokens", "memory", "at the longest prompt"}},
		{name: "prompts that are made", change: func(j *Job) { j.Tasks = []Task{{Task: "section"}} },
			says: []string{"task section 3 prompts of 96 tokens, made, scored by exact_answer"}},
		{name: "broken rows", change: func(j *Job) { j.Tasks = data("broken.jsonl") }, err: "1 thing missing, or cannot be used",
			says: []string{"task broken 4 prompts of 1 to 2 tokens", "UNUSABLE 2 of 4 prompts: " + dir + `/broken.jsonl:2: field "prompt_ids": got "x", want an array of token ids`, "; " + dir + "/broken.jsonl:4: got the end of the line"}},
		{name: "prompts that are too long", change: func(j *Job) { j.Tasks = data("long.jsonl") }, err: "1 thing missing",
			says: []string{"UNUSABLE 3 of 3 prompts, 3 too long for the model with the answer: "}},
		{name: "a file of a benchmark's many", change: func(j *Job) { j.Tasks = []Task{{Task: "longbench", Shared: Shared{Data: filepath.Join(dir, "bench")}}} },
			says: []string{"task longbench/lcc", "1 prompt", "left out 15 tasks without data: longbench/narrativeqa, "}, not: "task longbench/qasper", err: "1 thing missing"},
		{name: "a part that was asked for", change: func(j *Job) {
			j.Tasks = []Task{{Task: "longbench/qasper", Shared: Shared{Data: filepath.Join(dir, "bench")}}}
		},
			says: []string{"task longbench/qasper MISSING", "has no qasper"}, err: "1 thing missing"},
		{name: "adapters and data", change: func(j *Job) {
			j.Models, j.Tasks = []Subject{{Adapters: []string{"mine=" + dir + "/adapter"}}}, data("absent.jsonl")
			j.Policies = Names{"full,lookaheadkv"}
		}, says: []string{"needs MISSING adapter " + dir + "/adapter", "task absent MISSING data " + dir + "/absent.jsonl"}, err: "2 things missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := small(filepath.Join(dir, "run"))
			c.change(j)
			out, err := described(t, j)
			for _, want := range c.says {
				if !strings.Contains(strings.ReplaceAll(out, " ", ""), strings.ReplaceAll(want, " ", "")) {
					t.Errorf("%q does not say %q", out, want)
				}
			}
			if (err == "") != (c.err == "") || !strings.Contains(err, c.err) || c.not != "" && strings.Contains(out, c.not) {
				t.Errorf("error %q, want %q; %q", err, c.err, out)
			}
			if _, err := os.Stat(j.Out); err == nil {
				t.Errorf("it has made the run's folder")
			}
		})
	}
}

// TestDescribeAsksNoNetwork: of a model that only the hub has, and of policies that need an adapter, is told what
// there is to tell.
func TestDescribeAsksNoNetwork(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the hub was asked for %s", r.URL) }))
	defer server.Close()
	t.Setenv("HF_ENDPOINT", server.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
	dir := t.TempDir()
	prompts(t, dir, "notes.jsonl", "11")
	j := small("")
	j.Models, j.Policies = []Subject{{Model: "org/absent"}}, Names{"full,lookaheadkv"}
	j.Tasks = []Task{{Task: "data", Shared: Shared{Data: filepath.Join(dir, "notes.jsonl")}}}
	out, err := described(t, j)
	for _, want := range []string{"model org/absent is not on this machine: a run fetches all of it", "policy lookaheadkv MISSING an adapter", "task notes 3 prompts of "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q does not say %q", out, want)
		}
	}
	if !strings.Contains(err, "1 thing missing") {
		t.Errorf("error %q", err)
	}
	for _, left := range []string{"full,lookaheadkv?", "all"} { // which a run leaves out
		j.Policies = Names{left}
		if out, err := described(t, j); err != "" || strings.Contains(out, "MISSING") {
			t.Errorf("%s: %s, %q", left, err, out)
		}
	}
	j.Policies = Names{"full"}
	if _, err := described(t, j); err != "" {
		t.Errorf("a model that a run fetches is no error: %s", err)
	}
}
