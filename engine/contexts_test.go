package engine

import (
	"fmt"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestContextsInABudget: contexts lie in what is left of the budget and go when others need it; whatever goes, every question is answered as
// alone, and those whose context is there run nothing of it.
func TestContextsInABudget(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, MaxPositions: 256, Seed: 2}.Open(t, "cpu")
	rt := eviction.NewRuntime(m)
	e, err := New(rt, 2)
	if err != nil {
		t.Fatal(err)
	}
	policy := policies(t, "snapkv")[0]
	newSession := func() *eviction.Session {
		s, err := rt.NewSession(policy, eviction.Pairs(20))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const documents, length = 8, 80
	request := func(document, question int) Request {
		tokens := slices.Concat(modeltest.Tokens(m, uint64(document), length), modeltest.Tokens(m, uint64(100+question), 5+question))
		return Request{Session: newSession(), Prompt: tokens, Context: length, Generate: runner.GenerateOptions{MaxNew: 5, IgnoreEnd: true}}
	}
	want, bytes := make(map[string][]int32), int64(0)
	for d := range documents {
		for q := range 3 {
			r := request(d, q)
			if err := r.Session.Compress(t.Context(), eviction.Prompt{Tokens: r.Prompt[:length]}, 0); err != nil {
				t.Fatal(err)
			}
			bytes = r.Session.Context.Bytes()
			if err := r.Session.Turn(t.Context(), eviction.Prompt{Tokens: r.Prompt[length:]}); err != nil {
				t.Fatal(err)
			}
			out, _, err := r.Session.Generate(t.Context(), r.Generate)
			if err != nil {
				t.Fatal(err)
			}
			want[fmt.Sprint(d, q)] = out
		}
	}
	need, err := newSession().Footprint(t.Context(), length+20, eviction.FootprintOptions{MaxNew: 5, Rows: 2, Context: length})
	if err != nil {
		t.Fatal(err)
	}
	e.Budget = need.Need() + 4*bytes // beside a request there is room for a few of the contexts
	there := 0
	for round := range 3 {
		var answers []*Answer
		var names []string
		for d := range documents {
			for range 2 { // the second one finds the context of the first
				q := round
				a, err := e.Submit(request(d, q))
				if err != nil {
					t.Fatal(err)
				}
				answers, names = append(answers, a), append(names, fmt.Sprint(d, q))
			}
		}
		for e.Len() > 0 {
			step(t, e)
		}
		for i, a := range answers {
			if a.Err() != nil || !slices.Equal(a.Tokens(), want[names[i]]) {
				t.Errorf("question %s: %v, error %v, want %v", names[i], a.Tokens(), a.Err(), want[names[i]])
			}
			if a.Standing() > 0 {
				there++
			}
		}
	}
	if kept := e.Kept(); kept.Contexts == 0 || kept.Contexts == documents || kept.LetGo == 0 || there < 3*documents {
		t.Errorf("%d contexts of %d are kept, %d were let go of, %d of %d questions found theirs", kept.Contexts, documents, kept.LetGo, there, 6*documents)
	}
	e.LetGo(0)
	if kept := e.Kept(); kept.Contexts != 0 || kept.Bytes != 0 {
		t.Errorf("%+v are kept", kept)
	}
}
