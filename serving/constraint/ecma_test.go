package constraint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestPatterns: patterns of ECMA-262 that package regexp does not have.
func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		// zod's email, beside format: email in the last case.
		{`^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`, []string{"a.b@example.org", "x@a-b.co"}, []string{".a@example.org", "a..b@example.org", "a@b", "a.@example.org"}},
		{`^(?=.*[0-9])(?=.*[a-z]).{4,6}$`, []string{"abc1", "1xxxxx"}, []string{"abcd", "1234", "a1", "abcdef1"}},
		{`a(?!b)`, []string{"a", "ac", "abac"}, []string{"ab", "xab", "b"}},
		{`^(?!foo|bar$)`, []string{"", "fo", "barx"}, []string{"foo", "foox", "bar"}},
		{`(?=^a)`, []string{"ab"}, []string{"ba"}},
		{`^\/x\-\u0041\x42\cA{0}[\b\]^-]$`, []string{"/x-AB]", "/x-AB^", "/x-AB\b"}, []string{"/x-ABa"}},
		{`^(?<year>\d{4})-[^\W_]$`, []string{"2024-a"}, []string{"2024-_"}},
		{`^.{1,2000}$`, []string{"x", strings.Repeat("x", 2000)}, []string{"", strings.Repeat("x", 2001)}},
		{`^a{,2}{$`, []string{"a{,2}{"}, []string{"aa"}},
		{`^\s[^]$`, []string{"\u00a0\n"}, []string{"a\n"}},
		{`^\p{Lu}\p{Script=Greek}$`, []string{"Aα"}, []string{"aα", "Aa"}},
		{`^(?i)ab$`, []string{"aB"}, []string{"abc"}},
		{`\Aa\Z`, []string{"a"}, []string{"ab"}},
	} {
		schema, _ := json.Marshal(map[string]string{"type": "string", "pattern": c.pattern})
		g := mustSchema(t, string(schema), false)
		for _, text := range c.yes {
			if !admits(g, jsonText(text)) {
				t.Errorf("%s: %q is not admitted", c.pattern, text)
			}
		}
		for _, text := range c.no {
			if admits(g, jsonText(text)) {
				t.Errorf("%s: %q is admitted", c.pattern, text)
			}
		}
	}
	for pattern, want := range map[string]string{`a\bc`: `\b is not supported`, `(?<=a)b`: "look-behind", `(a)\1`: "back-reference", `(`: "missing )", `a)`: "unmatched )", `[b-a]`: "is empty", `[a`: "missing ]",
		`*a`: "nothing to repeat", `a**`: "repetition of a repetition", `a{3,2}`: "is empty", `a{99999999}`: "want up to", `((?!a)b)*`: "in a repetition", `\q`: "unknown escape", `\`: "at the end",
		strings.Repeat("(", 1000): "nested"} {
		schema, _ := json.Marshal(map[string]string{"type": "string", "pattern": pattern})
		if _, err := Schema(schema, false); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "#/pattern") {
			t.Errorf("%.20s: error %v, want one with %q", pattern, err, want)
		}
	}
}

// TestFormats: the expressions of all formats are read.
func TestFormats(t *testing.T) {
	for name := range formats {
		mustSchema(t, fmt.Sprintf(`{"type": "string", "format": %q}`, name), true)
	}
	zod := mustSchema(t, `{"type": "string", "format": "email", "pattern": "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"}`, false)
	for text, want := range map[string]bool{`"a.b@example.org"`: true, `"a..b@example.org"`: false, `"a@b"`: false} {
		if got := admits(zod, text); got != want {
			t.Errorf("zod's email, %s: admitted %v", text, got)
		}
	}
}
