package tokenizer

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"glimpse/model/tokenizer/onig"

	"golang.org/x/text/unicode/norm"
)

// randomText mixes the characters that the patterns and the added tokens treat
// differently.
func randomText(rng *rand.Rand, parts int) string {
	pools := []string{
		"etaoinshr", "THE", " ", "  ", "\t\n\r\v\u0085\u00a0\u2003", "0123½²①", "'\"!?.,<>_", "é你안☃🙂", "ſK", "\u0301\u0323",
		"'s", "'LL", "the", " of", "zzz", "<tag>", "word", "\x00\x7f",
	}
	var b strings.Builder
	for range parts {
		pool := pools[rng.IntN(len(pools))]
		if rng.IntN(3) == 0 {
			b.WriteString(pool)
			continue
		}
		runes := []rune(pool)
		for range 1 + rng.IntN(4) {
			b.WriteRune(runes[rng.IntN(len(runes))])
		}
	}
	return b.String()
}

// TestScannersAgainstPatterns compares the scanners with the patterns themselves.
func TestScannersAgainstPatterns(t *testing.T) {
	for pattern, next := range splitPatterns {
		re, err := onig.Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(3, 4))
		for range 6000 {
			text := randomText(rng, 1+rng.IntN(8))
			i := 0
			if err := re.Each(text, func(start, end int) error {
				if got := next(text, i); start != i || got != end {
					t.Fatalf("pattern %s: %q at byte %d: got %q, want %q", pattern, text, i, text[i:got], text[start:end])
				}
				i = end
				return nil
			}); err != nil || i != len(text) {
				t.Fatalf("pattern %s: %q: %v at byte %d", pattern, text, err, i)
			}
		}
	}
}

