package printable

import "testing"

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"":                     "",
		"a\tb\nц日😀":            "a\tb\nц日😀",
		"\x1b[31mred\x1b[0m":   `\x1b[31mred\x1b[0m`,
		"a\r\u009b2Jb":         `a\x0d\u009b2Jb`,
		"\x07\x7f\xff\xc3(":    `\x07\x7f\xff\xc3(`,
		"abc\u202etxt.exe":     `abc\u202etxt.exe`,
		"a real \ufffd is one": "a real \ufffd is one",
	} {
		if got := Text(s); got != want {
			t.Errorf("%q gives %q, want %q", s, got, want)
		}
	}
}
