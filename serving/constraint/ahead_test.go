package constraint

import (
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/panics"
)

// TestAhead: masks that are computed beside are the same, through a whole answer, and errors come to the caller.
func TestAhead(t *testing.T) {
	g := mustGBNF(t, jsonGBNF)
	r := rand.New(rand.NewPCG(40, 41))
	v := pieces(r, `{"a": [1, {"b": "c"}]}`)
	for range 20 {
		m, a := NewMatcher(g, v), NewAhead(g, v)
		for range 30 {
			want, got := make([]float32, len(v.tokens)), make([]float32, len(v.tokens))
			if err := m.Mask(want); err != nil {
				t.Fatal(err)
			}
			if err := a.Mask(got); err != nil || !slices.Equal(got, want) {
				t.Fatalf("other tokens than those of a Matcher may follow (%v)", err)
			}
			ids := allowedIDs(m, len(v.tokens))
			id := ids[r.IntN(len(ids))]
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
			if err := a.Accept(id); err != nil {
				t.Fatal(err)
			}
			if err := a.Accept(0); err == nil {
				t.Fatal("a token without text is accepted")
			}
			if m.ended {
				break
			}
		}
	}
	a := NewAhead(mustGBNF(t, "root ::= e\ne ::= [a-z ] (e | e e){0,100}"), wordVocabulary(20000))
	var err error
	for n := 0; n < 500 && err == nil; n++ {
		if err = a.Mask(make([]float32, 20000)); err == nil {
			err = a.Accept('a')
		}
	}
	if err != ErrTooAmbiguous {
		t.Errorf("error %v, want ErrTooAmbiguous", err)
	}
}

// TestAheadPanics: what panics beside a step is the error of its answer alone.
func TestAheadPanics(t *testing.T) {
	m := NewMatcher(mustGBNF(t, "root ::= [a-z]+"), wordVocabulary(300))
	m.v = nil // as of a fault
	a := &Ahead{m: m}
	a.beginWork()
	for what, err := range map[string]error{"mask": a.Mask(make([]float32, 300)), "accept": a.Accept('a')} {
		if _, ok := err.(*panics.Error); !ok {
			t.Errorf("%s: error %v, want that of a panic", what, err)
		}
	}
	other := NewAhead(mustGBNF(t, "root ::= [a-z]+"), wordVocabulary(300))
	if err := other.Mask(make([]float32, 300)); err != nil {
		t.Error(err)
	}
}