// naiveMerge is byte-pair encoding as its definition says: find the pair that
// is listed first, leftmost of equals, join it, start over.
func naiveMerge(m *bpe, ids []int32) []int32 {
	ids = slices.Clone(ids)
	for {
		best, at := noMerge, -1
		for i := range len(ids) - 1 {
			if p := m.merges.getMerge(ids[i], ids[i+1]); p < best {
				best, at = p, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, int32(uint32(best)))
	}
}

func TestMergesAgainstNaive(t *testing.T) {
	for _, name := range []string{"llama3", "qwen", "llama2", "unk"} {
		m := fixture(t, name).model.(*bpe)
		m.ignoreMerges = false
		rng := rand.New(rand.NewPCG(5, 6))
		for i := range 600 {
			word := randomText(rng, 1+rng.IntN(1+i/4))
			symbols, err := m.symbols(nil, word, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := naiveMerge(m, symbols)
			got, err := m.appendIDs(nil, word, 0)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s: %q: got %v, %v; want %v", name, word, got, err, want)
			}
			if len(symbols) < 2 {
				continue
			}
			byHeap := slices.Clone(symbols)
			if byHeap = byHeap[:m.merges.applyHeap(byHeap)]; !slices.Equal(byHeap, want) {
				t.Fatalf("%s: %q: heap %v, want %v", name, word, byHeap, want)
			}
		}
	}
}

func TestModelOffsets(t *testing.T) {
	for _, c := range []struct{ tokenizer, word string }{
		{"llama3", "Ġthe"}, {"llama2", "▁the你x½½"}, {"unk", "▁x你你½y"},
	} {
		m := fixture(t, c.tokenizer).Model()
		tokens, err := m.Tokenize(c.word)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for _, tok := range tokens {
			if tok.Offsets[0] != at || tok.Offsets[1] <= at {
				t.Errorf("%s: %q: token %+v does not start at %d", c.tokenizer, c.word, tok, at)
			}
			at = tok.Offsets[1]
			if value, ok := m.IdToToken(tok.Id); !ok || value != tok.Value {
				t.Errorf("%s: id %d is %q, %v; the token says %q", c.tokenizer, tok.Id, value, ok, tok.Value)
			}
		}
		if at != len(c.word) {
			t.Errorf("%s: %q: tokens %+v end at %d, want %d", c.tokenizer, c.word, tokens, at, len(c.word))
		}
	}
}

// TestSaveModel reads back what Save wrote.
func TestSaveModel(t *testing.T) {
	dir := t.TempDir()
	m := fixture(t, "llama3").Model()
	if err := m.Save(dir, "tiny"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "tiny-vocab.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vocab map[string]int
	if err := json.Unmarshal(data, &vocab); err != nil || len(vocab) != m.GetVocabSize() {
		t.Errorf("%d entries, %v; want %d", len(vocab), err, m.GetVocabSize())
	}
	merges, err := os.ReadFile(filepath.Join(dir, "tiny-merges.txt"))
	if err != nil || !strings.HasPrefix(string(merges), "#version: 0.2\n") || strings.Count(string(merges), "\n") < 100 {
		t.Errorf("merges.txt of %d bytes, %v", len(merges), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNFCOfManyMarks(t *testing.T) {
	many := "q" + strings.Repeat("\u0301\u0323", 40)
	want := "q" + strings.Repeat("\u0323", 40) + strings.Repeat("\u0301", 40)
	if got := nfc(many); got != want {
		t.Errorf("got %+q, want %+q", got, want)
	}
	// The fallback agrees with x/text wherever that adds no joiners.
	rng := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		runes := make([]rune, 1+rng.IntN(12))
		for i := range runes {
			ranges := [][2]int{{0x20, 0x250}, {0x300, 0x370}, {0x900, 0xe00}, {0x1100, 0x1200}, {0xac00, 0xac40}, {0x1e00, 0x2130}, {0x11000, 0x11400}}
			r := ranges[rng.IntN(len(ranges))]
			runes[i] = rune(r[0] + rng.IntN(r[1]-r[0]))
		}
		s := string(runes)
		if got, want := string(compose(decompose(s))), norm.NFC.String(s); got != want {
			t.Fatalf("%+q: got %+q, want %+q", s, got, want)
		}
	}
}

func TestStreamHoldsBack(t *testing.T) {
	tok := fixture(t, "llama3")
	id := func(b byte) int32 { return tok.model.(*bpe).bytes[b] }
	fallback := fixture(t, "llama2")
	for _, c := range []struct {
		name string
		tok  *Tokenizer
		ids  []int32
		want []string // per id, then Flush
	}{
		{"character in four bytes", tok, []int32{id(0xF0), id(0x9F), id(0x98), id(0x80)}, []string{"", "", "", "😀", ""}},
		{"cut character", tok, []int32{id(0xE2), id(0x82)}, []string{"", "", "\uFFFD"}},
		{"cut character, then text", tok, []int32{id(0xE2), id(0x82), id('x')}, []string{"", "", "\uFFFDx", ""}},
		{"stray byte", tok, []int32{id(0x80), id('x')}, []string{"\uFFFD", "x", ""}},
		{"surrogate", tok, []int32{id(0xED), id(0xA0), id(0x80)}, []string{"", "\uFFFD\uFFFD", "\uFFFD", ""}},
		{"special token inside a character", tok, []int32{id(0xE2), 2, id(0x82), id(0xAC)}, []string{"", "", "", "€", ""}},
		{"byte fallback", fallback, fallbackIDs(t, fallback, 0xE2, 0x82, 0xAC), []string{"", "", "", "€"}},
		{"byte fallback, then text", fallback, append(fallbackIDs(t, fallback, 0xE2, 0x82, 0xAC, 0x21), tokenIDs(t, fallback, "▁a")...), []string{"", "", "", "", "€! a", ""}},
		{"byte fallback that a byte spoils", fallback, append(fallbackIDs(t, fallback, 0x21, 0xE2, 0x82, 0xAC, 0x80), tokenIDs(t, fallback, "▁a")...), []string{"", "", "", "", "", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD a", ""}},
		{"cut byte fallback", fallback, fallbackIDs(t, fallback, 0xE2, 0x82), []string{"", "", "\uFFFD\uFFFD"}},
		{"leading space", fallback, tokenIDs(t, fallback, "▁", "▁a", "▁"), []string{"", " a", " ", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.tok.NewStream(true)
			for round := range 2 { // a flushed stream starts anew
				var got []string
				for _, id := range c.ids {
					got = append(got, s.Push(id))
				}
				if got = append(got, s.Flush()); !slices.Equal(got, c.want) {
					t.Errorf("round %d: got %q, want %q", round, got, c.want)
				}
			}
		})
	}
}

func fallbackIDs(t *testing.T, tok *Tokenizer, bytes ...byte) []int32 {
	t.Helper()
	var ids []int32
	for _, b := range bytes {
		id := tok.model.(*bpe).bytes[b]
		if id < 0 {
			t.Fatalf("no token for byte %#x", b)
		}
		ids = append(ids, id)
	}
	return ids
}

func tokenIDs(t *testing.T, tok *Tokenizer, tokens ...string) []int32 {
	t.Helper()
	var ids []int32
	for _, token := range tokens {
		id, ok := tok.TokenToID(token)
		if !ok {
			t.Fatalf("no token %q", token)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestConcurrentUse means something under the race detector; without it, it
// still compares results.
func TestConcurrentUse(t *testing.T) {
	texts, byTokenizer := goldens(t)
	for _, name := range []string{"llama3", "qwen", "mistral", "words"} {
		tok := fixture(t, name)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i, text := range texts {
					want := byTokenizer[name][i]
					if ids, err := tok.Encode(text, true); err != nil || !slices.Equal(ids, want.ids) {
						t.Errorf("%s: %q: %v, %v", name, text, ids, err)
					}
					if got, err := tok.Decode(want.ids, true); err != nil || got != want.skipped {
						t.Errorf("%s: decode %v: %q, %v", name, want.ids, got, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// lossless returns a fixture without the added tokens that swallow white space.
func lossless(t testing.TB, name string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var f map[string]json.RawMessage
	var added []addedToken
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(f["added_tokens"], &added); err != nil {
		t.Fatal(err)
	}
	added = slices.DeleteFunc(added, func(a addedToken) bool { return a.LStrip || a.RStrip })
	if f["added_tokens"], err = json.Marshal(added); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	tok, err := Load(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// FuzzRoundTrip checks that byte-level models give every text back, and that no
// tokenizer fails on one.
func FuzzRoundTrip(f *testing.F) {
	texts, _ := goldens(f)
	for _, text := range texts {
		f.Add(text)
	}
	f.Add("\xff\xe2\x82")
	exact, composed := lossless(f, "llama3"), lossless(f, "qwen")
	others := []*Tokenizer{fixture(f, "gpt2"), fixture(f, "llama2"), fixture(f, "mistral"), fixture(f, "unk"), fixture(f, "words"), fixture(f, "wordparts")}
	f.Fuzz(func(t *testing.T, text string) {
		check := func(tok *Tokenizer, want string) {
			ids, err := tok.Encode(text, false)
			if (err == nil) != utf8.ValidString(text) {
				t.Fatalf("%q: error %v", text, err)
			}
			if err == nil {
				checkDecode(t, tok, ids, false, want)
			}
		}
		check(exact, text)
		if utf8.ValidString(text) {
			check(composed, nfc(text))
		}
		for _, tok := range others {
			ids, err := tok.Encode(text, true)
			if (err == nil) != utf8.ValidString(text) {
				t.Fatalf("%q: error %v", text, err)
			}
			if got, derr := tok.Decode(ids, false); derr != nil || !utf8.ValidString(got) {
				t.Fatalf("%q: decoded %q, %v", text, got, derr)
			}
		}
	})
}

// FuzzLoad checks that no file makes Load fail other than by an error.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(wordsJSON), []byte(`{"bos_token":"<bos>"}`))
	for _, name := range []string{"llama3", "llama2", "unk"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, []byte(`{}`))
	}
	// Parts that expand, and patterns.
	const double = `{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`
	f.Add([]byte(change(`"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[`+repeated(double, 40)+`]}`)), []byte(`{"additional_special_tokens":["<x>"]}`))
	f.Add([]byte(change(`"decoder":null`, `"decoder":{"type":"Sequence","decoders":[`+repeated(double, 40)+`]}`)), []byte(`{"chat_template":[{"name":"a","template":"b"}]}`))
	f.Add([]byte(change(`{"type":"WhitespaceSplit"}`, `{"type":"Split","pattern":{"Regex":"(?i:'s)|\\p{L}++|(?<=a)\\s+(?!\\S)"},"behavior":"MergedWithNext","invert":true}`)), []byte(`{"add_prefix_space":true}`))
	f.Fuzz(func(t *testing.T, data, config []byte) {
		tok, err := Load(data, config)
		if err != nil {
			return
		}
		ids, err := tok.Encode("the <tag> x 12", true)
		if err != nil {
			return
		}
		if _, err := tok.Decode(ids, true); err != nil {
			t.Fatal(err)
		}
	})
}
