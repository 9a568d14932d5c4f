package datasets_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/datasets/datasetstest"
)

func newStream(t testing.TB, tasks []string, split datasets.Split, tokens int, seed uint64) *datasets.Stream {
	t.Helper()
	s, err := datasets.NewStream(tasks, split, tokens, seed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, s *datasets.Stream, i int) datasets.Example {
	t.Helper()
	e, err := s.At(i)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestTasks(t *testing.T) {
	want := strings.Fields("hops items key1 key4 most needle q_hops q_key1 q_section section summary turns_key turns_section")
	if got := datasets.Tasks.Names(); !slices.Equal(got, want) {
		t.Errorf("tasks %q, want %q", got, want)
	}
	for _, name := range want {
		if task, _ := datasets.Tasks.Lookup(name); task.Name != name || task.Doc == "" || strings.Contains(task.Doc, "\n") {
			t.Errorf("%s: registered as %q with doc %q, want its own name and one line", name, task.Name, task.Doc)
		}
	}
}

func TestParseTasks(t *testing.T) {
	for _, c := range []struct {
		name, list string
		want       []string
		wantErr    string
	}{
		{"all", "all", datasets.Tasks.Names(), ""},
		{"order is kept", "section,key1", []string{"section", "key1"}, ""},
		{"unknown", "section,kye1", nil, `task list "section,kye1": unknown task "kye1", want one of: hops, items`},
		{"twice", "section,section", nil, "got section twice"},
		{"empty", "", nil, `unknown task ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := datasets.ParseTasks(c.list)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("error %v, want %q in it", err, c.wantErr)
				}
				return
			}
			if err != nil || !slices.Equal(got, c.want) {
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// Every task, at lengths at which something changes: exact length, and answers
// that follow from the prompt alone.
func TestAnswersFollowFromPrompts(t *testing.T) {
	kinds := datasetstest.WordKinds(t)
	for _, name := range datasets.Tasks.Names() {
		for _, tokens := range []int{datasets.MinTokens, 41, 43, 64, 72, 113, 133, 163, 256, 512, 1024, 2048, 5000} {
			s := newStream(t, []string{name}, datasets.Validation, tokens, 3)
			for i := range 5 {
				e := at(t, s, i)
				if len(e.Prompt) != tokens {
					t.Fatalf("%s: prompt of %d tokens, want %d", e.ID, len(e.Prompt), tokens)
				}
				if turns := 1 + len(e.Turns); (turns == 2) != strings.HasPrefix(name, "turns_") || turns > 2 {
					t.Fatalf("%s: %d turns", e.ID, turns)
				}
				datasetstest.CheckExample(t, kinds, e)
			}
		}
	}
}

// What contexts of 512 and of 2,048 tokens hold, whatever is asked.
func TestFacts(t *testing.T) {
	kinds := datasetstest.WordKinds(t)
	mixed := map[int]map[string][2]int{
		512:  {"calls": {4, 8}, "<passage>": {1, 1}, "first": {1, 1}, "pairs": {18, 35}, "lists": {4, 8}, "section": {3, 16}, "items": {2, 6}, "colours": {2, 6}, "lead": {3, 12}},
		2048: {"calls": {6, 12}, "<passage>": {1, 1}, "first": {1, 1}, "pairs": {36, 72}, "lists": {6, 12}, "section": {3, 16}, "items": {2, 6}, "colours": {2, 6}, "lead": {3, 12}},
	}
	for _, name := range datasets.Tasks.Names() {
		for tokens, ranges := range mixed {
			s := newStream(t, []string{name}, datasets.Test, tokens, 5)
			for i := range 12 {
				e := at(t, s, i)
				r := datasetstest.CheckExample(t, kinds, e)
				n := map[string]int{}
				times := map[string]int{}
				for i, w := range r.Context {
					n[w]++
					n[kinds[w]]++
					if kinds[w] == "value" {
						times[w]++
						if times[w] > 1 && name != "summary" {
							t.Fatalf("%s: value %s is in two facts", e.ID, w)
						}
					}
					if kinds[w] == "key" && i+2 < len(r.Context) && kinds[r.Context[i+1]] == "value" {
						if kinds[r.Context[i+2]] == "value" {
							n["pairs"]++
						} else {
							n["lists"]++
						}
					}
					if kinds[w] == "colour" && n[w] == 1 {
						n["colours"]++
					}
					if kinds[w] == "colour" {
						n["lead"] = max(n["lead"], n[w])
					}
					if slices.Contains(datasetstest.Ordinals, w) {
						n["items"]++
					}
				}
				from, to := slices.Index(r.Context, "<passage>"), slices.Index(r.Context, "</passage>")
				n["section"] = to - from - 1
				want := ranges
				switch name {
				case "needle":
					want = map[string][2]int{"key": {1, 1}, "value": {2, 2}, "template": {0, 0}, "colour": {0, 0}}
				case "summary":
					want = map[string][2]int{"key": {0, 0}, "items": {2, 6}, "colour": {0, 0}, "calls": {0, 0}}
				}
				for what, limits := range want {
					if got := n[what]; got < limits[0] || got > limits[1] {
						t.Fatalf("%s: %d × %s in the context, want %d to %d", e.ID, got, what, limits[0], limits[1])
					}
				}
			}
		}
	}
}

// All lengths of answers occur, and what is asked for stands anywhere; judged by chi-square
// at six standard deviations of its normal approximation: a seed that fails by chance is one
// in 10⁸.
func TestDraws(t *testing.T) {
	kinds := datasetstest.WordKinds(t)
	lengths := map[string][]int{"hops": {2, 3, 4}, "items": {4, 6, 8, 10, 12}, "summary": {6, 9, 12, 15, 18}}
	for name, want := range lengths {
		s := newStream(t, []string{name}, datasets.Train, 512, 2)
		counts := map[int]int{}
		for i := range 500 {
			counts[len(at(t, s, i).Answer)]++
		}
		uniform(t, "answer lengths of "+name, counts, len(want))
		for _, n := range want {
			if counts[n] == 0 {
				t.Errorf("%s: no answer of %d tokens in 500", name, n)
			}
		}
	}
	s := newStream(t, []string{"key1", "most"}, datasets.Train, 512, 11)
	keys, colours, places := map[string]int{}, map[string]int{}, map[int]int{}
	for i := range 4000 {
		e := at(t, s, i)
		r := datasetstest.CheckExample(t, kinds, e)
		if e.Task == "most" {
			colours[datasetstest.WordsOf(t, e.Answer)[0]]++
			continue
		}
		keys[r.Question[1]]++
		places[slices.Index(r.Context, r.Question[1])*16/len(r.Context)]++
	}
	uniform(t, "asked keys", keys, 128)
	uniform(t, "places of the asked key", places, 16)
	uniform(t, "most frequent colours", colours, 16)
}

func uniform[K comparable](t *testing.T, what string, counts map[K]int, classes int) {
	t.Helper()
	if len(counts) != classes {
		t.Errorf("%s: %d classes seen, want %d", what, len(counts), classes)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	expected, chi := float64(total)/float64(classes), 0.0
	for _, n := range counts {
		d := float64(n) - expected
		chi += d * d / expected
	}
	freedom := float64(classes - 1)
	if limit := freedom + 6*math.Sqrt(2*freedom) + 6; !(chi < limit) {
		t.Errorf("%s: chi-square %.1f of %d draws, want below %.1f", what, chi, total, limit)
	}
}

// goldenTasks is what TestGolden saw when the tasks were fixed. It changes
// only if a reference model is to be trained anew.
const goldenTasks = "21721074dab0da4708c22e8dd6c1ff632591e4aab6b6c21fb42ebdc451d40e87"

func TestGolden(t *testing.T) {
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, tokens := range []int{datasets.MinTokens, 512, 2048} {
		s := newStream(t, datasets.Tasks.Names(), datasets.Test, tokens, 77)
		for i := range 30 {
			if err := e.Encode(at(t, s, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != goldenTasks {
		t.Errorf("hash of the examples %s, want %s", got, goldenTasks)
	}
}

func TestKnows(t *testing.T) {
	for vocab, want := range map[int]bool{480: true, 384: false, 32000: false} {
		if got := datasets.Knows(vocab); got != want {
			t.Errorf("Knows(%d) is %t, want %t", vocab, got, want)
		}
	}
	if _, err := datasets.StreamFor("tiny", 384, "key1", "test", 64, 0); err == nil || !strings.Contains(err.Error(), "does not know the words") {
		t.Errorf("a model of other words: error %v", err)
	}
	if _, err := datasets.StreamFor("tiny", 480, "all", "test", 64, 0); err != nil {
		t.Error(err)
	}
}
