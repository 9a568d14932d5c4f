package onig

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func matches(t *testing.T, re *Regexp, text string) (spans [][2]int, err error) {
	t.Helper()
	err = re.Each(text, func(start, end int) error {
		if start < end {
			spans = append(spans, [2]int{utf8.RuneCountInString(text[:start]), utf8.RuneCountInString(text[:end])})
		}
		return nil
	})
	return spans, err
}

// TestGolden compares matches with Oniguruma's (lab/golden/tokenizer_patterns.py), and
// patterns that it refuses.
func TestGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/regex.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden []struct {
		Pattern, Error string
		Cases          [][2]json.RawMessage
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	compared, refused := 0, 0
	for _, g := range golden {
		re, err := Compile(g.Pattern)
		if g.Error != "" {
			if err == nil {
				t.Errorf("%q: no error, the reference says %s", g.Pattern, g.Error)
			}
			continue
		}
		if err != nil {
			if !strings.Contains(err.Error(), "not supported") {
				t.Errorf("%v", err)
			}
			refused++
			continue
		}
		for _, c := range g.Cases {
			var text string
			var want [][2]int
			if json.Unmarshal(c[0], &text) != nil || json.Unmarshal(c[1], &want) != nil {
				t.Fatalf("%s", c)
			}
			got, err := matches(t, re, text)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q on %q: got %v, %v; want %v", g.Pattern, text, got, err, want)
			}
			compared++
		}
	}
	if compared < 2500 || refused > 60 {
		t.Errorf("%d cases compared, %d patterns refused; want at least 2500 and at most 60", compared, refused)
	}
}

// TestLinear has patterns that backtrack catastrophically elsewhere.
func TestLinear(t *testing.T) {
	long := strings.Repeat("a", 200_000)
	for _, c := range []struct{ pattern, text string }{
		{`(a+)+b`, long}, {`(a|aa)+b`, long}, {`(?:a|a)*b`, long}, {`a*a*a*a*b`, long}, {`(.*)(.*)(.*)x`, long},
		{`[^\r\n]*?b`, long}, {`\s+(?!\S)|\s+$|\s*b`, strings.Repeat(" ", 200_000) + "a"}, {`(?:a+a+)+$b`, long},
		{`(?i:(?:a|b|ab)+c)`, strings.Repeat("abA", 50_000)},
	} {
		re, err := Compile(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := matches(t, re, c.text); err != nil {
			t.Errorf("%v", err)
		}
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("%s: %v", c.pattern, d)
		}
	}
}

// TestSteps has patterns that no kept state helps: an error, in bounded time.
func TestSteps(t *testing.T) {
	for _, pattern := range []string{`(?=.*b)[ab]c`, `(?<=^.*)[ab]c`, `(?>a+)b`} {
		re, err := Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := matches(t, re, strings.Repeat("a", 50_000)+"b"); err != nil && !errors.Is(err, ErrSteps) {
			t.Errorf("%s: %v", pattern, err)
		}
		if d := time.Since(start); d > 20*time.Second { // without a bound it is hours
			t.Errorf("%s: %v", pattern, d)
		}
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []struct{ pattern, want string }{
		{`(a)\1`, `\1 is not supported`}, {`\X`, `\X is not supported`}, {`\G`, `\G is not supported`}, {`a\Kb`, `\K is not supported`},
		{`(?~ab)`, `group (?~ is not supported`}, {`(?(1)a)`, `group (?( is not supported`}, {`(?i:ß)`, "folds to several characters"},
		{`(?i:ss)`, "a single character folds to it"}, {`\p{Block=X}`, `property "Block=X"`}, {`[a`, "class without an end"}, {`[[:]`, "class without an end"}, {`a**+?{2}(`, "missing )"},
		{`\xE4`, "is a byte"}, {`(?=a)*`, "repeated assertion"}, {`a{20000}`, "repetition of more than"}, {strings.Repeat("a", 70_000), "70000 bytes"},
		{strings.Repeat("[", 200), "nested more than"}, {`(?:(?:a{1000}){1000}){1000}`, "more than 50000 instructions"}, {"\xff", "UTF-8"},
	} {
		if _, err := Compile(c.pattern); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1500 {
			t.Errorf("%.40q: error %v, want one that says %s", c.pattern, err, c.want)
		}
	}
}

// FuzzCompile checks that no pattern makes Compile or Each fail other than by an
// error, and that matches come in order.
func FuzzCompile(f *testing.F) {
	for _, p := range []string{`(?i:'s|'t)|[^\r\n\p{L}\p{N}]?+\p{L}++|\s+(?!\S)`, `[a-z&&[^b]]+?`, `(?<=a|bc)\b`, `(?x) a # b`, `(?>a*){2,3}?|\p{^Han}`, `[[:alpha:]-]{,2}+`} {
		f.Add(p, "aB's  12\n漢 é")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		re, err := Compile(pattern)
		if err != nil || len(text) > 1000 {
			return
		}
		text = strings.ToValidUTF8(text, "?")
		last := 0
		if err := re.Each(text, func(start, end int) error {
			if start < last || end < start || end > len(text) || !utf8.ValidString(text[start:end]) {
				t.Fatalf("%q on %q: match %d to %d after %d", pattern, text, start, end, last)
			}
			last = end
			return nil
		}); err != nil && !errors.Is(err, ErrSteps) {
			t.Fatal(err)
		}
	})
}
