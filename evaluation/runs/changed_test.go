package runs

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"glimpse/checkpoints/objectstore"
	"glimpse/internal/regularfile"
)

// onData is a job over prompts of a file and a folder.
func onData(t *testing.T, dir, out string) *Job {
	t.Helper()
	j := small(out)
	j.Policies, j.Samples, j.MaxNew, j.Inspect = Names{"full,snapkv"}, 2, 4, 0
	j.Tasks = []Task{{Task: "data", Shared: Shared{Data: filepath.Join(dir, "prompts.jsonl")}}, {Task: "responses", Shared: Shared{Data: filepath.Join(dir, "folder")}}}
	return j
}

// prompts writes prompts of a token to a file.
func prompts(t *testing.T, dir, name, token string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat(`{"prompt_ids": [`+strings.Repeat(token+", ", 40)+"12]}\n", 3)), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestResumeOnChangedPrompts: prompts of the same names that are others are refused by name, in one
// run and in shards, unless that is accepted, which the record says.
func TestResumeOnChangedPrompts(t *testing.T) {
	for _, change := range []string{"prompts.jsonl", "folder/b.jsonl"} {
		for _, shards := range []int{0, 2} {
			dir, out := t.TempDir(), t.TempDir()
			for _, name := range []string{"prompts.jsonl", "folder/a.jsonl", "folder/b.jsonl"} {
				prompts(t, dir, name, "11")
			}
			run := func(set func(j *Job)) (string, error) {
				j, log := onData(t, dir, out), new(strings.Builder)
				if set(j); shards > 0 {
					j.Shards, j.Resume = shards, false
				}
				_, err := j.Run(t.Context(), log)
				return log.String(), err
			}
			if _, err := run(func(j *Job) {
				if shards > 0 {
					j.Shard = "0/2"
				}
			}); err != nil {
				t.Fatal(err)
			}
			prompts(t, dir, change, "13")
			changed := regexp.MustCompile(regexp.QuoteMeta(filepath.Join(dir, filepath.FromSlash(change))) + `" has SHA-256 [0-9a-f]{12}…, want [0-9a-f]{12}…`)
			if _, err := run(func(j *Job) { j.Resume = true }); err == nil || !changed.MatchString(err.Error()) || !strings.Contains(err.Error(), "--accept-changed-data") {
				t.Fatalf("%s, %d shards: %v", change, shards, err)
			}
			log, err := run(func(j *Job) { j.Resume, j.Accept = true, true })
			if err != nil || !changed.MatchString(log) {
				t.Fatalf("%s, %d shards, accepted: %v, %q", change, shards, err, log)
			}
			if shards > 0 {
				continue
			}
			var about Environment
			if err := json.Unmarshal([]byte(read(t, out, EnvironmentFile)), &about); err != nil || len(about.Accepted) != 1 || !changed.MatchString(about.Accepted[0]) {
				t.Errorf("%s: the record says %q, %v", change, about.Accepted, err)
			}
		}
	}
}

// TestResumeWithoutRecordedPrompts: a run of a version that did not record its data goes on, and that
// is said once.
func TestResumeWithoutRecordedPrompts(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	prompts(t, dir, "prompts.jsonl", "11")
	prompts(t, dir, "folder/a.jsonl", "11")
	if _, err := onData(t, dir, out).Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile(`(?m)^data_sha256:\n(( |-).*\n)+`)
	old := read(t, out, ConfigFile)
	if !config.MatchString(old) {
		t.Fatalf("the configuration does not record the data: %s", old)
	}
	if err := os.WriteFile(filepath.Join(out, ConfigFile), config.ReplaceAll([]byte(old), nil), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		j, log := onData(t, dir, out), new(strings.Builder)
		j.Resume = true
		if _, err := j.Run(t.Context(), log); err != nil || strings.Count(log.String(), "did not record what its data were") != want {
			t.Errorf("%v, %q: want it said %d times", err, log, want)
		}
	}
}

// TestResumeOnChangedWeights: a run is not gone on with by other weights, adapters or drafts of the
// same names.
func TestResumeOnChangedWeights(t *testing.T) {
	job := func(out string) *Job {
		j := small(out)
		j.Models, j.Policies, j.Samples = []Subject{{Drafts: []string{"cheap=layers:1"}}}, Names{"full,lookaheadkv,speckv"}, 1
		j.ChatTemplate = "chatml"
		return j
	}
	for _, c := range []struct {
		change func(m *AboutModel)
		want   string
	}{
		{func(m *AboutModel) { m.SHA256 = strings.Repeat("0", 64) }, "the weights have changed since the run was begun: SHA-256 "},
		{func(m *AboutModel) { m.Companions.Put("adapter lookaheadkv shipped", strings.Repeat("0", 64)) }, `"adapter lookaheadkv shipped" has SHA-256 `},
		{func(m *AboutModel) { m.Companions.Put("draft cheap", strings.Repeat("0", 64)) }, `"draft cheap" has SHA-256 `},
		{func(m *AboutModel) { m.Companions.Put("chat template chatml", strings.Repeat("0", 64)) }, `"chat template chatml" has SHA-256 `},
	} {
		out := t.TempDir()
		if _, err := job(out).Run(t.Context(), io.Discard); err != nil {
			t.Fatal(err)
		}
		var about, other Environment
		if err := errors.Join(regularfile.JSON(filepath.Join(out, EnvironmentFile), 1<<20, &about), regularfile.JSON(filepath.Join(out, EnvironmentFile), 1<<20, &other)); err != nil {
			t.Fatal(err)
		}
		before := len(about.Models[0].Companions)
		c.change(&about.Models[0])
		if got := len(about.Models[0].Companions); got != before {
			t.Fatalf("%d companions, want the %d of the run: %v", got, before, about.Models[0].Companions)
		}
		f := &folder{path: out, about: about}
		if err := errors.Join(f.open(t.Context(), objectstore.Settings{}), f.writeAbout(t.Context())); err != nil {
			t.Fatal(err)
		}
		j := job(out)
		j.Resume = true
		if _, err := j.Run(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if err := about.sameModels(&other); err == nil {
			t.Errorf("shards were joined, want that not to be for %q", c.want)
		}
	}
}
