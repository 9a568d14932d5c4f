package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// fixture loads a tokenizer of testdata (made by lab/golden/tokenizer_fixtures.py).
func fixture(t testing.TB, name string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Load(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// goldenCase is what the reference implementation makes of one text.
type goldenCase struct {
	ids              []int32 // with special tokens, one on each side
	decoded, skipped string
}

func (c *goldenCase) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&c.ids, &c.decoded, &c.skipped})
}

func goldens(t testing.TB) (texts []string, byTokenizer map[string][]goldenCase) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Texts      []string
		Tokenizers map[string][]goldenCase
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g.Texts, g.Tokenizers
}

// TestGoldenDecode: ids in no order, with runs of bytes that are no character.
func TestGoldenDecode(t *testing.T) {
	var g struct{ Decoded map[string][]goldenCase }
	readGolden(t, "golden.json", &g)
	if len(g.Decoded) != 10 {
		t.Fatalf("%d tokenizers, want 10", len(g.Decoded))
	}
	for name, cases := range g.Decoded {
		tok := fixture(t, name)
		if len(cases) < 50 {
			t.Errorf("%s: %d cases, want at least 50", name, len(cases))
		}
		for _, c := range cases {
			checkDecode(t, tok, c.ids, false, c.decoded)
			checkDecode(t, tok, c.ids, true, c.skipped)
		}
	}
}

func TestGolden(t *testing.T) {
	texts, byTokenizer := goldens(t)
	if len(texts) < 50 || len(byTokenizer) != 10 {
		t.Fatalf("%d texts for %d tokenizers, want at least 50 for 10", len(texts), len(byTokenizer))
	}
	for name, cases := range byTokenizer {
		t.Run(name, func(t *testing.T) {
			tok := fixture(t, name)
			if len(cases) != len(texts) {
				t.Fatalf("%d cases for %d texts", len(cases), len(texts))
			}
			for i, want := range cases {
				for _, addSpecial := range []bool{true, false} {
					ids := want.ids
					if !addSpecial {
						ids = ids[1 : len(ids)-1]
					}
					got, err := tok.Encode(texts[i], addSpecial)
					if err != nil || !slices.Equal(got, ids) {
						t.Errorf("text %d %q, special %v:\n got %v, %v\nwant %v", i, texts[i], addSpecial, got, err, ids)
					}
				}
				checkDecode(t, tok, want.ids, false, want.decoded)
				checkDecode(t, tok, want.ids, true, want.skipped)
			}
		})
	}
}
