package runs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDataIsCalledByItsFile: results of one's own data have the name of its file, and as much of the path as
// tells files of one name apart.
func TestDataIsCalledByItsFile(t *testing.T) {
	for _, c := range []struct {
		data, tasks string
		want        []string
	}{
		{"notes.jsonl,mails.csv", "", []string{"notes", "mails"}},
		{"a/notes.jsonl.gz,b/mails.v2.json", "", []string{"notes", "mails.v2"}},
		{"folder/,s3://bucket/team/tickets.parquet", "", []string{"folder", "tickets"}},
		{"notes.jsonl,notes.csv", "", []string{"notes.jsonl", "notes.csv"}},
		{"june/notes.jsonl,july/notes.jsonl,mails.jsonl", "", []string{"notes.jsonl (june)", "notes.jsonl (july)", "mails"}},
		{"x/a/notes.jsonl,y/a/notes.jsonl", "", []string{"notes.jsonl (x/a)", "notes.jsonl (y/a)"}},
		{"section.jsonl", "section", []string{"section.jsonl", "section"}},
		{".hidden", "", []string{".hidden"}},
		{"-", "", []string{"data"}},
	} {
		j := small("")
		j.Tasks = nil
		for data := range strings.SplitSeq(c.data, ",") {
			j.Tasks = append(j.Tasks, Task{Task: "data", Shared: Shared{Data: data}})
		}
		if c.tasks != "" {
			j.Tasks = append(j.Tasks, Task{Task: c.tasks})
		}
		for range 2 { // and once more as the configuration then has them
			plans, err := j.checkedPlans()
			if err != nil {
				t.Fatal(c.data, err)
			}
			var got []string
			for _, p := range plans {
				got = append(got, p.name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: called %q, want %q", c.data, got, c.want)
			}
		}
	}
	list := small("") // among others in one list
	list.Data, list.Tasks = "notes.jsonl", []Task{{Task: "section, data,hops"}}
	if plans, err := list.checkedPlans(); err != nil || len(plans) != 3 || plans[0].name != "notes" || plans[1].name != "section" || plans[2].name != "hops" {
		t.Errorf("%v, %v", plans, err)
	}
	twice := small("")
	twice.Tasks = []Task{{Task: "data", Shared: Shared{Data: "notes.jsonl"}}, {Task: "data", Shared: Shared{Data: "notes.jsonl"}}}
	if _, err := twice.checkedPlans(); err == nil || !strings.Contains(err.Error(), "data notes.jsonl twice") {
		t.Errorf("the same file twice: %v", err)
	}
	named := small("")
	named.Tasks = []Task{{Task: "section,hops", Name: "both"}}
	if _, err := named.checkedPlans(); err == nil || !strings.Contains(err.Error(), `got "both" for 2 tasks`) {
		t.Errorf("one name for two tasks: %v", err)
	}
}

// TestTwoDataSetsAreTwoColumns: two files are two tasks of one run, whose settings are compared file by
// file when runs are joined; and the progress has their total.
func TestTwoDataSetsAreTwoColumns(t *testing.T) {
	dir := t.TempDir()
	prompts(t, dir, "notes.jsonl", "11")
	prompts(t, dir, "mails.jsonl", "13")
	run := func(policies string, change func(j *Job)) *Stored {
		j := small(t.TempDir())
		j.Policies, j.Samples, j.MaxNew = Names{policies}, 0, 4
		j.Tasks = nil
		for _, name := range []string{"notes.jsonl", "mails.jsonl"} {
			j.Tasks = append(j.Tasks, Task{Task: "data", Shared: Shared{Data: filepath.Join(dir, name)}})
		}
		change(j)
		var log strings.Builder
		out, err := j.Run(t.Context(), &log)
		if err != nil || !strings.Contains(log.String(), "6/6 prompts") {
			t.Fatalf("%v, log %q", err, log.String())
		}
		for _, r := range out.Rows {
			if r.Task != "notes" && r.Task != "mails" || r.Samples != 3 {
				t.Errorf("%+v: want 3 samples of notes or mails", r)
			}
		}
		s, err := Read(t.Context(), j.Out, 1, j.S3)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := run("full,snapkv", func(*Job) {})
	if joined, err := Join([]*Stored{first, run("full,tova", func(*Job) {})}); err != nil || !slices.Equal(joined.Tasks, []string{"notes", "mails"}) {
		t.Errorf("%+v, %v", joined, err)
	}
	_, err := Join([]*Stored{first, run("full,tova", func(j *Job) { j.Tasks[1].MaxNew = 5 })})
	if err == nil || !strings.Contains(err.Error(), "task mails: they were measured with different max_new") {
		t.Errorf("another max_new of one of them: %v", err)
	}
}
