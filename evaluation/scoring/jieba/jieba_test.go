package jieba_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation/scoring/jieba"
	"glimpse/evaluation/scoring/jieba/jiebatest"
)

// The words are those of Python's jieba 0.42.1; see lab/golden/golden_scoring.py.
func TestCutEqualsPython(t *testing.T) {
	golden := jiebatest.Read(t, ".")
	seg, err := jieba.Open(golden.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(golden.Texts) < 400 {
		t.Fatalf("%d texts, want 200 pairs", len(golden.Texts))
	}
	for _, want := range golden.Texts {
		text := strings.Join(want, "")
		if got := seg.Cut(text); !slices.Equal(got, want) {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestCutLosesNothing(t *testing.T) {
	seg, err := jieba.Open(jiebatest.Read(t, ".").Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", " ", "\r\n\r", "\xff\xfe", "犇犇犇犇犇犇", "a.b.c%%", "我\x00们", strings.Repeat("的", 3000)} {
		if got := strings.Join(seg.Cut(text), ""); got != text {
			t.Errorf("the words of %q are %q", text, got)
		}
	}
}

// Of equally probable paths the one with the longer word wins, as the maximum of pairs of
// probability and end does in Python: (4/16)·(4/16) = 1/16.
func TestEquallyProbablePaths(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(jiebatest.Read(t, ".").Dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "dict.txt"), []byte("甲 4 n\n乙 4 n\n甲乙 1 n\n丙 7 n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	seg, err := jieba.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := seg.Cut("丙甲乙"); !slices.Equal(got, []string{"丙", "甲乙"}) {
		t.Errorf("%q, want 丙 and 甲乙", got)
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	good := jiebatest.Read(t, ".").Dir
	cases := []struct {
		name, file, content, want string
	}{
		{"no count", "dict.txt", "AT&T 3 nz\n北京\n", "dict.txt:2"},
		{"count is a word", "dict.txt", "北京 many ns\n", `"北京 many ns"`},
		{"negative count", "dict.txt", "北京 -3\n", "want WORD COUNT"},
		{"no words", "dict.txt", "", "no words"},
		{"no dictionary", "finalseg/prob_start.py", "P=[]", "prob_start.py: no dictionary"},
		{"no entries", "finalseg/prob_start.py", "P={}", "no entries"},
		{"unknown state", "finalseg/prob_start.py", "P={'X': -1.0}", "state of BEMS"},
		{"too few keys", "finalseg/prob_trans.py", "P={'B': -1.0}", "2 keys"},
		{"a probability, not its logarithm", "finalseg/prob_emit.py", "P={'B': {'x': 0.5}}", "logarithm"},
		{"no value", "finalseg/prob_emit.py", "P={'B': {'x': }}", "line 1"},
		{"cut off", "finalseg/prob_emit.py", "P={'B':\n {'x': -1.5,", "line 2"},
		{"cut off in a string", "finalseg/prob_emit.py", "P={'B': {'\\u4e", "escape"},
		{"nested", "finalseg/prob_emit.py", "P=" + strings.Repeat("{'B':", 100), "nested"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := jieba.Open(dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := jieba.Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want one about the missing file", err)
	}
}

func BenchmarkCut(b *testing.B) {
	golden := jiebatest.Read(b, ".")
	seg, err := jieba.Open(golden.Dir)
	if err != nil {
		b.Fatal(err)
	}
	text := ""
	for _, words := range golden.Texts {
		text += strings.Join(words, "")
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		seg.Cut(text)
	}
}
