package runs

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree are the files and folders below dir with what is in them.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			out[path] = "folder"
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFailedRunLeavesNothing: a run that ends before a sample is measured, for whatever reason, leaves
// its folder as it was: not there, empty, or with the run that it was to replace or to go on with. The
// corrected command then works.
func TestFailedRunLeavesNothing(t *testing.T) {
	data := t.TempDir()
	prompts(t, data, "prompts.jsonl", "11")
	prompts(t, data, "folder/a.jsonl", "11")
	prompts(t, data, "long.jsonl", strings.TrimSuffix(strings.Repeat("11, ", 300), ", ")) // 12,001 tokens, more than the model takes
	good := func(out string) *Job {
		j := onData(t, data, out)
		j.Tasks = j.Tasks[:1]
		return j
	}
	for name, spoil := range map[string]func(j *Job){
		"data that are not there":      func(j *Job) { j.Tasks[0].Data = filepath.Join(data, "absent.jsonl") },
		"data without a prompt":        func(j *Job) { j.Tasks[0].Fields = []string{"prompt=nothing"} },
		"a subtask without data":       func(j *Job) { j.Tasks = append(j.Tasks, Task{Task: "longbench/lcc", Shared: j.Tasks[0].Shared}) },
		"an adapter that is not there": func(j *Job) { j.Models = []Subject{{Adapters: []string{filepath.Join(data, "adapter")}}} },
		"a model that is not there":    func(j *Job) { j.Models = []Subject{{Model: filepath.Join(data, "model")}} },
		"an option of no policy":       func(j *Job) { j.Set = []string{"snapkv.colour=3"} },
		"an option out of range":       func(j *Job) { j.Policies = Names{"full,snapkv(kernel=2)"} },
		"prompts that are all too long": func(j *Job) {
			j.Tasks[0].Data = filepath.Join(data, "long.jsonl")
		},
		"the first sample, strictly": func(j *Job) { j.Tasks[0].Data, j.Strict = filepath.Join(data, "long.jsonl"), true },
		"a signal":                   nil,
	} {
		t.Run(name, func(t *testing.T) {
			fails := func(j *Job) {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if spoil != nil {
					spoil(j)
				} else {
					cancel()
				}
				if _, err := j.Run(ctx, io.Discard); err == nil || strings.Contains(err.Error(), "--resume goes on") {
					t.Errorf("error %v, want one that does not say that there is something to go on with", err)
				}
			}
			at := t.TempDir()
			same := func(what string, before map[string]string) {
				t.Helper()
				after := tree(t, at)
				for path, text := range after {
					if before[path] != text {
						t.Errorf("%s: %s is new or another", what, path)
					}
				}
				if len(after) != len(before) {
					t.Errorf("%s: %d files, want the %d of before", what, len(after), len(before))
				}
			}
			before := tree(t, at)
			fails(good(filepath.Join(at, "new", "run")))
			same("no folder", before)
			empty := filepath.Join(at, "empty")
			if err := os.Mkdir(empty, 0o777); err != nil {
				t.Fatal(err)
			}
			before = tree(t, at)
			fails(good(empty))
			same("an empty folder", before)
			if _, err := good(empty).Run(t.Context(), io.Discard); err != nil {
				t.Fatalf("the corrected command: %v", err)
			}
			before = tree(t, at)
			if name != "prompts that are all too long" { // a shard may have no other prompts than such
				j := good(filepath.Join(t.TempDir(), "shards"))
				j.Shards = 2
				fails(j)
				if _, err := os.Stat(j.Out); err == nil {
					t.Errorf("shards: %v are left", tree(t, j.Out))
				}
				j = good(j.Out)
				j.Shards = 2
				if out, err := j.Run(t.Context(), io.Discard); err != nil || out.Samples != 2 {
					t.Errorf("shards: the corrected command: %+v, %v", out, err)
				}
			}
			j := good(empty)
			j.Files.Replace = true
			fails(j)
			same("--replace", before)
			if j = good(empty); spoil != nil {
				j.Resume, j.Samples = true, 3
				fails(j)
				same("--resume", before)
			}
		})
	}
}

// TestRunWithoutAMeasuredSampleIsNone: what a kill leaves before the first sample blocks no run.
func TestRunWithoutAMeasuredSampleIsNone(t *testing.T) {
	for _, resume := range []bool{false, true} {
		dir, whole := t.TempDir(), t.TempDir()
		for name, text := range map[string]string{ConfigFile: "policies: [h2o]\n", EnvironmentFile: "{}", partialFile: "", KeptFile: ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		j := small(dir)
		j.Resume = resume
		if _, err := j.Run(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		if _, err := small(whole).Run(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, "what a kill has left", dir, whole)
	}
}
