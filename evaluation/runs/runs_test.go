package runs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/evaluation"
	_ "glimpse/evaluation/tasks"
	"glimpse/eviction"
	"glimpse/internal/yamlconfig"

	_ "glimpse/gates"
	_ "glimpse/lora"
	_ "glimpse/softtokens"
)

// small is a job over few prompts of the built-in model.
func small(out string) *Job {
	j := Default()
	j.Policies = Names{"full,snapkv,tova(kernel=3)"}
	j.Budgets = []eviction.Budget{eviction.Pairs(16), share("20%")}
	j.Tasks = []Task{{Task: "section"}, {Task: "needle", Options: []string{"lengths=64,96"}}}
	j.Samples, j.Tokens, j.Out = 3, 96, out
	return j
}

func share(text string) eviction.Budget {
	b, err := eviction.ParseBudget(text)
	if err != nil {
		panic(err)
	}
	return b
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestResumeAfterACut: predictions that were cut at any byte, as a kill does, or damaged, are
// measured again, and what comes of it is the same to the byte.
func TestResumeAfterACut(t *testing.T) {
	ctx := context.Background()
	whole := t.TempDir()
	if _, err := small(whole).Run(ctx, io.Discard); err != nil {
		t.Fatal(err)
	}
	want := read(t, whole, PredictionsFile)
	if n := strings.Count(want, "\n"); n != 9*5 { // 3 + 2·3 samples of 5 cells
		t.Fatalf("%d predictions, want 45", n)
	}
	kept := decodeKept([]byte(read(t, whole, KeptFile)))
	if len(kept) != 2 || kept[0].Task != "section" || kept[1].Task != "needle" || len(kept[1].Cells) != 5 {
		t.Fatalf("%+v: want what 5 cells keep of the first prompt of two tasks", kept)
	}
	for _, c := range kept[0].Cells {
		held := 96 - strings.Count(c.Shares, "0")
		if c.Policy == "full" && c.Shares != strings.Repeat("z", 96) || c.Policy == "snapkv" && c.Budget == "16" && (held < 16 || held > 96) {
			t.Errorf("%s at %q keeps %s", c.Label(), c.Budget, c.Shares)
		}
	}
	if _, err := os.Stat(filepath.Join(whole, partialFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", partialFile, err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 8 {
		dir := t.TempDir()
		cut := []byte(want[:r.IntN(len(want))])
		if i%2 == 1 && len(cut) > 0 { // a digit that has changed
			cut[r.IntN(len(cut))] ^= 1
		}
		kept := []byte(read(t, whole, KeptFile))         // of samples whose predictions are lost, too
		kept = append(kept, kept[:r.IntN(len(kept))]...) // and cut in a line
		for name, data := range map[string][]byte{ConfigFile: []byte(strings.Replace(read(t, whole, ConfigFile), whole, dir, 1)), partialFile: cut, KeptFile: kept} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		j := small(dir)
		j.Resume = true
		if _, err := j.Run(ctx, io.Discard); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{PredictionsFile, MetricsFile, KeptFile} {
			if got := read(t, dir, name); got != read(t, whole, name) {
				t.Errorf("cut at %d: %s differs", len(cut), name)
			}
		}
	}
}

// TestResumeOfOtherLines: samples whose lines are whole, but not the expected ones in their
// order, are measured again, which is said; what comes of it is the same to the byte.
func TestResumeOfOtherLines(t *testing.T) {
	ctx := context.Background()
	whole, other := t.TempDir(), t.TempDir()
	if _, err := small(whole).Run(ctx, io.Discard); err != nil {
		t.Fatal(err)
	}
	strange := small(other) // as many cells, other policies
	strange.Policies = Names{"full,snapkv,h2o"}
	if _, err := strange.Run(ctx, io.Discard); err != nil {
		t.Fatal(err)
	}
	const cells = 5
	at := func(sample, cell int) int { return sample*cells + cell }
	for name, change := range map[string]func(lines []string) []string{
		"a line twice":               func(l []string) []string { l[at(1, 2)] = l[at(1, 1)]; return l },
		"a line twice, none is gone": func(l []string) []string { return slices.Insert(l, at(1, 2), l[at(1, 1)]) },
		"two lines swapped":          func(l []string) []string { l[at(1, 1)], l[at(1, 3)] = l[at(1, 3)], l[at(1, 1)]; return l },
		"two samples' lines swapped": func(l []string) []string { l[at(1, 1)], l[at(2, 1)] = l[at(2, 1)], l[at(1, 1)]; return l },
		"a line is gone":             func(l []string) []string { return slices.Delete(l, at(1, 1), at(1, 2)) },
		"a line of another run":      func(l []string) []string { l[at(1, 4)] = lines(t, other)[at(1, 4)]; return l },
		"a sample of another run": func(l []string) []string {
			return slices.Replace(l, at(1, 0), at(2, 0), lines(t, other)[at(1, 0):at(2, 0)]...)
		},
		"all samples of another run": func([]string) []string { return lines(t, other) },
		"another sample in its place": func(l []string) []string {
			return slices.Replace(l, at(1, 0), at(2, 0), renamed(t, l[at(1, 0):at(2, 0)], cells)...)
		},
		"one of its lines is renamed": func(l []string) []string {
			return slices.Replace(l, at(1, 0), at(2, 0), renamed(t, l[at(1, 0):at(2, 0)], 1)...)
		},
		"the last line of all is gone": func(l []string) []string { return l[:len(l)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				ConfigFile: strings.Replace(read(t, whole, ConfigFile), whole, dir, 1), KeptFile: read(t, whole, KeptFile),
				partialFile: strings.Join(change(lines(t, whole)), ""),
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			j := small(dir)
			j.Resume = true
			var log bytes.Buffer
			if _, err := j.Run(ctx, &log); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(log.String(), "measured again") {
				t.Errorf("the log does not say so: %q", log.String())
			}
			for _, name := range []string{PredictionsFile, MetricsFile} {
				if read(t, dir, name) != read(t, whole, name) {
					t.Errorf("%s differs", name)
				}
			}
		})
	}
}

// lines are those of a run's predictions.
func lines(t *testing.T, dir string) []string {
	return slices.Collect(strings.Lines(read(t, dir, PredictionsFile)))
}

// renamed are lines of a sample of which the first n tell of another sample's ID.
func renamed(t *testing.T, of []string, n int) []string {
	t.Helper()
	all, _, damage, err := evaluation.ReadPredictions(strings.NewReader(strings.Join(of, "")), nil)
	if err != nil || damage != nil {
		t.Fatal(err, damage)
	}
	for _, p := range all[:n] {
		p.Sample = "of other data"
	}
	var out strings.Builder
	if err := evaluation.WritePredictions(&out, all); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(strings.Lines(out.String()))
}

// TestFolderIsNotLost: a folder with a run is refused without --resume or --replace, one
// with anything else always, and a run goes on with its own settings only.
func TestFolderIsNotLost(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	if _, err := small(dir).Run(ctx, io.Discard); err != nil {
		t.Fatal(err)
	}
	refuse := func(j *Job, want string) {
		t.Helper()
		if _, err := j.Run(ctx, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	before := read(t, dir, MetricsFile)
	refuse(small(dir), "holds a run: go on with it with --resume, or begin anew with --replace")
	other := small(dir)
	other.Resume, other.Seed, other.Budgets = true, 2, []eviction.Budget{eviction.Pairs(8)} // a budget more is none of the differences
	refuse(other, `the run was begun with other settings: seed (was 1, is 2); want them as they were, or another folder, which evict report joins with this one`)
	strange := t.TempDir()
	if err := os.WriteFile(filepath.Join(strange, "thesis.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refuse(small(strange), "holds thesis.txt and no run")
	if read(t, dir, MetricsFile) != before {
		t.Error("a refused run has changed the folder")
	}
	more := small(dir)
	more.Resume, more.Samples = true, 4
	out, err := more.Run(ctx, io.Discard)
	if err != nil || out.Samples != 12 || out.Prompts != 3 {
		t.Errorf("extended run: %+v, %v; want 12 samples, 3 of them measured now", out, err)
	}
}

// TestInterruptedRunTellsWhatItHas: what was measured before a cancel is in the rows, and
// the run goes on.
func TestInterruptedRunTellsWhatItHas(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	j := small(dir)
	j.Concurrent = 1
	stopAfter := 0
	evaluation.Tasks.Add("stopping", evaluation.Task{Name: "stopping", Open: func(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
		inner, err := evaluation.ParseTasks("section")
		if err != nil {
			return nil, err
		}
		s.Options = map[string]string{"lengths": ""}
		samples, err := inner[0].Open(ctx, s)
		if err != nil {
			return nil, err
		}
		each := samples.Each
		samples.Each = func(yield func(evaluation.Item) bool) {
			for item := range each {
				if stopAfter++; stopAfter == 3 {
					cancel()
				}
				if !yield(item) {
					return
				}
			}
		}
		return samples, nil
	}})
	j.Tasks = []Task{{Task: "stopping"}}
	out, err := j.Run(ctx, io.Discard)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "--resume") {
		t.Fatalf("error %v, want a cancel that tells of --resume", err)
	}
	if out == nil || out.Samples < 1 || len(out.Rows) != 5 {
		t.Fatalf("outcome %+v, want the rows of what was measured", out)
	}
	j.Resume = true
	if out, err = j.Run(context.Background(), io.Discard); err != nil || out.Samples != 3 {
		t.Errorf("continued: %+v, %v", out, err)
	}
}

// TestStoppedRunIsReplaced: what a stopped run has left is in no way of the one that takes its place.
func TestStoppedRunIsReplaced(t *testing.T) {
	dir, whole := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	j := small(dir)
	j.Concurrent, j.Policies = 1, Names{"h2o"}
	if _, err := j.Run(ctx, &stopAt{text: "/9 prompts", after: 3, stop: cancel}); err == nil {
		t.Fatal("it came to its end")
	}
	if stored, err := Read(t.Context(), dir, 1, j.S3); err != nil || len(stored.Predictions) == 0 {
		t.Fatalf("%v, %v: want some predictions of the stopped run", stored, err)
	}
	j = small(dir)
	j.Files.Replace = true
	if out, err := j.Run(t.Context(), io.Discard); err != nil || out == nil || out.Samples != 9 {
		t.Fatalf("%+v, %v: want 9 samples", out, err)
	}
	if _, err := small(whole).Run(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "replaced", dir, whole)
}

// TestLongNames: a policy with a name that no table takes is refused before anything is measured.
func TestLongNames(t *testing.T) {
	j := small(t.TempDir())
	name := "snapkv(window=16,kernel=" + strings.Repeat("0", evaluation.MaxName) + "3)"
	j.Policies = Names{"full," + name}
	measured := &stopAt{text: " prompts", after: 1, stop: func() { t.Error("a prompt was measured") }}
	_, err := j.Run(t.Context(), measured)
	if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), evaluation.WantName) {
		t.Errorf("error %v, want one that names the policy and wants %s", err, evaluation.WantName)
	}
}

// TestSampleThatFails is counted, the others are measured, and --strict ends the run.
func TestSampleThatFails(t *testing.T) {
	stream, err := datasets.NewStream([]string{"section"}, datasets.Test, 96, 1)
	if err != nil {
		t.Fatal(err)
	}
	evaluation.Tasks.Add("failing", evaluation.Task{Name: "failing", Open: func(context.Context, *evaluation.Setting, string) (*evaluation.Samples, error) {
		return &evaluation.Samples{Metric: evaluation.Agreement, Count: 3, Each: func(yield func(evaluation.Item) bool) {
			for i := range 3 {
				make := func(context.Context) (*evaluation.Sample, error) {
					if i == 1 {
						return nil, errors.New("rows.jsonl: row 7: field \"prompt\": got 5, want text")
					}
					e, err := stream.At(i)
					return &evaluation.Sample{Turns: []evaluation.Turn{{Prompt: evaluation.Fixed(e.Prompt), MaxNew: 4}}}, err
				}
				if !yield(evaluation.Item{ID: string(rune('a' + i)), Make: make}) {
					return
				}
			}
		}}, nil
	}})
	j := small("")
	j.Tasks = []Task{{Task: "failing"}}
	j.Budgets = []eviction.Budget{eviction.Pairs(8)}
	out, err := j.Run(context.Background(), io.Discard)
	if err != nil || out.Failed != 1 || !strings.Contains(out.Failures[0].Error(), "row 7") {
		t.Fatalf("%+v, %v: want one failure that names the row", out, err)
	}
	for _, r := range out.Rows {
		if r.Samples != 2 || r.Failed != 1 {
			t.Errorf("%s: %d samples, %d failed, want 2 and 1", r.Policy, r.Samples, r.Failed)
		}
		if r.Policy == "full" && (*r.Score != 1 || r.Measures[evaluation.MeasureExact] != 1) {
			t.Errorf("the full cache agrees with itself to %v", *r.Score)
		}
		if nll := r.Measures[evaluation.MeasureNLL]; !(nll > 0) {
			t.Errorf("%s: log-likelihood of the full cache's answer: %v", r.Policy, nll)
		}
	}
	j.Strict = true
	if _, err := j.Run(context.Background(), io.Discard); err == nil || !strings.Contains(err.Error(), "row 7") {
		t.Errorf("strict: error %v, want the failure", err)
	}
}

// TestConfigComesBack: the configuration that a run writes makes the same run.
func TestConfigComesBack(t *testing.T) {
	j := small("")
	j.Samples = 7
	if _, err := j.checkedPlans(); err != nil {
		t.Fatal(err)
	}
	text, err := yamlconfig.EncodeSet(j)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	again := Default()
	if err := again.Read(path, nil, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := again.checkedPlans(); err != nil {
		t.Fatal(err)
	}
	got, err := yamlconfig.EncodeSet(again)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%v; got\n%s\nwant\n%s", err, got, text)
	}
}

// TestAnswersDoNotDependOnTheBatch: how many caches are decoded together changes no bit of
// what they do, and one by one they give the same answers.
func TestAnswersDoNotDependOnTheBatch(t *testing.T) {
	measure := func(batch int) []*evaluation.Prediction {
		j := small(t.TempDir())
		j.Policies, j.Batch, j.Agreement = Names{"full,snapkv,h2o,quest,d2o,tova,snapkv:quest"}, batch, "on"
		j.Tasks = []Task{{Task: "section,turns_section"}}
		if _, err := j.Run(context.Background(), io.Discard); err != nil {
			t.Fatal(err)
		}
		all, err := readFinished(filepath.Join(j.Out, PredictionsFile))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	three := measure(3)
	for i, p := range measure(16) {
		if !reflect.DeepEqual(p, three[i]) {
			t.Errorf("%+v with 16 places, %+v with 3", p, three[i])
		}
	}
	for i, p := range measure(1) {
		a, b := p.Measures[evaluation.MeasureNLL], three[i].Measures[evaluation.MeasureNLL]
		if !slices.Equal(p.Answers, three[i].Answers) || math.Abs(a-b) > 1e-3*(1+b) {
			t.Errorf("%+v one by one, %+v in a batch", p, three[i])
		}
	}
}
